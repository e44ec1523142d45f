"""Pretraining objectives by name. The module of an objective is imported when it is used."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from zoo.errors import UsageError
from zoo.plugins.entry_point_objects import import_class

if TYPE_CHECKING:
    from zoo.families.base import Family
    from zoo.objectives.base import Objective

# Name -> module:class.
OBJECTIVES: Mapping[str, str] = {
    "causal-lm": "zoo.objectives.causal:CausalLanguageModelling",
    "deshuffling": "zoo.objectives.denoising:Deshuffling",
    "drop-tokens": "zoo.objectives.denoising:DropTokens",
    "mask-tokens": "zoo.objectives.denoising:MaskTokens",
    "masked-lm": "zoo.objectives.masked:MaskedLanguageModelling",
    "masked-lm+next-sentence": "zoo.objectives.sentence_pairs:NextSentence",
    "masked-lm+sentence-order": "zoo.objectives.sentence_pairs:SentenceOrder",
    "masked-lm+span-boundary": "zoo.objectives.span_boundary:SpanBoundary",
    "masked-lm+word-structure": "zoo.objectives.word_structure:WordStructure",
    "masked-lm+word-structure+sentence-structure": (
        "zoo.objectives.word_structure:StructuralPretraining"
    ),
    "prefix-lm": "zoo.objectives.prefix:PrefixLm",
    "replace-spans": "zoo.objectives.denoising:ReplaceSpans",
    "replaced-token-detection": "zoo.objectives.replaced_token_detection:ReplacedTokenDetection",
    "sentence-permutation": "zoo.objectives.infilling:SentencePermutation",
    "sequence-autoencoder": "zoo.objectives.sequence_autoencoder:SequenceAutoencoder",
    "span-corruption": "zoo.objectives.denoising:SpanCorruption",
    "text-infilling": "zoo.objectives.infilling:TextInfilling",
    "text-infilling+sentence-permutation": "zoo.objectives.infilling:InfillingAndPermutation",
}


def supports_objective(family: "Family", config: Any, name: str) -> bool:
    """Return whether a model of a family can learn an objective."""
    try:
        objective_type(family, config, name)
    except UsageError:
        return False
    return True


def objective_type(family: "Family", config: Any, name: str) -> "type[Objective]":
    """Return the class of an objective of the family, of this package or of a plugin."""
    from zoo.objectives.base import Objective

    locations = {**OBJECTIVES, **family.objectives}
    objective_class: type[Objective] = import_class("objectives", name, locations, Objective)
    reason = objective_class.unsupported_reason(family, config)
    if reason is not None:
        raise UsageError(f"{family.name} cannot learn {name}: {reason}", "see `zoo families`")
    return objective_class
