"""Weight rules of XLM and FlauBERT."""

from zoo.weights import Ignore, Rule, WeightMap
from zoo.weights.buffers import is_arange
from zoo.weights.encoder_rules import BlockNames, block_rules, module_rule
from zoo.weights.head_rules import output_rules
from zoo_xlm.config import XLMConfig

_PREFIX = "transformer."
_TOKENS = _PREFIX + "embeddings.weight"
_BLOCK = BlockNames(
    query="attentions.{i}.q_lin",
    key="attentions.{i}.k_lin",
    value="attentions.{i}.v_lin",
    out="attentions.{i}.out_lin",
    attention_norm="layer_norm1.{i}",
    up="ffns.{i}.lin1",
    down="ffns.{i}.lin2",
    ffn_norm="layer_norm2.{i}",
)
_CLASSIFIERS = {
    "sequence-classification": "sequence_summary.summary",
    "token-classification": "classifier",
    "question-answering": "qa_outputs",
}


def weights(config: XLMConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    width = config.hidden_size
    positions = config.max_positions, width
    rules = [
        Rule(_TOKENS, "embeddings.tokens.weight", (config.vocab_size, width)),
        Rule(f"{_PREFIX}position_embeddings.weight", "embeddings.positions.weight", positions),
        module_rule(f"{_PREFIX}layer_norm_emb", "embeddings.norm", width),
        *block_rules(config, _BLOCK, _PREFIX),
    ]
    if config.language_rows:
        languages = config.language_rows, width
        name = f"{_PREFIX}lang_embeddings.weight"
        rules.append(Rule(name, "embeddings.languages.weight", languages))
    backbone = WeightMap(
        rules=rules,
        drops=[Ignore(f"{_PREFIX}position_ids", "a buffer: 0, 1, 2, ...", is_arange)],
        prefix=_PREFIX,
        counts={"i": config.num_layers},
    )
    if head == "masked-lm":
        output = backbone.plus(Rule("pred_layer.proj.bias", "head.bias", (config.vocab_size,)))
        return output_rules(output, config, "pred_layer.proj.weight", _TOKENS)
    if head in _CLASSIFIERS:
        outputs = 2 if head == "question-answering" else len(config.labels)
        return backbone.plus(module_rule(_CLASSIFIERS[head], "head", outputs, width))
    return backbone
