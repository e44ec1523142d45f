"""Settings of the sources of a run on text, and checks of them."""

import math
import re
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from zoo.data.shares import require_weights
from zoo.errors import UsageError, did_you_mean
from zoo.io.limits import MAX_RUN_NUMBER

Mixing: TypeAlias = Literal["tokens", "epochs", "temperature"]
MIXING_SETTINGS = ("mixing", "temperature", "mixing_limit", "curriculum")
MAX_TEMPERATURE = 1000.0
SOURCE_NAME = re.compile(r"[A-Za-z0-9][\w+-]*")


class SourceConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A source of text of a run."""

    # Files, directories, patterns, or one prebuilt corpus.
    paths: tuple[str, ...] = ()
    eval_paths: tuple[str, ...] = ()  # Held-out files; empty to hold out a part of ``paths``.
    # Share of the run's tokens, for ``mixing: tokens``; those of all sources add up to 1. Without
    # weights, shares are proportional to the sizes of the sources.
    weight: float | msgspec.UnsetType = msgspec.UNSET
    # Passes over the source in an epoch of the run, for ``mixing: epochs``; by default 1.
    epochs: float | msgspec.UnsetType = msgspec.UNSET
    # Whether ``paths`` are read while training on them, without a corpus; by default
    # ``data.streaming``.
    streaming: bool | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        for path in (*self.paths, *self.eval_paths):
            if "\0" in path:
                raise ValueError(f"{path!r} is not a path: it contains a NUL")
        if self.epochs is not msgspec.UNSET and not 0 <= self.epochs < math.inf:
            raise ValueError(f"epochs is {self.epochs}, not 0 or more")


class CurriculumStage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Other weights from a step on."""

    step: int  # First step with these weights.
    weights: dict[str, float]  # Source -> share of the tokens; all sources add up to 1.

    def __post_init__(self) -> None:
        if not 1 <= self.step <= MAX_RUN_NUMBER:
            raise ValueError(f"step is {self.step}, and 1 to {MAX_RUN_NUMBER:,} is accepted")


def check_sources(data: Any) -> None:
    """Check that the settings of sources in a ``DataConfig`` go together.

    Raises:
        UsageError: they do not.
    """
    sources = data.sources
    if sources is msgspec.UNSET or not sources:
        for setting in MIXING_SETTINGS:
            if getattr(data, setting) is not msgspec.UNSET:
                raise UsageError(
                    f"data.{setting} mixes sources, and there are none",
                    "name them: --train NAME=PATH, or data.sources",
                )
        return
    if data.paths or data.eval_paths:
        unnamed = (*data.paths, *data.eval_paths)[0]
        raise UsageError(
            f"{unnamed} has no name, and data.sources names {', '.join(sources)}",
            "give each path a name: --train NAME=PATH, --eval NAME=PATH",
        )
    for name, source in sources.items():
        if SOURCE_NAME.fullmatch(name) is None:
            raise UsageError(
                f"data.sources: {name!r} is not the name of a source",
                "take letters, digits, - and _",
            )
        if not source.paths:
            names_with_text = [other for other in sources if sources[other].paths]
            raise UsageError(
                f"the source {name} has no training text",
                did_you_mean(name, names_with_text) or f"--train {name}=PATH",
            )
    _check_mixing(data, sources)
    _check_streams(data, sources)
    previous_step = 0
    for stage in data.curriculum or ():
        subject = f"data.curriculum, step {stage.step:,}"
        if stage.step <= previous_step:
            raise UsageError(f"{subject} comes after step {previous_step:,}", "put it before")
        previous_step = stage.step
        require_weights(stage.weights, sources, subject)


def _check_mixing(data: Any, sources: Mapping[str, SourceConfig]) -> None:
    """Check that the settings of a way of mixing are those of the way that is set."""
    mixing = data.mixing or "tokens"
    for name, source in sources.items():
        if mixing != "tokens" and source.weight is not msgspec.UNSET:
            raise UsageError(
                f"{name} has a weight, and data.mixing is {mixing}",
                "weights go with data.mixing=tokens",
            )
        if mixing != "epochs" and source.epochs is not msgspec.UNSET:
            raise UsageError(
                f"data.sources.{name}.epochs is set, and data.mixing is {mixing}",
                "--set data.mixing=epochs",
            )
    if mixing != "temperature":
        for setting in ("temperature", "mixing_limit"):
            if getattr(data, setting) is not msgspec.UNSET:
                raise UsageError(
                    f"data.{setting} is set, and data.mixing is {mixing}",
                    "--set data.mixing=temperature",
                )
    weights = given_weights(sources)
    if weights:
        require_weights(weights, sources, "data.sources")
    epochs = [source.epochs for source in sources.values()]
    if mixing == "epochs" and not any(value is msgspec.UNSET or value for value in epochs):
        raise UsageError("no source has a pass over it: data.sources.NAME.epochs are 0", "set one")


def _check_streams(data: Any, sources: Mapping[str, SourceConfig]) -> None:
    """Check that sources that are streams have shares, and held-out documents."""
    for name in data.streamed_sources():
        if not given_weights(sources):
            raise UsageError(
                f"the source {name} is a stream, whose number of tokens is not known",
                f"give each source its share: --weight {name}=SHARE",
            )
        if not sources[name].eval_paths and not data.stream.eval_documents:
            raise UsageError(
                f"the source {name} is a stream, and has no text to evaluate on",
                f"--eval {name}=PATH, or --set data.stream.eval_documents=N",
            )


def given_weights(sources: Mapping[str, SourceConfig]) -> dict[str, float]:
    """Return the weights of the sources that have one."""
    weights = {}
    for name, source in sources.items():
        if source.weight is not msgspec.UNSET:
            weights[name] = source.weight
    return weights
