"""Weight rules of XLNet."""

from zoo.weights import Rule, SplitHeads, TiedAlias, WeightMap
from zoo.weights.encoder_rules import module_rule
from zoo.weights.head_rules import dense_rules
from zoo_xlnet.config import XLNetConfig

_PREFIX = "transformer."
_LAYER = _PREFIX + "layer.{i}."
_OURS = "layers.{i}."
_TOKENS = _PREFIX + "word_embedding.weight"
_MAPS = {"q": "query", "k": "key", "v": "value", "r": "relative", "o": "out"}
_BIASES = {"r_w_bias": "content_bias", "r_r_bias": "position_bias", "r_s_bias": "segment_bias"}


def weights(config: XLNetConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    width = config.hidden_size
    inner = config.intermediate_size
    labels = len(config.labels)
    backbone = WeightMap(
        rules=[
            Rule(_TOKENS, "embeddings.tokens.weight", (config.vocab_size, width)),
            Rule(_PREFIX + "mask_emb", "embeddings.mask", (1, 1, width)),
            *_attention_rules(config),
            module_rule(_LAYER + "rel_attn.layer_norm", _OURS + "attention_norm", width),
            module_rule(_LAYER + "ff.layer_1", _OURS + "ffn.up", inner, width),
            module_rule(_LAYER + "ff.layer_2", _OURS + "ffn.down", width, inner),
            module_rule(_LAYER + "ff.layer_norm", _OURS + "ffn_norm", width),
        ],
        prefix=_PREFIX,
        counts={"i": config.num_layers},
    )
    match head:
        case "masked-lm":
            bias = Rule("lm_loss.bias", "head.bias", (config.vocab_size,))
            return backbone.plus(bias, ties=[TiedAlias("lm_loss.weight", to=_TOKENS)])
        case "sequence-classification" | "multiple-choice":
            outputs = labels if head == "sequence-classification" else 1
            rules = dense_rules(config, "sequence_summary.summary", "logits_proj", outputs)
            return backbone.plus(*rules)
        case "token-classification":
            return backbone.plus(module_rule("classifier", "head", labels, width))
        case "question-answering":
            return backbone.plus(module_rule("qa_outputs", "head", 2, width))
        case "beam-question-answering":
            return backbone.plus(
                module_rule("start_logits.dense", "head.start", 1, width),
                module_rule("end_logits.dense_0", "head.end_dense", width, 2 * width),
                module_rule("end_logits.LayerNorm", "head.end_norm", width),
                module_rule("end_logits.dense_1", "head.end_out", 1, width),
                module_rule("answer_class.dense_0", "head.answer_dense", width, 2 * width),
                Rule("answer_class.dense_1.weight", "head.answer_out.weight", (1, width)),
            )
    return backbone


def _attention_rules(config: XLNetConfig) -> list[Rule]:
    """Return the rules of attention, whose heads have an axis of their own on the Hub."""
    width = config.hidden_size
    heads = (config.num_heads, config.head_size)
    source = _LAYER + "rel_attn."
    target = _OURS + "attention."
    maps = [
        Rule(
            source + name,
            f"{target}{ours}.weight",
            (width, width),
            SplitHeads(config.num_heads, merges=name == "o"),
        )
        for name, ours in _MAPS.items()
    ]
    biases = [Rule(source + name, target + ours, heads) for name, ours in _BIASES.items()]
    return [*maps, *biases, Rule(source + "seg_embed", target + "segments", (2, *heads))]
