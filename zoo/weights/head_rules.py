"""Rules for heads that many families have, and what differs: how the Hub calls their parts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from zoo.weights.encoder_rules import module_rule, tokens_name
from zoo.weights.rules import Ignore, Rule, TiedAlias, WeightMap


@dataclass(frozen=True)
class MaskedNames:
    """What the Hub calls the parts of a ``MLMHead``; the defaults are the most common ones.

    Attributes:
        dense: the linear map.
        norm: the norm after it.
        decoder: the map to the vocabulary, whose table is tied to the token embedding unless the
            configuration says otherwise.
        bias: another bias, which stands beside the decoder's and is tied to it with the table; none
            if it is empty. Where the table is the head's own, the decoder's bias counts.
    """

    dense: str = "cls.predictions.transform.dense"
    norm: str = "cls.predictions.transform.LayerNorm"
    decoder: str = "cls.predictions.decoder"
    bias: str = "cls.predictions.bias"


@dataclass(frozen=True)
class HeadNames:
    """What the Hub calls the parts of heads; the defaults are the most common ones.

    Attributes:
        masked: of what scores masked tokens, where there is such a head.
        pooler: what makes one vector of a text, where there is such a map. Where it is one of the
            trunk's tensors, the bare trunk may have it, and it is left out where a head has no use
            for it.
        text: what classifies texts: one map of the pooler's vector, or two of the first token's.
        choice: the same of what chooses among texts, if it is another.
        tokens: what classifies tokens.
        answers: what finds answers.
    """

    masked: MaskedNames | None = None
    pooler: str = ""
    text: tuple[str, ...] = ("classifier",)
    choice: tuple[str, ...] = ()
    tokens: str = "classifier"
    answers: str = "qa_outputs"


def with_head(weights: WeightMap, config: Any, head: str, names: HeadNames) -> WeightMap:
    """Add the rules of a head that every text encoder has, and others may have.

    Args:
        weights: the trunk's rules.
        config: see ``trunk``; has ``labels``, too, and ``pooler`` where the trunk may have one.
        head: the head.
        names: what the Hub calls its parts.

    Raises:
        ValueError: there is no such head.
    """
    width, labels = config.hidden_size, len(config.labels)
    pooler = _pooler(config, names)
    in_trunk = bool(names.pooler) and names.pooler.startswith(weights.prefix)
    if head == "none":
        there = in_trunk and config.pooler
        return weights.plus(replace(pooler, optional="pooler")) if there else weights
    match head:
        case "masked-lm" if names.masked:
            found = mlm_head_rules(weights, config, names.masked)
        case "sequence-classification":
            found = _text(weights, config, names, names.text, labels)
        case "multiple-choice":
            found = _text(weights, config, names, names.choice or names.text, 1)
        case "token-classification":
            found = weights.plus(module_rule(names.tokens, "head", labels, width))
        case "question-answering":
            found = weights.plus(module_rule(names.answers, "head", 2, width))
        case _:
            raise ValueError(f"{type(config).__name__} has no head {head!r}")
    if not in_trunk or pooler in found.rules:
        return found
    unused = Ignore(f"{names.pooler}.{{p}}", "the Hub's class for this head has no pooler")
    return found.plus(drops=[unused])


def with_pairs(weights: WeightMap, config: Any, names: HeadNames, scores: Rule) -> WeightMap:
    """Add the rules of a head that scores masked tokens and pairs of texts.

    Args:
        weights: see ``with_head``.
        config: see ``with_head``.
        names: see ``with_head``.
        scores: for what scores pairs.
    """
    assert names.masked is not None, "a family with this head names its parts"
    return mlm_head_rules(weights, config, names.masked).plus(_pooler(config, names), scores)


def _pooler(config: Any, names: HeadNames) -> Rule:
    return module_rule(names.pooler, "pooler", config.hidden_size, config.hidden_size)


def _text(
    weights: WeightMap, config: Any, names: HeadNames, maps: Sequence[str], outputs: int
) -> WeightMap:
    *dense, out = maps
    if dense:
        return weights.plus(*dense_rules(config, dense[0], out, outputs))
    return weights.plus(
        _pooler(config, names), module_rule(out, "head", outputs, config.hidden_size)
    )


def dense_rules(config: Any, dense: str, out: str, outputs: int) -> list[Rule]:
    """Return the rules for a ``DenseHead``.

    Args:
        config: has ``hidden_size``.
        dense: the Hub's name of the first map.
        out: of the second.
        outputs: how many it has.
    """
    width = config.hidden_size
    return [
        module_rule(dense, "head.dense", width, width),
        module_rule(out, "head.out", outputs, width),
    ]


def lm_head_rules(
    weights: WeightMap, config: Any, tokens: str, *, own: bool, optional: str = ""
) -> WeightMap:
    """Add what scores the next token, ``zoo.nn.heads.LMHeadMixin``.

    Args:
        weights: the trunk's rules.
        config: has ``vocab_size`` and ``hidden_size``.
        tokens: the Hub's name of the token embedding.
        own: whether scores come of a table of their own.
        optional: see ``Rule``, of that table.
    """
    if not own:
        return weights.plus(ties=[TiedAlias("lm_head.weight", to=tokens)])
    shape = config.vocab_size, config.hidden_size
    return weights.plus(Rule("lm_head.weight", "head.weight", shape, optional=optional))


def mlm_head_rules(
    weights: WeightMap, config: Any, names: MaskedNames, other: MaskedNames | None = None
) -> WeightMap:
    """Add a ``MLMHead``.

    Args:
        weights: the trunk's rules.
        config: see ``trunk``.
        names: what the Hub calls its parts.
        other: what some files call them, all but the decoder.
    """
    width, vocabulary = config.hidden_size, config.vocab_size
    own = getattr(config, "embedding_size", width)
    table, decoder_bias, bias = names.decoder + ".weight", names.decoder + ".bias", names.bias
    weights = replace(weights, legacy={**weights.legacy, **_renamed(other or names, names)})
    weights = weights.plus(
        module_rule(names.dense, "head.dense", own, width),
        module_rule(names.norm, "head.norm", own),
    )
    if not config.tie_embeddings:
        return weights.plus(
            Rule(table, "head.decoder.weight", (vocabulary, own)),
            Rule(decoder_bias, "head.bias", (vocabulary,)),
            ties=[TiedAlias(bias, to=decoder_bias, stored=True)] if bias else [],
        )
    ties = [TiedAlias(table, to=tokens_name(weights.prefix))]
    ties += [TiedAlias(decoder_bias, to=bias)] if bias else []
    return weights.plus(Rule(bias or decoder_bias, "head.bias", (vocabulary,)), ties=ties)


def _renamed(other: MaskedNames, names: MaskedNames) -> dict[str, str]:
    """Return other names of a head's tensors -> those that the rules use, where they differ."""
    modules = {other.dense: names.dense, other.norm: names.norm}
    found = {f"{old}.{p}": f"{new}.{p}" for old, new in modules.items() for p in ("weight", "bias")}
    found[other.bias] = names.bias
    return {old: new for old, new in found.items() if old not in ("", new)}
