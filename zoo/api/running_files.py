"""``zoo.run`` over many files: each becomes a file of a folder."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.api.task_models import MODEL_OPTIONS, open_model
from zoo.errors import UsageError

if TYPE_CHECKING:
    from zoo.data.many_files.folder import JobResult
    from zoo.data.many_files.plan import FileJob
    from zoo.data.many_files.ray_engine import RayOptions
    from zoo.data.many_files.shard import FileShard
    from zoo.inference.task import Task
    from zoo.tasks.table import TaskInput


def has_output_folder(
    texts: Sequence[str],
    inputs: Sequence[str],
    output: Path | None,
    *,
    shard: str | None,
    suffix: str | None,
    engine: str | None = None,
) -> bool:
    """Return whether an output is a folder: of several inputs, or if it is named as one.

    Args:
        texts: texts of the command line.
        inputs: files, folders and patterns.
        output: the output, if any.
        shard: part of the files, if one is named.
        suffix: ending of the outputs, if one is named.
        engine: engine that runs the task, if one is named.

    Raises:
        UsageError: there are several inputs and no output, or options do not fit together.
    """
    several = False
    if inputs:
        from zoo.data.many_files.plan import is_many

        several = is_many(inputs)
    if inputs and texts:
        raise UsageError(
            "texts were given both as arguments and in a file",
            "give one of them, and a pattern in quotes, such as --input 'texts/*.csv'",
        )
    is_folder = several or (output is not None and bool(inputs) and output.is_dir())
    if not is_folder:
        for flag, value in (("shard", shard), ("output-suffix", suffix), ("engine", engine)):
            if value is not None:
                raise UsageError(
                    f"--{flag} is for many files", "give a folder or a pattern as --input"
                )
        return False
    if output is None or str(output) == "-":
        raise UsageError("several inputs have no single output", "name a folder with --output")
    return True


def ray_options(
    engine: str | None, actors: int | None, cpus_per_actor: int | None
) -> "RayOptions | None":
    """Return the actors that options ask for; ``None`` without an engine.

    Raises:
        UsageError: there are options of an engine and no engine.
    """
    if engine is None:
        for flag, value in (("actors", actors), ("cpus-per-actor", cpus_per_actor)):
            if value is not None:
                raise UsageError(f"--{flag} is for --engine ray", "leave it out")
        return None
    from zoo.data.many_files.ray_engine import RayOptions, require_ray

    require_ray()
    return RayOptions(actors or 1, cpus_per_actor or 1)


class FileRunner:
    """Runs a task over files with one model, which is loaded for the first of them."""

    def __init__(self, name: str, ref: str, options: Mapping[str, Any], excel_safe: bool) -> None:
        self._name = name
        self._ref = ref
        self._excel_safe = excel_safe
        self._model_options = {key: options[key] for key in MODEL_OPTIONS}
        self._columns = {key: options[key] for key in ("file_format", "text", "pair")}
        self._options: dict[str, Any] = {}
        for key, value in options.items():
            if key not in self._model_options and key not in self._columns:
                self._options[key] = value
        self._task: Task | None = None
        self._task_options: dict[str, Any] = {}

    def settings(self, job: "FileJob") -> dict[str, Any]:
        """Return what all outputs depend on, apart from their inputs.

        Args:
            job: a file of the job, whose first row is read.
        """
        from zoo.tasks.table import output_settings

        task_input = self._open(job)
        task = self._open_task(task_input)
        settings = output_settings(task, task_input, excel_safe=self._excel_safe)
        assert settings is not None, "a file can be read again"
        del settings["input"]
        return settings

    def run(self, job: "FileJob", resume: bool) -> int:
        """Write the output of a file; return the number of its rows."""
        from zoo.tasks.table import write_results

        task_input = self._open(job)
        task = self._open_task(task_input)
        return write_results(
            task, task_input, job.output, resume=resume, excel_safe=self._excel_safe
        )

    def _open(self, job: "FileJob") -> "TaskInput":
        from zoo.tasks.table import open_input

        return open_input(
            self._name,
            source=str(job.source),
            **self._columns,
            options=self._options,
            digests=True,
        )

    def _open_task(self, task_input: "TaskInput") -> "Task":
        """Return the task, which is made again only if a file changes its options."""
        from zoo.tasks import make_task

        if self._task is None:
            checkpoint, session = open_model(
                self._name, self._ref, self._model_options, task_input.options
            )
        elif self._task_options == task_input.options:
            return self._task
        else:
            checkpoint = self._task.checkpoint
            session = self._task.session
        self._task = make_task(self._name, checkpoint, session, **task_input.options)
        self._task_options = task_input.options
        return self._task


def run_files(
    name: str,
    ref: str,
    inputs: Sequence[str],
    output: Path,
    options: Mapping[str, Any],
    *,
    shard: "FileShard",
    suffix: str | None,
    resume: bool,
    force: bool,
    excel_safe: bool,
    ray: "RayOptions | None" = None,
) -> "JobResult":
    """Run a task over many files, each of which becomes a file of a folder.

    Args:
        name: name, verb or synonym of the task.
        ref: reference to the model.
        inputs: files, folders and patterns.
        output: the folder.
        options: options of the task, of the model, and of the columns of the inputs.
        shard: part of the files that is computed.
        suffix: ending of the outputs; ``None`` for the inputs' tables or JSON lines.
        resume: continue an interrupted job.
        force: compute the files again.
        excel_safe: in CSV and TSV, precede by ``'`` what a spreadsheet would compute.
        ray: actors of Ray that run the task; ``None`` to run it in this process.
    """
    from zoo.data.many_files.folder import JobFolder
    from zoo.data.many_files.plan import plan_files
    from zoo.tasks.table import require_format

    has_tables = options["file_format"] == "auto"
    plan = plan_files(inputs, output, suffix, has_tables=has_tables)
    require_format(name, plan.jobs[0].output, excel_safe=excel_safe)
    folder = JobFolder(output, plan, "run", shard=shard, resume=resume, force=force)
    plan.require_columns(folder.jobs)
    if not folder.jobs:
        return folder.result(written=0, rows=0)
    if ray is not None:
        from zoo.data.many_files.ray_engine import run_on_ray

        actor_options = dict(options)
        if actor_options["threads"] is None:
            actor_options["threads"] = ray.cpus_per_actor
        make_runner = partial(FileRunner, name, ref, actor_options, excel_safe)
        return run_on_ray(folder, make_runner, ray, resume=resume)
    runner = FileRunner(name, ref, options, excel_safe)
    settings = runner.settings(folder.jobs[0])
    return folder.run(settings, runner.run)
