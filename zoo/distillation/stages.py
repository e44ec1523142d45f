"""Runs of several stages: a directory with a run for each.

The student of a stage is the final model of the stage before, or is trained with it as its teacher.
``stages.json`` lists them, and ``model`` is that of the last one.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo.distillation.config.build import (
    NAME,
    STUDENT,
    is_resolved,
    merge_settings,
    requested_recipe,
    resolve_teacher,
)
from zoo.distillation.config.student import DEPTHS
from zoo.distillation.targets import require_generation, targets_data, write_targets
from zoo.errors import Interrupted, UsageError
from zoo.families.distillation import DistillationRecipe
from zoo.io.json import JsonStruct, encode_json, read_json_record
from zoo.io.output.atomic import atomic_directory
from zoo.io.output.staging import discard_unused, remove_stale_staging
from zoo.overrides import override
from zoo.plugins import all_families
from zoo.training.config.distill import DistillTaskConfig
from zoo.training.config.kinds import RunConfig
from zoo.training.config.overrides import ConfigDict, deep_merge
from zoo.training.config.schema import errors_naming
from zoo.training.distributed.context import DistContext
from zoo.training.entrypoints import RunKind, free_path
from zoo.training.state.final_model import is_finished
from zoo.training.state.location import resume_command, where_it_began
from zoo.training.state.run_manifest import MANIFEST

STAGES, MODEL = "stages.json", "model"
OF_THE_FIRST = (
    STUDENT,
    "size",
    "tokenizer",
    "vocab_size",
)  # settings of the first stage: later ones begin with a model


class StagesRecord(JsonStruct):
    """``stages.json``: the stages of a directory."""

    stages: list[str]  # names of the stages in order, and of their directories
    settings: dict[str, Any]  # settings of the run, of which each stage has its own
    recipe: DistillationRecipe
    working_directory: str = ""  # see ``RunManifest``


class StagedKind(RunKind):
    """A kind of run whose recipes may have stages."""

    @override
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
        """Of several stages, the directory is that of the last run."""
        with errors_naming(file):
            record = self._record(merge_settings(values, overrides), offline=offline)
        if record is None:
            return super().train(values, overrides, output, dist, offline=offline, file=file)
        with errors_naming(file):
            config, *_ = [
                self.build_config(stage_settings(None, record, number), {}, offline=offline)
                for number in range(len(record.stages))
            ]
            if record.recipe.targets is not None:
                assert isinstance(config, DistillTaskConfig), "the recipe is for labelled data"
                require_generation(config)
        path = Path(dist.broadcast(str(output or free_path(config))))
        if path.exists():
            command = resume_command("distill", path)
            raise UsageError(f"{path} exists", f"`{command}`, or another -o")
        dist.barrier()  # all processes have chosen their path before it is created
        if dist.is_main_process:
            with atomic_directory(path) as staging:
                (staging / STAGES).write_bytes(encode_json(record))
        dist.barrier()
        try:
            return self._train_stages(path, record, dist, offline=offline)
        finally:
            if dist.is_main_process and not any(entry.is_dir() for entry in path.iterdir()):
                discard_unused(path, STAGES)  # nothing has begun

    def _record(self, settings: ConfigDict, *, offline: bool) -> StagesRecord | None:
        """Return the stages of a run; ``None`` for a single run, or a single stage."""
        named = (settings.get("distillation") or {}).get("stage") is not None
        if named or is_resolved(settings):
            return None
        recipe = requested_recipe(settings, offline=offline)
        if not recipe.stages:
            return None
        return StagesRecord(
            stages=list(recipe.stages),
            settings=settings,
            recipe=recipe,
            working_directory=str(Path.cwd()),
        )

    @override
    def plan(
        self, values: Mapping[str, Any], overrides: Mapping[str, Any], *, offline: bool
    ) -> tuple[RunConfig, dict[str, Any]]:
        """Of several stages, the configuration is that of the first one."""
        record = self._record(merge_settings(values, overrides), offline=offline)
        if record is None:
            return super().plan(values, overrides, offline=offline)
        config = self.build_config(stage_settings(None, record, 0), {}, offline=offline)
        return config, record.settings

    @override
    def has_begun(self, path: Path) -> bool:
        return (path / STAGES).is_file() or super().has_begun(path)

    @override
    def last_run(self, path: Path) -> Path:
        """The run of the last stage."""
        if not (path / STAGES).is_file():
            return path
        return path / read_json_record(path / STAGES, StagesRecord).stages[-1]

    @override
    def continue_from(
        self,
        parent: Path,
        values: Mapping[str, Any],
        overrides: Mapping[str, Any],
        output: Path | None,
        dist: DistContext,
        **options: Any,
    ) -> tuple[Path, Path]:
        """A single stage can be continued."""
        if (parent / STAGES).is_file():
            raise UsageError(
                f"{parent} has several stages", f"--continue-from {self.last_run(parent)}"
            )
        if STUDENT in {**values, **overrides}:
            raise UsageError(f"{parent} is continued with its own student", "leave out --student")
        return super().continue_from(parent, values, overrides, output, dist, **options)

    @override
    def resume(
        self,
        path: Path,
        values: Mapping[str, Any],
        overrides: Mapping[str, Any],
        dist: DistContext,
        *,
        offline: bool = False,
    ) -> tuple[Path, Path]:
        """Of several stages, the first unfinished one is resumed."""
        if not (path / STAGES).is_file():
            if STUDENT in {**values, **overrides}:
                raise UsageError(f"{path} resumes with its own student", "leave out --student")
            return super().resume(path, values, overrides, dist, offline=offline)
        if values or overrides:
            raise UsageError(f"{path} resumes with its own settings", "give --resume alone")
        record = read_json_record(path / STAGES, StagesRecord)
        with where_it_began(path, record.working_directory) as place:
            recipe = requested_recipe(record.settings, offline=offline)
            if recipe != record.recipe:
                raise UsageError(
                    f"the recipe {recipe.name} is not the one that {path} began with",
                    "put it back as it was, or begin another run",
                )
            if dist.is_main_process:  # of a process that was killed, also in finished stages
                for folder in (
                    place.absolute().parent,
                    place,
                    *(place / name for name in record.stages),
                ):
                    remove_stale_staging(folder)
            run, _ = self._train_stages(place, record, dist, offline=offline)
        return path / run.name, path / MODEL

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
                elif not is_finished(run):
                    moved = models_before(path, record, number)
                    super().resume(run, {}, moved, dist, offline=offline)
            except Interrupted as error:
                hint = f"{resume_command('distill', path)} resumes it"
                raise Interrupted(error.what, hint) from error
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
    """Return the settings of a stage."""
    name, settings = record.stages[number], record.settings
    stage = record.recipe.stages[name]
    if stage.student_depth is not None:
        settings = without_depth(settings, name)
    if path is not None and number:
        before = str(path / record.stages[number - 1] / MODEL)
        if stage.begins_with == "student":
            settings = {key: value for key, value in settings.items() if key not in OF_THE_FIRST}
            settings[STUDENT] = {NAME: before}
            settings = deep_merge(settings, {"distillation": {"init_layers": None}})
        else:
            settings = deep_merge(settings, {"distillation": {"teachers": [before]}})
    if path is not None and record.recipe.targets is not None:
        settings = {**settings, "data": targets_data(path)}
    return deep_merge(settings, {"distillation": {"stage": name}})


def models_before(path: Path, record: StagesRecord, number: int) -> ConfigDict:
    """Return the settings of a stage that name what is in the directory, which may have moved."""
    own: ConfigDict = {}
    if number and record.recipe.stages[record.stages[number]].begins_with != "student":
        own = {"distillation": {"teachers": [str(path / record.stages[number - 1] / MODEL)]}}
    if record.recipe.targets is not None:
        files = targets_data(path)
        own["data"] = {split: files[split] for split in ("train", "eval")}
    return own


def without_depth(settings: ConfigDict, stage: str) -> ConfigDict:
    """Return settings whose student has the number of layers that a stage gives it."""
    student = settings[STUDENT]
    fields = dict(student) if isinstance(student, Mapping) else {NAME: student}
    if fields.get(NAME) not in all_families():
        raise UsageError(
            f"the stage {stage} has a student with other layers than {fields.get(NAME)}",
            "name a family with --student, and its width with --set student.hidden_size=N",
        )
    return {**settings, STUDENT: {k: v for k, v in fields.items() if k not in DEPTHS}}
