"""``zoo.evaluate``: the command ``zoo eval`` as a function."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.api import Backend, Model
from zoo.errors import UsageError, did_you_mean
from zoo.io.paths import as_paths
from zoo.plugins.tasks import evaluation_task

if TYPE_CHECKING:
    from zoo.evaluation.base import Evaluation, Result

LOADED = ("backend", "device", "dtype", "threads", "revision", "adapter")  # only for references


def evaluate(
    model: str | PathLike[str] | Model,
    *,
    task: str,
    eval: str | PathLike[str] | Sequence[str | PathLike[str]],
    backend: Backend = "auto",
    device: str | None = None,
    dtype: str | None = None,
    threads: int | None = None,
    revision: str | None = None,
    offline: bool = False,
    adapter: str | PathLike[str] | Sequence[str | PathLike[str]] = (),
    on_prediction: Callable[[Mapping[str, Any]], None] | None = None,
    **options: Any,
) -> "Result":
    """Evaluate a model, and return the numbers of ``zoo eval``; nothing is recorded.

    Args:
        model: a model, or its reference as for ``zoo.load``.
        task: name of the evaluation, such as ``text-classification``; ``zoo eval --help`` lists
            them.
        eval: files, directories or patterns of the data.
        backend: see ``zoo.load``; ``auto`` is the fastest that ``zoo bench`` measured here.
        device: see ``zoo.load``.
        dtype: see ``zoo.load``.
        threads: see ``zoo.load``.
        revision: see ``zoo.load``.
        offline: see ``zoo.load``.
        adapter: see ``zoo.load``.
        on_prediction: called with each sample and its prediction, in the order of the samples: the
            rows of ``zoo eval --predictions``.
        **options: options of ``zoo eval`` for the task, with underscores: ``text``, ``pair``,
            ``label``, ``limit``, ``seed``, ...

    Returns:
        ``metrics``, name -> number, and ``details``, such as intervals and scores of each label.

    Raises:
        UsageError: the task or an option is unknown, the model does not support it, or a file does
            not suit it; or a loaded model gets what loads a reference, such as ``backend``.
        SourceError: a model or file is missing.
        VerificationError: a file is damaged.
        NonFiniteError: an output is NaN or infinite.

    Example:
        >>> result = zoo.evaluate(  # doctest: +SKIP
        ...     "runs/sentiment/model", task="text-classification", eval="test.tsv", text="sentence"
        ... )
        >>> result.metrics["accuracy"], result.details["intervals"]["accuracy"]  # doctest: +SKIP
        (0.913, (0.894, 0.931))
    """
    kind: type[Evaluation] = evaluation_task(task)
    files = [Path(path) for path in as_paths(eval)]
    _require_known(kind, options)
    options = {**kind.split_names(files, options)[1], **options}
    compute: dict[str, Any] = {"device": device, "dtype": dtype, "threads": threads}
    if isinstance(model, Model):
        values = {
            **compute,
            "revision": revision,
            "backend": None if backend == "auto" else backend,
            "adapter": adapter or None,
        }
        if given_twice := [name for name in LOADED if values[name] is not None]:
            raise UsageError(f"a loaded model already has its {given_twice[0]}", "leave it out")
    else:
        from zoo.conversion.cache import resolve_adapted
        from zoo.exporting.session import open_session

        checkpoint = resolve_adapted(
            fspath(model), as_paths(adapter), revision=revision, offline=offline
        )
        kind.require_supported(checkpoint)  # before loading the weights
        compute = {**compute, "backend": backend}
        session = open_session(checkpoint, **compute, fastest=True, needs=kind.needs)
        model = Model(checkpoint, session)
    evaluation = kind(model.checkpoint, model.session, **options)
    return evaluation.evaluate(files, on_prediction=on_prediction)


def _require_known(kind: "type[Evaluation]", options: dict[str, Any]) -> None:
    """Check that an evaluation has options of these names."""
    known = [
        parameter.name
        for base in kind.__mro__
        if base is not object and "__init__" in vars(base)
        for parameter in inspect.signature(vars(base)["__init__"]).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
    ]
    for name in options:
        if name not in known:
            raise UsageError(
                f"{kind.name} has no option {name!r}",
                did_you_mean(name, known) or f"it has {', '.join(sorted(set(known)))}",
            )
