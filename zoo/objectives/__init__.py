"""What models learn from text. Each objective is in a module that is imported when it is used."""

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from zoo.errors import UsageError, nearest

if TYPE_CHECKING:
    from zoo.family import Family
    from zoo.objectives.base import Objective

# name -> where its class is
OBJECTIVES: Mapping[str, str] = {
    "causal-lm": "zoo.objectives.causal:CausalLanguageModelling",
    "deshuffling": "zoo.objectives.corruption:Deshuffling",
    "drop-tokens": "zoo.objectives.corruption:DropTokens",
    "mask-tokens": "zoo.objectives.corruption:MaskTokens",
    "masked-lm": "zoo.objectives.masked:MaskedLanguageModelling",
    "masked-lm+next-sentence": "zoo.objectives.pairs:NextSentence",
    "masked-lm+sentence-order": "zoo.objectives.pairs:SentenceOrder",
    "masked-lm+span-boundary": "zoo.objectives.span_boundary:SpanBoundary",
    "prefix-lm": "zoo.objectives.prefix:PrefixLm",
    "replace-spans": "zoo.objectives.corruption:ReplaceSpans",
    "replaced-token-detection": "zoo.objectives.replaced:ReplacedTokenDetection",
    "span-corruption": "zoo.objectives.corruption:SpanCorruption",
}


def objective_type(family: "Family", config: Any, name: str) -> "type[Objective]":
    """Return the class of an objective: the family's own, or one of those here.

    Raises:
        UsageError: nothing has that name (the nearest are listed), or it does not suit the model.
    """
    known = {**OBJECTIVES, **family.objectives}
    if name not in known:
        raise UsageError(
            f"no objective is called {name!r}",
            nearest(name, list(known)) or f"there are {', '.join(sorted(known))}",
        )
    module, _, attribute = known[name].partition(":")
    found: type[Objective] = getattr(importlib.import_module(module), attribute)
    reason = found.unfit(family, config)
    if reason is not None:
        raise UsageError(f"{family.name} cannot learn {name}: {reason}", "see `zoo families`")
    return found
