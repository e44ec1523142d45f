"""Runs of distillation; a recipe with several stages has one directory with a run for each."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from zoo.data.many_files.shard import FileShard
from zoo.distillation.config.build import (
    NAME,
    STUDENT,
    distill_config,
    is_resolved,
    merge_settings,
    requested_recipe,
    resolve_teacher,
    student_name,
)
from zoo.distillation.config.student import DEPTHS
from zoo.distillation.setup import DistillSetup, distill_setup
from zoo.distillation.static_student import FOLDER, write_static_student
from zoo.distillation.targets import require_generation, targets_data, write_targets
from zoo.distillation.teacher_shards import TeacherShard, compute_shard
from zoo.distillation.term_tables import checked_recipe
from zoo.errors import UsageError
from zoo.exporting.targets.static.export import static_family
from zoo.families.distillation import DistillationRecipe
from zoo.overrides import override
from zoo.plugins import all_families
from zoo.training import multi_stage
from zoo.training.config.distill import DistillTaskConfig
from zoo.training.config.overrides import ConfigDict, deep_merge
from zoo.training.config.run_config import RunConfig
from zoo.training.config.schema import prefix_errors
from zoo.training.multi_stage import MODEL, MultiStageRun
from zoo.training.run import RunPaths
from zoo.training.state.progress import STAGES

# settings that only the first stage reads: later ones start from a model
FIRST_STAGE_ONLY = (STUDENT, "size", "tokenizer", "vocab_size")


class DistillationStages(multi_stage.StagesRecord, kw_only=True):
    """``stages.json`` of a run of distillation."""

    recipe: DistillationRecipe


class DistillRun(MultiStageRun):
    """A run of distillation, or one for each stage of the recipe."""

    # A stage continues with the final model of the stage before as its student, or learns from it
    # as its teacher.

    command: ClassVar[str] = "distill"
    build_config = staticmethod(distill_config)
    build_setup = staticmethod(distill_setup)
    record_type: ClassVar[type[multi_stage.StagesRecord]] = DistillationStages

    @override
    def stages(self) -> DistillationStages | None:
        settings = merge_settings(self.settings, self.overrides)
        named = (settings.get("distillation") or {}).get("stage") is not None
        if named or is_resolved(settings):
            return None
        recipe = requested_recipe(settings, offline=self.offline)
        if not recipe.stages:
            return None
        return DistillationStages(
            stages=list(recipe.stages),
            settings=settings,
            recipe=recipe,
            working_directory=str(Path.cwd()),
        )

    @override
    def stage_settings(
        self, path: Path | None, record: DistillationStages, number: int
    ) -> ConfigDict:
        return stage_settings(path, record, number)

    @override
    def stage_files(self, path: Path, record: DistillationStages, number: int) -> ConfigDict:
        return models_before(path, record, number)

    @override
    def check_stages(self, record: DistillationStages, configs: list[RunConfig]) -> None:
        if record.recipe.targets is not None:
            assert isinstance(configs[0], DistillTaskConfig), "the recipe is for labelled data"
            require_generation(configs[0])

    @override
    def check_resumed(self, path: Path, record: DistillationStages) -> None:
        recipe = requested_recipe(record.settings, offline=self.offline)
        recorded = checked_recipe(record.recipe, f"{path / STAGES}: ", recorded=True)
        if checked_recipe(recipe) != recorded:
            raise UsageError(
                f"the recipe {recipe.name} is not the one that {path} began with",
                "put it back as it was, or begin another run",
            )

    def compute_teacher_shard(self, shard: FileShard) -> TeacherShard:
        """Compute a part of the teacher's outputs that a new run would add to its cache."""
        with prefix_errors(self.file):
            record = self.stages()
            if record is not None:
                raise UsageError(
                    f"the recipe {record.recipe.name} has the stages {', '.join(record.stages)}, "
                    "and --shard is for a single run",
                    f"--set distillation.stage={record.stages[0]}, or leave --shard out",
                )
            config, _ = self.plan()
            setup = self._setup(config)
        assert isinstance(setup, DistillSetup), "build_setup returns it"
        return compute_shard(setup, shard, self.dist)

    @override
    def resume(self, path: Path) -> RunPaths:
        if STUDENT in self.given and not (path / STAGES).is_file():
            raise UsageError(f"{path} resumes with its own student", "leave out --student")
        return super().resume(path)

    @override
    def continue_from(self, parent: Path, *, reset_optimizer: bool = False) -> RunPaths:
        if STUDENT in self.given and not (parent / STAGES).is_file():
            raise UsageError(f"{parent} continues with its own student", "leave out --student")
        return super().continue_from(parent, reset_optimizer=reset_optimizer)

    @override
    def before_stage(self, path: Path, record: DistillationStages, number: int) -> None:
        """Extract the student or generate the targets of the recipe, in the main process."""
        extraction = record.recipe.extraction if is_extracted(record) and not number else None
        targets = record.recipe.targets
        if self.dist.is_main_process and (extraction or targets):
            reference = record.settings["distillation"]["teachers"][0]
            teacher = reference, resolve_teacher(record.settings, offline=self.offline)
            device = str(self.dist.device)
            if extraction is not None:
                _, fields = student_name(record.settings[STUDENT])
                write_static_student(path, teacher, extraction, fields, device)
            if targets is not None:
                config = self.stage_config(record, 0)
                assert isinstance(config, DistillTaskConfig), "the recipe is for labelled data"
                write_targets(path, config, teacher, targets, device)
        self.dist.barrier()


def stage_settings(path: Path | None, record: DistillationStages, number: int) -> ConfigDict:
    """Return the settings of a stage; before the run has a directory, ``path`` is ``None``."""
    name = record.stages[number]
    settings = record.settings
    stage = record.recipe.stages[name]
    if stage.student_depth is not None:
        settings = without_depth(settings, name)
    extracted = is_extracted(record) and not number
    if path is not None and (number or extracted):
        before = str(path / FOLDER if extracted else path / record.stages[number - 1] / MODEL)
        if extracted or stage.begins_with == "student":
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


def is_extracted(record: DistillationStages) -> bool:
    """Return whether the student is new static embeddings, which are extracted from the teacher."""
    if record.recipe.extraction is None:
        return False
    return student_name(record.settings.get(STUDENT))[0] == static_family().name


def models_before(path: Path, record: DistillationStages, number: int) -> ConfigDict:
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
