"""``zoo pretrain``."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zoo.cli.options import common_options
from zoo.cli.output import result
from zoo.cli.training.options import (
    config_argument,
    config_file,
    config_values,
    overrides_from_options,
    run_options,
)

if TYPE_CHECKING:
    from zoo.training.distributed.context import DistContext


@click.command(
    epilog="""\b
Examples, with one of `zoo families` as FAMILY:
  zoo pretrain FAMILY                          tiny, on the corpus of the package
  zoo pretrain FAMILY --size small --data books/ -o runs/books
  zoo pretrain FAMILY --objective masked-lm --set optimizer.learning_rate=0.003
  zoo pretrain FAMILY --init-from REF --data articles/ --max-steps 10000
  zoo pretrain settings.yaml --max-steps 10000
  zoo pretrain --resume runs/books
  zoo pretrain FAMILY --seeds 3 -o runs/three   compare them by `zoo compare runs/three`
  torchrun --nproc-per-node 8 -m zoo pretrain FAMILY --size base --data corpus/ -o runs/base

\b
Every setting has a default from the family's paper; RUN/config.yaml lists all of them. Nested
settings are set with dots: --set optimizer.max_grad_norm=0.5 --set config.dropout=0."""
)
@config_argument
@run_options
@click.option(
    "--seeds",
    type=click.IntRange(1),
    metavar="N",
    help="Train N runs, with seeds from --seed on.",
)
@click.option(
    "--resume",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="RUN",
    help="Directory of a run to resume.",
)
@click.option(
    "--device", metavar="D", help="Device, such as cpu or cuda; by default CUDA if available."
)
@click.option("--fsdp", is_flag=True, default=None, help="Shard weights and optimizer state.")
@click.option("--offline", is_flag=True, help="Make no network connection.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Directory of the run.")
@common_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    family_or_file: str | None,
    resume: Path | None,
    seeds: int | None,
    output: Path | None,
    device: str | None,
    offline: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Pretrain a model on raw text; an interrupted run resumes bit for bit.

    A run is a directory with configuration, logs, checkpoints, a report, and in model/ the final
    model for the other commands. Ctrl-C saves a checkpoint and stops; --resume continues.
    """
    if family_or_file is None and resume is None:
        raise click.UsageError("name a family to pretrain, or give --resume RUN", ctx)
    from zoo.errors import Interrupted
    from zoo.training.distributed.context import DistContext

    dist = DistContext.initialize(device)
    try:
        paths = _train(ctx, family_or_file, resume, seeds, output, dist, offline, options)
    except RuntimeError as error:
        if not dist.is_peer_failure(error):
            raise
        raise Interrupted("another process of the run ended", "its own message says why") from error
    finally:
        dist.destroy()
    if dist.is_main_process:
        result(paths, [f"{name}: {path}" for name, path in paths.items()], as_json=as_json)


def _train(
    ctx: click.Context,
    family_or_file: str | None,
    resume: Path | None,
    seeds: int | None,
    output: Path | None,
    dist: "DistContext",
    offline: bool,
    options: dict[str, Any],
) -> dict[str, str]:
    """Start or resume a run, or several, and return their paths."""
    from zoo.training import entrypoints
    from zoo.training.seeds import is_seed_directory, resume_seeds, train_seeds

    settings, changes = config_values(family_or_file), overrides_from_options(ctx, options)
    if resume is not None and is_seed_directory(resume):
        if seeds is not None or settings or changes:
            raise click.UsageError(f"--resume {resume} goes on with the settings of its runs", ctx)
        resume_seeds(resume, dist, offline=offline)
        return {"runs": str(resume)}
    if resume is not None:
        model = entrypoints.resume(resume, settings, changes, dist, offline=offline)
        return _paths(resume, model)
    new: dict[str, Any] = {"offline": offline, "file": config_file(family_or_file)}
    if seeds is not None:
        runs = train_seeds(settings, changes, output, dist, seeds, **new)
        return {"runs": str(runs[0].parent)}
    return _paths(*entrypoints.train(settings, changes, output, dist, **new))


def _paths(run: Path, model: Path) -> dict[str, str]:
    return {"run": str(run), "model": str(model), "report": str(run / "report.html")}
