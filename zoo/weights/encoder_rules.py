"""Rules that families of text encoders share; each names what the Hub calls its tensors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zoo.weights.buffers import is_arange
from zoo.weights.ops import Concat
from zoo.weights.rules import Ignore, Rule, WeightMap

LEGACY = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}


@dataclass(frozen=True)
class BlockNames:
    """What the Hub calls the parts of a block; the defaults are the most common ones."""

    query: str = "attention.self.query"
    key: str = "attention.self.key"
    value: str = "attention.self.value"
    out: str = "attention.output.dense"
    attention_norm: str = "attention.output.LayerNorm"
    up: str = "intermediate.dense"
    down: str = "output.dense"
    ffn_norm: str = "output.LayerNorm"


def module_rule(theirs: str, ours: str, *shape: int) -> Rule:
    """Return the rule for the weight and the bias of a module.

    Args:
        theirs: the Hub's name of the module.
        ours: our name of it.
        *shape: of the weight.
    """
    return Rule(f"{theirs}.{{p}}", f"{ours}.{{p}}", shape)


def block_rules(
    config: Any, names: BlockNames, source: str, target: str = "layers.{i}."
) -> list[Rule]:
    """Return the rules for a ``PostNormBlock``.

    Args:
        config: has ``hidden_size`` and ``intermediate_size``.
        names: what the Hub calls its parts.
        source: template of what stands in front of them.
        target: template of what stands in front of ours.
    """
    width, inner = config.hidden_size, config.intermediate_size

    def rule(theirs: str, ours: str, *shape: int) -> Rule:
        return module_rule(source + theirs, target + ours, *shape)

    qkv = tuple(f"{source}{part}.{{p}}" for part in (names.query, names.key, names.value))
    return [
        Rule(qkv, f"{target}attention.qkv.{{p}}", (3 * width, width), Concat(3)),
        rule(names.out, "attention.out", width, width),
        rule(names.attention_norm, "attention_norm", width),
        rule(names.up, "ffn.up", inner, width),
        rule(names.down, "ffn.down", width, inner),
        rule(names.ffn_norm, "ffn_norm", width),
    ]


def tokens_name(prefix: str) -> str:
    """Return the Hub's name of the token embedding."""
    return f"{prefix}embeddings.word_embeddings.weight"


def backbone_rules(
    config: Any,
    prefix: str,
    *,
    positions: bool = True,
    blocks: Sequence[Rule] | None = None,
    project: str = "embeddings_project",
    always_projected: bool = False,
    counts: Mapping[str, int] | None = None,
) -> WeightMap:
    """Return the rules for embeddings and blocks.

    Args:
        config: has ``vocab_size``, ``hidden_size`` and the like; ``type_vocab_size`` and
            ``embedding_size`` where the family has them.
        prefix: of the trunk's tensors in head models.
        positions: whether there is a table of positions.
        blocks: the blocks' rules, where they are not called as most families call them.
        project: what maps embeddings to the width of the blocks, where that is another.
        always_projected: it is there even where the widths are equal.
        counts: see ``WeightMap``.
    """
    width, own = config.hidden_size, getattr(config, "embedding_size", config.hidden_size)
    types = getattr(config, "type_vocab_size", 0)
    table = (prefix + "embeddings.{}_embeddings.weight").format
    rules = [Rule(tokens_name(prefix), "embeddings.tokens.weight", (config.vocab_size, own))]
    if positions:
        shape = (config.max_positions, own)
        rules.append(Rule(table("position"), "embeddings.positions.weight", shape))
    if types:
        rules.append(Rule(table("token_type"), "embeddings.types.weight", (types, own)))
    rules.append(Rule(f"{prefix}embeddings.LayerNorm.{{p}}", "embeddings.norm.{p}", (own,)))
    if always_projected or own != width:
        rules.append(Rule(f"{prefix}{project}.{{p}}", "embeddings.project.{p}", (width, own)))
    usual = block_rules(config, BlockNames(), f"{prefix}encoder.layer.{{i}}.")
    return WeightMap(
        rules=[*rules, *(usual if blocks is None else blocks)],
        drops=[Ignore(f"{prefix}embeddings.position_ids", "a buffer: 0, 1, 2, ...", is_arange)],
        legacy=LEGACY,
        prefix=prefix,
        counts={"i": config.num_layers} if counts is None else counts,
    )
