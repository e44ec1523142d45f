"""Rules that families of text encoders share; each names what the Hub calls its tensors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zoo.weights.ops import Concat
from zoo.weights.rules import Drop, Rule, Tied, WeightMap, is_arange

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


def block_rules(
    names: BlockNames, source: str, target: str, *, hidden_size: int, intermediate_size: int
) -> list[Rule]:
    """Return the rules for a ``PostNormBlock``.

    Args:
        names: what the Hub calls its parts.
        source: template of what stands in front of them.
        target: template of what stands in front of ours, such as ``layers.{i}.``.
        hidden_size: width of the block.
        intermediate_size: inner width of its feed-forward network.
    """
    width, inner = hidden_size, intermediate_size

    def rule(theirs: str, ours: str, *shape: int) -> Rule:
        return Rule(f"{source}{theirs}.{{p}}", f"{target}{ours}.{{p}}", shape)

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


def trunk(
    config: Any,
    prefix: str,
    *,
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
        blocks: the blocks' rules, where they are not called as most families call them.
        project: what maps embeddings to the width of the blocks, where that is another.
        always_projected: it is there even where the widths are equal.
        counts: see ``WeightMap``.
    """
    width, own = config.hidden_size, getattr(config, "embedding_size", config.hidden_size)
    types = getattr(config, "type_vocab_size", 0)
    table = (prefix + "embeddings.{}_embeddings.weight").format
    rules = [
        Rule(tokens_name(prefix), "embeddings.tokens.weight", (config.vocab_size, own)),
        Rule(table("position"), "embeddings.positions.weight", (config.max_positions, own)),
    ]
    if types:
        rules.append(Rule(table("token_type"), "embeddings.types.weight", (types, own)))
    rules.append(Rule(f"{prefix}embeddings.LayerNorm.{{p}}", "embeddings.norm.{p}", (own,)))
    if always_projected or own != width:
        rules.append(Rule(f"{prefix}{project}.{{p}}", "embeddings.project.{p}", (width, own)))
    usual = block_rules(
        BlockNames(),
        f"{prefix}encoder.layer.{{i}}.",
        "layers.{i}.",
        hidden_size=width,
        intermediate_size=config.intermediate_size,
    )
    return WeightMap(
        rules=[*rules, *(usual if blocks is None else blocks)],
        drops=[Drop(f"{prefix}embeddings.position_ids", "a buffer: 0, 1, 2, ...", is_arange)],
        legacy=LEGACY,
        prefix=prefix,
        counts={"i": config.num_layers} if counts is None else counts,
    )


def no_pooler(pooler: Rule) -> Drop:
    """Leave a pooler out, where the head has no use for it."""
    assert isinstance(pooler.source, str)
    return Drop(pooler.source, "the Hub's class for this head has no pooler")


def masked_head(
    weights: WeightMap, config: Any, *, dense: str, norm: str, decoder: str, bias: str = ""
) -> WeightMap:
    """Add a ``MaskedTokenHead``.

    Args:
        weights: the trunk's rules.
        config: see ``trunk``.
        dense: the Hub's name of the linear map.
        norm: of the norm after it.
        decoder: of the map to the vocabulary, whose table is tied to the token embedding unless
            the configuration says otherwise.
        bias: of another bias, which stands beside the decoder's and is tied to it with the table.
            Where the table is the head's own, the decoder's bias counts.
    """
    width, vocabulary = config.hidden_size, config.vocab_size
    own = getattr(config, "embedding_size", width)
    table, decoder_bias = f"{decoder}.weight", f"{decoder}.bias"
    weights = weights.plus(
        Rule(f"{dense}.{{p}}", "head.dense.{p}", (own, width)),
        Rule(f"{norm}.{{p}}", "head.norm.{p}", (own,)),
    )
    if not config.tie_embeddings:
        return weights.plus(
            Rule(table, "head.decoder.weight", (vocabulary, own)),
            Rule(decoder_bias, "head.bias", (vocabulary,)),
            ties=[Tied(bias, to=decoder_bias, stored=True)] if bias else [],
        )
    ties = [Tied(table, to=tokens_name(weights.prefix))]
    ties += [Tied(decoder_bias, to=bias)] if bias else []
    return weights.plus(Rule(bias or decoder_bias, "head.bias", (vocabulary,)), ties=ties)
