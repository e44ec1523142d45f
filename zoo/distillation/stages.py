"""Runs of several stages: each is a run of its own, in a directory of the whole.

A stage begins with the model of the stage before. ``stages.json`` lists them, and ``model`` is that
of the last one.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo.distillation.config import requested_recipe, resolve_teacher
from zoo.distillation.targets import require_generation, targets_data, write_targets
from zoo.errors import Interrupted, UsageError
from zoo.families.distillation import DistillationRecipe
from zoo.io.json import JsonStruct, encode_json, read_json_record
from zoo.io.output.atomic import atomic_directory
from zoo.training.config.distill import DistillTaskConfig
from zoo.training.config.overrides import ConfigDict, deep_merge
from zoo.training.config.schema import errors_naming
from zoo.training.distributed.context import DistContext
from zoo.training.entrypoints import RunKind, free_path
from zoo.training.state.run_manifest import MANIFEST

STAGES, MODEL = "stages.json", "model"
OF_THE_FIRST = ("student", "size", "tokenizer")  # later stages begin with a model


class StagesRecord(JsonStruct):
    """``stages.json``: the stages of a directory.

    Attributes:
        stages: names of the stages in order, and of their directories.
        settings: settings of the run, of which each stage has its own.
        recipe: the recipe.
    """

    stages: list[str]
    settings: dict[str, Any]
    recipe: DistillationRecipe


class StagedKind(RunKind):
    """A kind of run whose recipes may have stages."""

    def train(
        self,
        values: Mapping[str, Any],
        overrides: Mapping[str, Any],
        output: Path | None,
        dist: DistContext,
        *,
        offline: bool = False,
        file: Path | None = None,
    ) -> tuple[Path, Path]:
        """See ``RunKind``; of several stages, the directory is that of the last run."""
        settings = deep_merge(values, overrides)
        with errors_naming(file):
            recipe = requested_recipe(settings, offline=offline)
        if not recipe.stages or (settings.get("distillation") or {}).get("stage") is not None:
            return super().train(values, overrides, output, dist, offline=offline, file=file)
        record = StagesRecord(stages=list(recipe.stages), settings=settings, recipe=recipe)
        with errors_naming(file):
            config = self.build_config(stage_settings(None, record, 0), {}, offline=offline)
            if recipe.targets is not None:
                assert isinstance(config, DistillTaskConfig), "the recipe is for labelled data"
                require_generation(config)
        path = Path(dist.broadcast(str(output or free_path(config))))
        if path.exists():
            raise UsageError(f"{path} exists", f"`zoo distill --resume {path}`, or another -o")
        dist.barrier()  # all processes have chosen their path before it is created
        if dist.is_main_process:
            with atomic_directory(path) as staging:
                (staging / STAGES).write_bytes(encode_json(record))
        dist.barrier()
        return self._train_stages(path, record, dist, offline=offline)

    def resume(
        self,
        path: Path,
        values: Mapping[str, Any],
        overrides: Mapping[str, Any],
        dist: DistContext,
        *,
        offline: bool = False,
    ) -> tuple[Path, Path]:
        """See ``RunKind``; of several stages, the first unfinished one is resumed."""
        if not (path / STAGES).is_file():
            return super().resume(path, values, overrides, dist, offline=offline)
        if values or overrides:
            raise UsageError(f"{path} goes on with its own settings", "give --resume alone")
        record = read_json_record(path / STAGES, StagesRecord)
        recipe = requested_recipe(record.settings, offline=offline)
        if recipe != record.recipe:
            raise UsageError(
                f"the recipe {recipe.name} is not the one that {path} began with",
                "put it back as it was, or begin another run",
            )
        return self._train_stages(path, record, dist, offline=offline)

    def _train_stages(
        self, path: Path, record: StagesRecord, dist: DistContext, *, offline: bool
    ) -> tuple[Path, Path]:
        """Train or resume the stages that are not finished."""
        run = path
        for number, name in enumerate(record.stages):
            run = path / name
            try:
                if not (run / MANIFEST).is_file():
                    self._write_targets(path, record, dist, offline=offline)
                    settings = stage_settings(path, record, number)
                    super().train(settings, {}, run, dist, offline=offline)
                elif not (run / MODEL).is_dir():
                    super().resume(run, {}, {}, dist, offline=offline)
            except Interrupted as error:
                raise Interrupted(error.what, f"zoo distill --resume {path} goes on") from error
            dist.barrier()
        if dist.is_main_process and not (path / MODEL).exists():
            os.symlink(Path(run.name, MODEL), path / MODEL)
        return run, path / MODEL

    def _write_targets(
        self, path: Path, record: StagesRecord, dist: DistContext, *, offline: bool
    ) -> None:
        """Let the teacher generate targets, if the recipe has such, in the main process."""
        if record.recipe.targets is None:
            return
        if dist.is_main_process:
            config = self.build_config(stage_settings(None, record, 0), {}, offline=offline)
            assert isinstance(config, DistillTaskConfig), "the recipe is for labelled data"
            teacher = resolve_teacher(record.settings, offline=offline)
            reference = config.distillation.teachers[0]
            write_targets(
                path, config, (reference, teacher), record.recipe.targets, str(dist.device)
            )
        dist.barrier()


def stage_settings(path: Path | None, record: StagesRecord, number: int) -> ConfigDict:
    """Return the settings of a stage.

    Args:
        path: directory of the stages; ``None`` for the first one.
        record: the stages.
        number: number of the stage.
    """
    name, settings = record.stages[number], record.settings
    if path is not None and number:
        before = path / record.stages[number - 1] / MODEL
        settings = {key: value for key, value in settings.items() if key not in OF_THE_FIRST}
        settings["student"] = {"name": str(before)}
    if path is not None and record.recipe.targets is not None:
        settings = {**settings, "data": targets_data(path)}
    return deep_merge(settings, {"distillation": {"stage": name}})
