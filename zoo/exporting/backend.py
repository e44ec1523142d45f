"""Sessions in the runtimes of export targets; weights are exported first."""

from typing import TYPE_CHECKING
from warnings import warn

from zoo.checkpoint import MANIFEST
from zoo.errors import UsageError, VerificationError, did_you_mean
from zoo.exporting.targets import ONNX, find_target, target_names
from zoo.exporting.targets.base import ExportTarget
from zoo.exporting.targets.record import read_target_info
from zoo.inference import BACKENDS
from zoo.inference.exported import check_file
from zoo.inference.session import BackendWarning
from zoo.plugins.tasks import find_tasks, load_part

if TYPE_CHECKING:
    from collections.abc import Collection

    from zoo.checkpoint import Checkpoint
    from zoo.inference import Need, Session


def open_target(
    checkpoint: "Checkpoint",
    backend: str,
    device: str | None,
    dtype: str | None,
    threads: int | None,
    needs: "Collection[Need]" = (),
) -> "Session":
    """Open an export in its runtime, or export weights to a runtime on first use."""
    export_target = checkpoint.export_target
    if export_target is None:
        target = _target_of_weights(checkpoint, backend)
        dtype = dtype and target.check_precision(dtype)  # one export for all spellings
        target.require_held(checkpoint)
    else:
        target = find_target(export_target)
        if backend not in ("auto", export_target):
            raise UsageError(
                f"{checkpoint.name} holds a model for {target.title}, not for {backend}",
                f"use --backend {export_target}, or the model that it was exported from",
            )
    _check_cpu(target, device)
    _require_runnable(target, checkpoint, needs)
    _require_runtime(target)
    if export_target is None:
        from zoo.exporting.cache import cached_export

        checkpoint = cached_export(checkpoint, target, dtype)
    info = read_target_info(checkpoint)
    if info.dtype not in target.precisions:
        raise VerificationError(
            f"{checkpoint.path / MANIFEST}: export: {target.title} has no precision {info.dtype!r}",
            "export it again",
        )
    if dtype is not None and target.check_precision(dtype) != info.dtype:
        raise UsageError(
            f"{checkpoint.name} holds a model in {info.dtype}, not {dtype}",
            "leave --dtype out, or export it again",
        )
    if not info.validated:
        warn(
            f"{checkpoint.name} was not compared with torch when it was exported: its outputs may "
            "be wrong",
            BackendWarning,
            stacklevel=4,
        )
    for name in info.files:
        check_file(checkpoint, name)
    session = target.open(checkpoint, checkpoint.path, info.dtype, threads)
    session.tolerance = target.precisions[info.dtype].tolerance
    file_records = checkpoint.manifest.files
    session.stored_bytes = sum(file_records[name].bytes for name in info.files)
    return session


def _target_of_weights(checkpoint: "Checkpoint", backend: str) -> ExportTarget:
    """Return the target that is called like a backend, and runs the weights that it is given."""
    names = [*BACKENDS, *(name for name in target_names() if name != ONNX)]
    if backend not in names:
        hint = did_you_mean(backend, names) or f"there are {', '.join(names)}"
        raise UsageError(f"no backend is called {backend!r}", hint)
    target = find_target(backend)
    if not target.runs_weights:
        raise UsageError(
            f"--to {backend} makes another model, and is not a backend of {checkpoint.name}",
            f"`zoo export {checkpoint.name} --to {backend} -o DIR` writes it, and DIR runs",
        )
    return target


def _check_cpu(target: ExportTarget, device: str | None) -> None:
    if device not in (None, "cpu"):
        raise UsageError(
            f"{target.title} runs on the CPU here, not on {device}", "leave --device out"
        )


def tasks_of(checkpoint: "Checkpoint") -> list[str]:
    """Return the tasks of an export that its runtime runs."""
    export_target = checkpoint.export_target
    if export_target in (None, ONNX) or export_target not in target_names():
        return list(checkpoint.tasks)
    target = find_target(export_target)
    tasks = []
    for name in checkpoint.tasks:
        task_class = load_part(find_tasks(name, "predict")[0], "predict")
        if _unable(target, checkpoint, task_class.needs(checkpoint, {})) is None:
            tasks.append(name)
    return tasks


def _require_runnable(
    target: ExportTarget, checkpoint: "Checkpoint", needs: "Collection[Need]"
) -> None:
    """Check that the runtime does what a task needs of a model that the target holds."""
    problem = _unable(target, checkpoint, needs)
    if problem is not None:
        raise UsageError(
            f"{target.title} cannot run this with {checkpoint.name}: {problem}",
            "give the model that it was exported from"
            if checkpoint.is_export
            else "leave --backend out",
        )


def _unable(
    target: ExportTarget, checkpoint: "Checkpoint", needs: "Collection[Need]"
) -> str | None:
    """Return why the runtime does not do what a task needs; ``None`` if it does."""
    if "generation" in needs and not target.generates:
        return "it generates no text here"
    if "tokens" in needs and target.pools:
        return "it returns no vectors of tokens"
    if "layers" in needs:
        return "it exposes no single layers"
    return target.model_problem(checkpoint.family, checkpoint.config, checkpoint.head_name)


def _require_runtime(target: ExportTarget) -> None:
    if problem := target.runtime_problem():
        raise UsageError(f"{target.title} is not available: {problem}", target.runtime_install())
