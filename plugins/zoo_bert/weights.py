"""BERT's tensors: the Hub's names and ours."""

from dataclasses import replace

from zoo.weights import Concat, Drop, Rule, Tied, WeightMap, is_arange
from zoo_bert.config import BertConfig

_LAYER = "bert.encoder.layer.{i}."
_QKV = tuple(f"{_LAYER}attention.self.{part}.{{p}}" for part in ("query", "key", "value"))
_TOKENS = "bert.embeddings.word_embeddings.weight"
_POOLER = "bert.pooler.dense.{p}"
_MASKED = "cls.predictions."


def weights(config: BertConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    width, trunk = config.hidden_size, _trunk(config)
    pooler = Rule(_POOLER, "pooler.{p}", (width, width))
    no_pooler = Drop(_POOLER, "the Hub's class for this head has no pooler")
    classifier = Rule("classifier.{p}", "head.{p}", (len(config.labels), width))
    match head:
        case "none" if config.pooler:
            return trunk.plus(replace(pooler, optional="pooler"))
        case "none":
            return trunk
        case "masked-lm":
            return _masked(trunk, config).plus(drops=[no_pooler])
        case "pretraining":
            follows = Rule("cls.seq_relationship.{p}", "head.next_sentence.{p}", (2, width))
            return _masked(trunk, config).plus(pooler, follows)
        case "sequence-classification":
            return trunk.plus(pooler, classifier)
        case "token-classification":
            return trunk.plus(classifier, drops=[no_pooler])
        case "question-answering":
            return trunk.plus(Rule("qa_outputs.{p}", "head.{p}", (2, width)), drops=[no_pooler])
    raise ValueError(f"BERT has no head {head!r}")


def _trunk(config: BertConfig) -> WeightMap:
    width, inner = config.hidden_size, config.intermediate_size
    table = "bert.embeddings.{}_embeddings.weight".format
    return WeightMap(
        rules=[
            Rule(_TOKENS, "embeddings.tokens.weight", (config.vocab_size, width)),
            Rule(table("position"), "embeddings.positions.weight", (config.max_positions, width)),
            Rule(table("token_type"), "embeddings.types.weight", (config.type_vocab_size, width)),
            Rule("bert.embeddings.LayerNorm.{p}", "embeddings.norm.{p}", (width,)),
            Rule(_QKV, "layers.{i}.attention.qkv.{p}", (3 * width, width), Concat(3)),
            _in_layer("attention.output.dense", "attention.out", (width, width)),
            _in_layer("attention.output.LayerNorm", "attention_norm", (width,)),
            _in_layer("intermediate.dense", "ffn.up", (inner, width)),
            _in_layer("output.dense", "ffn.down", (width, inner)),
            _in_layer("output.LayerNorm", "ffn_norm", (width,)),
        ],
        drops=[Drop("bert.embeddings.position_ids", "a buffer: 0, 1, 2, ...", is_arange)],
        legacy={"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"},
        prefix="bert.",
        counts={"i": config.num_layers},
    )


def _in_layer(theirs: str, ours: str, shape: tuple[int, ...]) -> Rule:
    return Rule(f"{_LAYER}{theirs}.{{p}}", f"layers.{{i}}.{ours}.{{p}}", shape)


def _masked(trunk: WeightMap, config: BertConfig) -> WeightMap:
    """Add the masked-token head. Where its table is its own, so is the bias beside the table."""
    vocabulary, width = config.vocab_size, config.hidden_size
    bias, table = _MASKED + "bias", _MASKED + "decoder.weight"
    decoder_bias = _MASKED + "decoder.bias"
    head = trunk.plus(
        Rule(_MASKED + "transform.dense.{p}", "head.dense.{p}", (width, width)),
        Rule(_MASKED + "transform.LayerNorm.{p}", "head.norm.{p}", (width,)),
    )
    if config.tie_embeddings:
        ties = [Tied(table, to=_TOKENS), Tied(decoder_bias, to=bias)]
        return head.plus(Rule(bias, "head.bias", (vocabulary,)), ties=ties)
    return head.plus(
        Rule(table, "head.decoder.weight", (vocabulary, width)),
        Rule(decoder_bias, "head.bias", (vocabulary,)),
        ties=[Tied(bias, to=decoder_bias, stored=True)],
    )
