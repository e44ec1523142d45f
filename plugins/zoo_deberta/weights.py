"""DeBERTa's tensors: the Hub's names and ours."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from zoo.weights import Concat, Drop, Op, Rule, Tied, WeightMap, is_arange
from zoo_deberta.config import DebertaConfig

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic[Any]]

_LAYER = "deberta.encoder.layer.{i}."
_SELF = "attention.self."
_QKV = tuple(f"{_LAYER}{_SELF}{part}_proj.{{p}}" for part in ("query", "key", "value"))
_TOKENS = "deberta.embeddings.word_embeddings.weight"
_POSITIONS = "deberta.embeddings.position_embeddings.weight"
_MASKED, _OLD_MASKED = "lm_predictions.lm_head.", "cls.predictions."
# the masked-token head's tensors: name in the present layout, in the old one, ours
_MASKED_PARTS = (
    ("dense.{p}", "transform.dense.{p}", "head.dense.{p}"),
    ("LayerNorm.{p}", "transform.LayerNorm.{p}", "head.norm.{p}"),
    ("bias", "bias", "head.bias"),
)


@dataclass(frozen=True)
class ByHead(Op):
    """Query, key and value joined head by head; here, all heads of one stand together.

    Attributes:
        heads: how many.
    """

    heads: int

    def hub_shapes(self, shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        """See ``Op``."""
        return (shape,)

    def pieces(self, arrays: "Sequence[Array]") -> "Sequence[Array]":
        """See ``Op``."""
        return self._swapped(arrays[0], self.heads, 3)

    def to_hub(self, array: "Array") -> "tuple[Array, ...]":
        """See ``Op``."""
        import numpy as np

        return (np.concatenate(self._swapped(array, 3, self.heads)),)

    @staticmethod
    def _swapped(array: "Array", outer: int, inner: int) -> "list[Array]":
        rows = array.shape[0] // (outer * inner)
        starts = [(o * inner + i) * rows for i in range(inner) for o in range(outer)]
        return [array[start : start + rows] for start in starts]


def weights(config: DebertaConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    width, trunk = config.hidden_size, _trunk(config)
    plain = trunk if config.position_biased_input else trunk.plus(drops=[_NO_DECODER])
    pooler = Rule("pooler.dense.{p}", "pooler.{p}", (width, width))
    classifier = Rule("classifier.{p}", "head.{p}", (len(config.labels), width))
    match head:
        case "none":
            return plain
        case "masked-lm":
            return _masked(trunk, config)
        case "replaced-token-detection":
            return plain.plus(*_replaced("head", width))
        case "pretraining":
            return _masked(trunk, config).plus(*_replaced("replaced", width))
        case "sequence-classification":
            return plain.plus(pooler, classifier)
        case "multiple-choice":
            return plain.plus(pooler, Rule("classifier.{p}", "head.{p}", (1, width)))
        case "token-classification":
            return plain.plus(classifier)
        case "question-answering":
            return plain.plus(Rule("qa_outputs.{p}", "head.{p}", (2, width)))
    raise ValueError(f"DeBERTa has no head {head!r}")


_NO_DECODER = Drop(_POSITIONS, "absolute positions, which only masked-token heads decode with")


def _trunk(config: DebertaConfig) -> WeightMap:
    width, inner = config.hidden_size, config.intermediate_size
    rules = [Rule(_TOKENS, "embeddings.tokens.weight", (config.vocab_size, width))]
    table = "deberta.embeddings.{}.weight".format
    if config.position_biased_input:
        rules.append(Rule(_POSITIONS, "embeddings.positions.weight", (config.max_positions, width)))
    if config.type_vocab_size:
        shape = (config.type_vocab_size, width)
        rules.append(Rule(table("token_type_embeddings"), "embeddings.types.weight", shape))
    rules += [Rule("deberta.embeddings.LayerNorm.{p}", "embeddings.norm.{p}", (width,))]
    rules += _relative(config) + _attention(config)
    rules += [
        _in_layer("attention.output.dense", "attention.out", (width, width)),
        _in_layer("attention.output.LayerNorm", "attention_norm", (width,)),
        _in_layer("intermediate.dense", "ffn.up", (inner, width)),
        _in_layer("output.dense", "ffn.down", (width, inner)),
        _in_layer("output.LayerNorm", "ffn_norm", (width,)),
    ]
    return WeightMap(
        rules=rules,
        drops=[Drop("deberta.embeddings.position_ids", "a buffer: 0, 1, 2, ...", is_arange)],
        prefix="deberta.",
        counts={"i": config.num_layers},
    )


def _relative(config: DebertaConfig) -> list[Rule]:
    """Return the rules for what all blocks share: relative positions and the convolution."""
    width, encoder, rules = config.hidden_size, "deberta.encoder.", []
    if config.relative_attention:
        table = encoder + "rel_embeddings.weight"
        rules.append(Rule(table, "relative.weight", (2 * config.reach, width)))
    if config.norms_positions:
        rules.append(Rule(encoder + "LayerNorm.{p}", "relative_norm.{p}", (width,)))
    if config.conv_kernel_size:
        shape = (width, width // config.conv_groups, config.conv_kernel_size)
        rules.append(Rule(encoder + "conv.conv.{p}", "layers.0.conv.{p}", shape))
        rules.append(Rule(encoder + "conv.LayerNorm.{p}", "layers.0.conv_norm.{p}", (width,)))
    return rules


def _attention(config: DebertaConfig) -> list[Rule]:
    """Return the rules for the projections, which version 1 stores in another way."""
    width, terms = config.hidden_size, config.terms if config.relative_attention else ()
    ours, shape = "layers.{i}.attention.", (width, width)
    own = () if config.share_att_key else terms
    if config.key_bias:
        rules = [Rule(_QKV, ours + "qkv.{p}", (3 * width, width), Concat(3))]
        names = {"c2p": "pos_key_proj.{p}", "p2c": "pos_query_proj.{p}"}
    else:
        fused = ByHead(config.num_heads)
        source = _LAYER + _SELF
        rules = [
            Rule(source + "in_proj.weight", ours + "qkv.weight", (3 * width, width), fused),
            Rule(source + "q_bias", ours + "qkv.query_bias", (width,)),
            Rule(source + "v_bias", ours + "qkv.value_bias", (width,)),
        ]
        names = {"c2p": "pos_proj.weight", "p2c": "pos_q_proj.{p}"}
    targets = {"c2p": "position_key.", "p2c": "position_query."}
    return rules + [
        Rule(
            _LAYER + _SELF + names[term],
            ours + targets[term] + names[term].rpartition(".")[2],
            shape,
        )
        for term in own
    ]


def _in_layer(theirs: str, ours: str, shape: tuple[int, ...]) -> Rule:
    return Rule(f"{_LAYER}{theirs}.{{p}}", f"layers.{{i}}.{ours}.{{p}}", shape)


def _masked(trunk: WeightMap, config: DebertaConfig) -> WeightMap:
    """Add the masked-token head, which files call one of two names, and its decoder's table."""
    width = config.hidden_size
    shapes = ((width, width), (width,), (config.vocab_size,))
    rules, renamed = [], {}
    for (present, old, ours), shape in zip(_MASKED_PARTS, shapes, strict=True):
        names = [_MASKED + present, _OLD_MASKED + old]
        if config.legacy_names:
            names.reverse()
        rules.append(Rule(names[0], ours, shape))
        for p in ("weight", "bias"):
            renamed[names[1].format(p=p)] = names[0].format(p=p)
    if config.decodes_positions:
        shape = (config.max_positions, width)
        rules.append(Rule(_POSITIONS, "positions.weight", shape, optional="enhanced_decoder"))
    bias = rules[2].source
    ties = [Tied(_OLD_MASKED + "decoder.weight", to=_TOKENS)]
    ties += [Tied(_OLD_MASKED + "decoder.bias", to=str(bias))]
    return replace(trunk.plus(*rules, ties=ties), legacy=renamed)


def _replaced(ours: str, width: int) -> list[Rule]:
    theirs = "mask_predictions."
    return [
        Rule(theirs + "LayerNorm.{p}", ours + ".norm.{p}", (width,)),
        Rule(theirs + "dense.{p}", ours + ".dense.{p}", (width, width)),
        Rule(theirs + "classifier.{p}", ours + ".classifier.{p}", (1, width)),
    ]
