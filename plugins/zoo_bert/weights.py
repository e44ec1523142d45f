"""BERT's tensors: the Hub's names and ours."""

from zoo.weights import Concat, Drop, Rule, Tied, WeightMap, is_arange
from zoo_bert.config import BertConfig

_LAYER = "bert.encoder.layer.{i}."
_QKV = tuple(f"{_LAYER}attention.self.{part}.{{p}}" for part in ("query", "key", "value"))
_TOKENS = "bert.embeddings.word_embeddings.weight"
_POOLER = "bert.pooler.dense.{p}"
_MASKED = "cls.predictions."


def weights(config: BertConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    width, labels = config.hidden_size, len(config.labels)
    if head == "none":
        return _trunk(config, pooler=config.pooler, bare=True)
    if head == "masked-lm":
        return _masked(_trunk(config, pooler=False), config)
    if head == "pretraining":
        follows = Rule("cls.seq_relationship.{p}", "head.next_sentence.{p}", (2, width))
        return _masked(_trunk(config, pooler=True), config).plus(follows)
    if head == "question-answering":
        return _trunk(config, pooler=False).plus(Rule("qa_outputs.{p}", "head.{p}", (2, width)))
    pooler = {"sequence-classification": True, "token-classification": False}[head]
    classifier = Rule("classifier.{p}", "head.{p}", (labels, width))
    return _trunk(config, pooler=pooler).plus(classifier)


def _trunk(config: BertConfig, *, pooler: bool, bare: bool = False) -> WeightMap:
    width, inner = config.hidden_size, config.intermediate_size
    table = "bert.embeddings.{}_embeddings.weight".format
    rules = [
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
    ]
    drops = [Drop("bert.embeddings.position_ids", "a buffer: 0, 1, 2, ...", is_arange)]
    if pooler:  # a bare trunk is published with or without it, some heads need it,
        rules += [Rule(_POOLER, "pooler.{p}", (width, width), optional="pooler" if bare else "")]
    elif not bare:  # and for the others it is left over from pretraining
        drops += [Drop(_POOLER, "the Hub's class for this head has no pooler")]
    return WeightMap(
        rules=rules,
        drops=drops,
        legacy={"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"},
        prefix="bert.",
        bare=bare,
        counts={"i": config.num_layers},
    )


def _in_layer(theirs: str, ours: str, shape: tuple[int, ...]) -> Rule:
    return Rule(f"{_LAYER}{theirs}.{{p}}", f"layers.{{i}}.{ours}.{{p}}", shape)


def _masked(trunk: WeightMap, config: BertConfig) -> WeightMap:
    """Add the masked-token head."""
    vocabulary, width = config.vocab_size, config.hidden_size
    head = trunk.plus(
        Rule(_MASKED + "transform.dense.{p}", "head.dense.{p}", (width, width)),
        Rule(_MASKED + "transform.LayerNorm.{p}", "head.norm.{p}", (width,)),
        Rule(_MASKED + "bias", "head.bias", (vocabulary,)),
        ties=[Tied(_MASKED + "decoder.bias", to=_MASKED + "bias")],
    )
    table = _MASKED + "decoder.weight"
    if config.tie_embeddings:
        return head.plus(ties=[Tied(table, to=_TOKENS)])
    return head.plus(Rule(table, "head.decoder.weight", (vocabulary, width)))
