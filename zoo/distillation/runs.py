"""Runs of distillation; a recipe with several stages has one directory with a run for each."""

import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from zoo.distillation.config.build import (
    NAME,
    STUDENT,
    distill_config,
    is_resolved,
    merge_settings,
    requested_recipe,
    resolve_teacher,
)
from zoo.distillation.config.student import DEPTHS
from zoo.distillation.setup import distill_setup
from zoo.distillation.targets import require_generation, targets_data, write_targets
from zoo.errors import Interrupted, UsageError
from zoo.families.distillation import DistillationRecipe
from zoo.io.json import JsonStruct, encode_json, read_json_record
from zoo.io.output.atomic import atomic_directory
from zoo.io.output.staging import discard_unused, remove_stale_staging
from zoo.overrides import override
from zoo.plugins import all_families
from zoo.training.config.distill import DistillTaskConfig
from zoo.training.config.overrides import ConfigDict, deep_merge
from zoo.training.config.run_config import RunConfig
from zoo.training.config.schema import prefix_errors
from zoo.training.run import Run, RunPaths
from zoo.training.state.directory import set_aside
from zoo.training.state.final_model import is_finished, was_stopped
from zoo.training.state.location import resume_command, where_it_began
from zoo.training.state.run_manifest import MANIFEST

LOG = logging.getLogger("zoo")
STAGES, MODEL = "stages.json", "model"
# settings that only the first stage reads: later ones start from a model
FIRST_STAGE_ONLY = (STUDENT, "size", "tokenizer", "vocab_size")


class StagesRecord(JsonStruct):
    """``stages.json``: the stages of a run."""

    stages: list[str]  # in order; also the names of their directories
    settings: dict[str, Any]  # of the run; the settings of each stage follow from them
    recipe: DistillationRecipe
    working_directory: str = ""  # see ``RunManifest``


class DistillRun(Run):
    """A run of distillation, or one for each stage of the recipe."""

    # A stage continues with the final model of the stage before as its student, or learns from it
    # as its teacher. ``stages.json`` lists the stages; ``model`` links to the model of the last
    # stage.

    command: ClassVar[str] = "distill"
    build_config = staticmethod(distill_config)
    build_setup = staticmethod(distill_setup)

    @override
    def plan(self) -> tuple[RunConfig, ConfigDict]:
        record = self._stages()
        if record is None:
            return super().plan()
        return self._stage_config(record, 0), record.settings

    @override
    def has_begun(self, path: Path) -> bool:
        return (path / STAGES).is_file() or super().has_begun(path)

    @override
    def start(self) -> RunPaths:
        """Train all stages; return the directory of the last stage's run."""
        with prefix_errors(self.file):
            record = self._stages()
        if record is None:
            return super().start()
        with prefix_errors(self.file):
            config, *_ = [self._stage_config(record, n) for n in range(len(record.stages))]
            if record.recipe.targets is not None:
                assert isinstance(config, DistillTaskConfig), "the recipe is for labelled data"
                require_generation(config)
        path = self.new_path(config)
        if self.dist.is_main_process:
            if self.force:
                set_aside(path)
            with atomic_directory(path) as staging:
                (staging / STAGES).write_bytes(encode_json(record))
        self.dist.barrier()
        try:
            return self._train_stages(path, record)
        finally:
            if self.dist.is_main_process and not any(entry.is_dir() for entry in path.iterdir()):
                discard_unused(path, STAGES)  # no stage has begun

    @override
    def resume(self, path: Path) -> RunPaths:
        """Resume a run; of several stages, start with the first unfinished one."""
        if not (path / STAGES).is_file():
            if STUDENT in self.given:
                raise UsageError(f"{path} resumes with its own student", "leave out --student")
            return super().resume(path)
        if self.given:
            raise UsageError(f"{path} resumes with its own settings", "only give --resume")
        record = read_json_record(path / STAGES, StagesRecord)
        with where_it_began(path, record.working_directory) as place:
            recipe = requested_recipe(record.settings, offline=self.offline)
            if recipe != record.recipe:
                raise UsageError(
                    f"the recipe {recipe.name} is not the one that {path} began with",
                    "put it back as it was, or begin another run",
                )
            if self.dist.is_main_process:  # left by a killed process, possibly in finished stages
                stages = (place / name for name in record.stages)
                for folder in (place.absolute().parent, place, *stages):
                    remove_stale_staging(folder)
            last = self._train_stages(place, record)
        return RunPaths(path / last.run.name, path / last.model.relative_to(place))

    @override
    def continue_from(self, parent: Path, *, reset_optimizer: bool = False) -> RunPaths:
        if (parent / STAGES).is_file():
            stage = last_stage(parent)
            raise UsageError(f"{parent} has several stages", f"--continue-from {stage}")
        if STUDENT in self.given:
            raise UsageError(f"{parent} continues with its own student", "leave out --student")
        return super().continue_from(parent, reset_optimizer=reset_optimizer)

    def _stages(self) -> StagesRecord | None:
        """Return the stages of a new run; ``None`` for a run without stages or a single stage."""
        settings = merge_settings(self.settings, self.overrides)
        named = (settings.get("distillation") or {}).get("stage") is not None
        if named or is_resolved(settings):
            return None
        recipe = requested_recipe(settings, offline=self.offline)
        if not recipe.stages:
            return None
        return StagesRecord(
            stages=list(recipe.stages),
            settings=settings,
            recipe=recipe,
            working_directory=str(Path.cwd()),
        )

    def _stage_config(self, record: StagesRecord, number: int) -> RunConfig:
        settings = stage_settings(None, record, number)
        return self.build_config(settings, {}, offline=self.offline)

    def _train_stages(self, path: Path, record: StagesRecord) -> RunPaths:
        """Train or resume the unfinished stages."""
        run = path
        for number, name in enumerate(record.stages):
            run = path / name
            stage = replace(self, settings={}, overrides={}, output=run, file=None, force=False)
            if self.dist.is_main_process and not is_finished(run):
                LOG.info("stage %s of %s: %s", number + 1, len(record.stages), name)
            try:
                if not (run / MANIFEST).is_file():
                    self._write_targets(path, record)
                    replace(stage, settings=stage_settings(path, record, number)).start()
                elif not is_finished(run):
                    replace(stage, overrides=models_before(path, record, number)).resume(run)
            except Interrupted as error:
                hint = f"{resume_command(self.command, path)} resumes it"
                raise Interrupted(error.what, hint) from error
            self.dist.barrier()
            if was_stopped(run):  # by --max-time: the next stage needs the whole of this one
                return RunPaths(run, run / MODEL)
        if self.dist.is_main_process and not (path / MODEL).exists():
            os.symlink(Path(run.name, MODEL), path / MODEL)
        return RunPaths(run, path / MODEL)

    def _write_targets(self, path: Path, record: StagesRecord) -> None:
        """Generate the targets of the recipe, if it has any, in the main process."""
        if record.recipe.targets is None:
            return
        if self.dist.is_main_process:
            config = self._stage_config(record, 0)
            assert isinstance(config, DistillTaskConfig), "the recipe is for labelled data"
            teacher = resolve_teacher(record.settings, offline=self.offline)
            reference = config.distillation.teachers[0]
            write_targets(
                path, config, (reference, teacher), record.recipe.targets, str(self.dist.device)
            )
        self.dist.barrier()


def last_stage(path: Path) -> Path:
    """Return the directory of the run that made the final model of a directory."""
    if not (path / STAGES).is_file():
        return path
    return path / read_json_record(path / STAGES, StagesRecord).stages[-1]


def stage_settings(path: Path | None, record: StagesRecord, number: int) -> ConfigDict:
    """Return the settings of a stage; before the run has a directory, ``path`` is ``None``."""
    name, settings = record.stages[number], record.settings
    stage = record.recipe.stages[name]
    if stage.student_depth is not None:
        settings = without_depth(settings, name)
    if path is not None and number:
        before = str(path / record.stages[number - 1] / MODEL)
        if stage.begins_with == "student":
            settings = {
                key: value for key, value in settings.items() if key not in FIRST_STAGE_ONLY
            }
            settings[STUDENT] = {NAME: before}
            settings = deep_merge(settings, {"distillation": {"init_layers": None}})
        else:
            settings = deep_merge(settings, {"distillation": {"teachers": [before]}})
    if path is not None and record.recipe.targets is not None:
        settings = {**settings, "data": targets_data(path)}
    return deep_merge(settings, {"distillation": {"stage": name}})


def models_before(path: Path, record: StagesRecord, number: int) -> ConfigDict:
    """Return the settings of a stage with paths inside of the directory, which may have moved."""
    own: ConfigDict = {}
    if number and record.recipe.stages[record.stages[number]].begins_with != "student":
        own = {"distillation": {"teachers": [str(path / record.stages[number - 1] / MODEL)]}}
    if record.recipe.targets is not None:
        files = targets_data(path)
        own["data"] = {split: files[split] for split in ("train", "eval")}
    return own


def without_depth(settings: ConfigDict, stage: str) -> ConfigDict:
    """Drop the student's number of layers, which a stage decides."""
    student = settings[STUDENT]
    fields = dict(student) if isinstance(student, Mapping) else {NAME: student}
    if fields.get(NAME) not in all_families():
        raise UsageError(
            f"the student of the stage {stage} has a different number of layers than "
            f"{fields.get(NAME)}",
            "name a family with --student, and its width with --set student.hidden_size=N",
        )
    return {**settings, STUDENT: {k: v for k, v in fields.items() if k not in DEPTHS}}
