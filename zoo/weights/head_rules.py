"""Weight rules of common heads, with a family's Hub names as data."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from zoo.weights.encoder_rules import module_rule, tokens_name
from zoo.weights.rules import Ignore, Rule, TiedAlias, WeightMap


@dataclass(frozen=True)
class MaskedNames:
    """Hub names of the modules of an ``MLMHead``; the defaults are the most common ones.

    Attributes:
        dense: the linear map.
        norm: the layer norm.
        decoder: the map to the vocabulary, tied to the token embeddings if ``tie_embeddings``.
        bias: a second name of the decoder's bias, empty for none. It is the owner of the values
            if the decoder is tied. If not, transformers 5 has two parameters and adds the
            decoder's bias only (``BertLMPredictionHead.forward``); earlier releases have one.
    """

    dense: str = "cls.predictions.transform.dense"
    norm: str = "cls.predictions.transform.LayerNorm"
    decoder: str = "cls.predictions.decoder"
    bias: str = "cls.predictions.bias"


@dataclass(frozen=True)
class HeadNames:
    """Hub names of the modules of heads; the defaults are the most common ones.

    Attributes:
        masked: the masked-LM head's, if there is one.
        pooler: the pooler, if there is one. If it belongs to the backbone, the bare backbone may
            have it, and its tensors are ignored for heads that do not use it.
        text: sequence classification: one map after the pooler, or two of the first token.
        choice: multiple choice, if it differs from ``text``.
        tokens: token classification.
        answers: extractive question answering.
    """

    masked: MaskedNames | None = None
    pooler: str = ""
    text: tuple[str, ...] = ("classifier",)
    choice: tuple[str, ...] = ()
    tokens: str = "classifier"
    answers: str = "qa_outputs"


def fairseq_head_names(prefix: str) -> HeadNames:
    """Return the names of the heads that ``zoo.nn.encoder_factory.FairseqFactory`` builds.

    Args:
        prefix: prefix of the backbone's tensors, which has the pooler.
    """
    return HeadNames(
        masked=MaskedNames(
            dense="lm_head.dense",
            norm="lm_head.layer_norm",
            decoder="lm_head.decoder",
            bias="lm_head.bias",
        ),
        pooler=f"{prefix}pooler.dense",
        text=("classifier.dense", "classifier.out_proj"),
        choice=("classifier",),
    )


def with_head(weights: WeightMap, config: Any, head: str, names: HeadNames) -> WeightMap:
    """Return the rules of a backbone with a common head.

    Args:
        weights: rules of the backbone.
        config: see ``backbone_rules``; with ``labels``, and ``pooler`` if the backbone may have it.
        head: name of the head.
        names: Hub names of its modules.

    Raises:
        ValueError: the head is unknown.
    """
    width = config.hidden_size
    labels = len(config.labels)
    pooler = _pooler(config, names)
    in_backbone = bool(names.pooler) and names.pooler.startswith(weights.prefix)
    if head == "none":
        has_pooler = in_backbone and config.pooler
        return weights.plus(replace(pooler, optional="pooler")) if has_pooler else weights
    match head:
        case "masked-lm" if names.masked:
            weights = mlm_head_rules(weights, config, names.masked)
        case "sequence-classification":
            weights = with_mix(weights, config)
            if getattr(config, "sentence_head", None) is not None:
                weights = weights.plus(module_rule(names.text[-1], "head", labels, width))
            else:
                weights = _text(weights, config, names, names.text, labels)
        case "multiple-choice":
            weights = _text(weights, config, names, names.choice or names.text, 1)
        case "token-classification":
            head_rule = module_rule(names.tokens, "head", labels, width)
            weights = with_mix(weights, config).plus(head_rule)
        case "question-answering":
            weights = weights.plus(module_rule(names.answers, "head", 2, width))
        case _:
            raise ValueError(f"{type(config).__name__} has no head {head!r}")
    if not in_backbone or pooler in weights.rules:
        return weights
    unused = Ignore(f"{names.pooler}.{{p}}", "the Hub's class for this head has no pooler")
    return weights.plus(drops=[unused])


def with_pairs(weights: WeightMap, config: Any, names: HeadNames, scores: Rule) -> WeightMap:
    """Return the rules of a backbone with an ``MLMWithPairHead``; see also ``with_head``.

    Args:
        scores: rule of the classifier of pairs.
    """
    assert names.masked is not None, "a family with this head names its parts"
    return mlm_head_rules(weights, config, names.masked).plus(_pooler(config, names), scores)


def with_mix(
    weights: WeightMap, config: Any, *, stack: str = "", layers: int | None = None
) -> WeightMap:
    """Add the rules of the mix of layers, if there is one.

    No class of the Hub has it.

    Args:
        weights: the rules.
        config: a configuration, which has ``mix`` if there may be one.
        stack: prefix of the module with the layers.
        layers: number of layers; ``None`` for ``num_layers``.
    """
    if not getattr(config, "mix", False):
        return weights
    count = 1 + (config.num_layers if layers is None else layers)
    return weights.plus(
        Rule(f"{stack}scalar_mix.weights", f"{stack}mix.weights", (count,)),
        Rule(f"{stack}scalar_mix.gamma", f"{stack}mix.gamma", (1,)),
    )


def _pooler(config: Any, names: HeadNames) -> Rule:
    return module_rule(names.pooler, "pooler", config.hidden_size, config.hidden_size)


def _text(
    weights: WeightMap, config: Any, names: HeadNames, maps: Sequence[str], outputs: int
) -> WeightMap:
    *dense, out = maps
    if dense:  # Two maps of the first token's hidden state replace the pooler.
        return weights.plus(*dense_rules(config, dense[0], out, outputs))
    return weights.plus(
        _pooler(config, names), module_rule(out, "head", outputs, config.hidden_size)
    )


def dense_rules(config: Any, dense: str, out: str, outputs: int) -> list[Rule]:
    """Return the rules for a ``DenseHead``.

    Args:
        config: a configuration with ``hidden_size``.
        dense: Hub name of the first linear map.
        out: Hub name of the second.
        outputs: number of outputs.
    """
    width = config.hidden_size
    return [
        module_rule(dense, "head.dense", width, width),
        module_rule(out, "head.out", outputs, width),
    ]


def lm_head_rules(
    weights: WeightMap,
    config: Any,
    tokens: str,
    *,
    tied: bool,
    optional: str = "",
    name: str = "lm_head",
    bias: str = "",
) -> WeightMap:
    """Return the rules of a backbone with a ``zoo.nn.heads.LMHeadMixin``.

    Args:
        weights: rules of the backbone.
        config: a configuration with ``vocab_size`` and ``hidden_size``.
        tokens: Hub name of the token embeddings.
        tied: whether these are also the output embeddings.
        optional: see ``Rule``, of output embeddings that are not tied.
        name: Hub name of the output embeddings' module.
        bias: Hub name of a bias of the logits, (1, vocabulary), which a file may lack; the
            configuration has a field ``logits_bias``.
    """
    if bias:
        shape = 1, config.vocab_size
        weights = weights.plus(Rule(bias, "logits_bias", shape, optional="logits_bias"))
    if tied:
        return weights.plus(ties=[TiedAlias(f"{name}.weight", to=tokens)])
    shape = config.vocab_size, config.hidden_size
    return weights.plus(Rule(f"{name}.weight", "head.weight", shape, optional=optional))


def causal_head_rules(
    weights: WeightMap,
    config: Any,
    head: str,
    tokens: str,
    *,
    tied: bool = True,
    name: str = "lm_head",
) -> WeightMap:
    """Return the rules of a causal backbone with a common head.

    Args:
        weights: rules of the backbone.
        config: a configuration with ``vocab_size``, ``hidden_size`` and ``labels``.
        head: name of the head.
        tokens: Hub name of the token embeddings.
        tied: whether these are also the output embeddings.
        name: Hub name of the output embeddings' module.

    Raises:
        ValueError: the head is unknown.
    """
    if head == "causal-lm":
        return lm_head_rules(weights, config, tokens, tied=tied, name=name)
    if head == "sequence-classification":  # The last token is classified, without a bias.
        shape = len(config.labels), config.hidden_size
        return with_mix(weights, config).plus(Rule("score.weight", "head.weight", shape))
    return with_head(weights, config, head, HeadNames())


def output_rules(weights: WeightMap, config: Any, name: str, tokens: str) -> WeightMap:
    """Return the rules of a model with the output embeddings of a masked language model.

    Args:
        weights: rules of the other parts.
        config: a configuration with ``tie_embeddings``, ``vocab_size`` and ``hidden_size``.
        name: Hub name of the output embeddings.
        tokens: Hub name of the token embeddings.
    """
    if config.tie_embeddings:
        return weights.plus(ties=[TiedAlias(name, to=tokens)])
    shape = config.vocab_size, config.hidden_size
    return weights.plus(Rule(name, "head.decoder.weight", shape))


def mlm_head_rules(
    weights: WeightMap, config: Any, names: MaskedNames, legacy: MaskedNames | None = None
) -> WeightMap:
    """Return the rules of a backbone with an ``MLMHead``.

    Args:
        weights: rules of the backbone.
        config: see ``backbone_rules``.
        names: Hub names of the head's modules.
        legacy: names of the same modules in some files, except the decoder.
    """
    width = config.hidden_size
    vocabulary = config.vocab_size
    embedding_size = getattr(config, "embedding_size", width)
    table = names.decoder + ".weight"
    decoder_bias = names.decoder + ".bias"
    bias = names.bias
    weights = replace(weights, legacy={**weights.legacy, **_legacy_names(legacy or names, names)})
    weights = weights.plus(
        module_rule(names.dense, "head.dense", embedding_size, width),
        module_rule(names.norm, "head.norm", embedding_size),
    )
    if not config.tie_embeddings:
        return weights.plus(
            Rule(table, "head.decoder.weight", (vocabulary, embedding_size)),
            Rule(decoder_bias, "head.bias", (vocabulary,)),
            ties=[TiedAlias(bias, to=decoder_bias, unused=True)] if bias else [],
        )
    ties = [TiedAlias(table, to=tokens_name(weights.prefix))]
    if bias:
        ties.append(TiedAlias(decoder_bias, to=bias))
    return weights.plus(Rule(bias or decoder_bias, "head.bias", (vocabulary,)), ties=ties)


def _legacy_names(legacy: MaskedNames, names: MaskedNames) -> dict[str, str]:
    """Return legacy tensor name -> the name in the rules, where they differ."""
    all_names = {}
    for legacy_module, module in ((legacy.dense, names.dense), (legacy.norm, names.norm)):
        for parameter in ("weight", "bias"):
            all_names[f"{legacy_module}.{parameter}"] = f"{module}.{parameter}"
    all_names[legacy.bias] = names.bias
    renamed = {}
    for legacy_name, name in all_names.items():
        if legacy_name not in ("", name):
            renamed[legacy_name] = name
    return renamed
