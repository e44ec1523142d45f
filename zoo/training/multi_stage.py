"""Runs of several stages: one directory with a run for each, one after another."""

# ``stages.json`` lists the stages; ``model`` links to the model of the last one.

import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from zoo.errors import UsageError
from zoo.io.json import JsonStruct, encode_json, read_json_record
from zoo.io.output.atomic import atomic_directory
from zoo.io.output.staging import discard_unused, remove_stale_staging
from zoo.overrides import override
from zoo.training.config.overrides import ConfigDict
from zoo.training.config.run_config import RunConfig
from zoo.training.config.schema import prefix_errors
from zoo.training.directory import set_aside
from zoo.training.run import Run, RunPaths
from zoo.training.state.location import initial_directory, resume_command, resumed_by
from zoo.training.state.progress import STAGES, is_finished, was_stopped
from zoo.training.state.run_manifest import MANIFEST

LOG = logging.getLogger("zoo")
MODEL = "model"


class StagesRecord(JsonStruct):
    """``stages.json``: the stages of a run."""

    stages: list[str]  # Names of the stages in order, and of their directories.
    settings: dict[str, Any]  # Settings of the run, from which those of each stage follow.
    working_directory: str = ""  # See ``RunManifest``.


class MultiStageRun(Run):
    """A run, or one for each of several stages, which the subclasses define."""

    record_type: ClassVar[type[StagesRecord]] = StagesRecord  # Type of ``stages.json``.

    def stages(self) -> StagesRecord | None:
        """Return the stages of a new run; by default ``None``, for a run without stages."""
        return None

    def stage_settings(self, path: Path | None, record: Any, number: int) -> ConfigDict:
        """Return the settings of a stage; before the run has a directory, ``path`` is ``None``."""
        raise NotImplementedError

    def stage_files(self, path: Path, record: Any, number: int) -> ConfigDict:
        """Return the settings of a stage that name files in the directory, which may have moved."""
        return {}

    def check_stages(self, record: Any, configs: list[RunConfig]) -> None:
        """Check the stages of a new run, whose configurations are ``configs``."""

    def check_resumed(self, path: Path, record: Any) -> None:
        """Check that a run can be resumed as it began."""

    def before_stage(self, path: Path, record: Any, number: int) -> None:
        """Write what a stage reads, unless the directory has it; called in each process."""

    @override
    def plan(self) -> tuple[RunConfig, ConfigDict]:
        record = self.stages()
        if record is None:
            return super().plan()
        return self.stage_config(record, 0), record.settings

    @override
    def describe(self) -> dict[str, str]:
        plan = super().describe()
        record = self.stages()
        if record is not None:
            plan["stages"] = ", ".join(record.stages)
        return plan

    @override
    def has_begun(self, path: Path) -> bool:
        return (path / STAGES).is_file() or super().has_begun(path)

    @override
    def start(self) -> RunPaths:
        """Train all stages; return the directory of the last stage's run."""
        with prefix_errors(self.file):
            record = self.stages()
        if record is None:
            return super().start()
        with prefix_errors(self.file):
            configs = [self.stage_config(record, number) for number in range(len(record.stages))]
            self.check_stages(record, configs)
        path = self.new_path(configs[0])
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
                discard_unused(path, STAGES)  # No stage has begun.

    @override
    def resume(self, path: Path) -> RunPaths:
        """Resume a run; of several stages, start with the first unfinished one."""
        if not (path / STAGES).is_file():
            return super().resume(path)
        if self.given:
            raise UsageError(f"{path} resumes with its own settings", "only give --resume")
        record = read_json_record(path / STAGES, self.record_type)
        with initial_directory(path, record.working_directory) as run_path:
            self.check_resumed(path, record)
            if self.dist.is_main_process:
                # A killed process may have left staging directories, also in finished stages.
                stage_paths = [run_path / name for name in record.stages]
                for folder in (run_path.absolute().parent, run_path, *stage_paths):
                    remove_stale_staging(folder)
            last = self._train_stages(run_path, record)
        return RunPaths(path / last.run.name, path / last.model.relative_to(run_path))

    @override
    def resume_same(self, path: Path) -> RunPaths:
        if not (path / STAGES).is_file():
            return super().resume_same(path)
        record = read_json_record(path / STAGES, self.record_type)
        self.require_same_request(path, record.settings)
        return replace(self, settings={}, overrides={}, file=None).resume(path)

    @override
    def continue_from(self, parent: Path, *, reset_optimizer: bool = False) -> RunPaths:
        if (parent / STAGES).is_file():
            stage = self.last_stage(parent)
            raise UsageError(f"{parent} has several stages", f"--continue-from {stage}")
        return super().continue_from(parent, reset_optimizer=reset_optimizer)

    @classmethod
    def last_stage(cls, path: Path) -> Path:
        """Return the directory of the run that made the final model of a directory."""
        if not (path / STAGES).is_file():
            return path
        return path / read_json_record(path / STAGES, cls.record_type).stages[-1]

    def stage_config(self, record: StagesRecord, number: int) -> RunConfig:
        """Return the configuration of a stage of a run without a directory."""
        settings = self.stage_settings(None, record, number)
        return self.build_config(settings, {}, offline=self.offline)

    def _train_stages(self, path: Path, record: StagesRecord) -> RunPaths:
        run = path
        for number, name in enumerate(record.stages):
            run = path / name
            stage = replace(self, settings={}, overrides={}, output=run, file=None, force=False)
            if self.dist.is_main_process and not is_finished(run):
                LOG.info("stage %s of %s: %s", number + 1, len(record.stages), name)
            with resumed_by(resume_command(self.command, path), path, STAGES):
                if not (run / MANIFEST).is_file():
                    self.before_stage(path, record, number)
                    replace(stage, settings=self.stage_settings(path, record, number)).start()
                elif not is_finished(run):
                    files = self.stage_files(path, record, number)
                    replace(stage, overrides=files).resume(run)
            self.dist.barrier()
            if was_stopped(run):  # The next stage needs all steps of this one.
                return RunPaths(run, run / MODEL)
        if self.dist.is_main_process and not (path / MODEL).exists():
            os.symlink(Path(run.name, MODEL), path / MODEL)
        return RunPaths(run, path / MODEL)
