"""``zoo.evaluate`` over many files: the metrics of each become a file of a folder."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from blake3 import blake3

from zoo.api import Model
from zoo.api.evaluation_arguments import EvaluationArguments
from zoo.errors import UsageError
from zoo.evaluation.base import Result
from zoo.io.json import dump_json
from zoo.io.output.atomic import atomic_write
from zoo.io.output.full_disks import writing
from zoo.io.paths import as_paths

if TYPE_CHECKING:
    from zoo.data.many_files.plan import FileJob
    from zoo.data.many_files.shard import FileShard

METRICS = ".json"


class FileEvaluation:
    """Evaluates a model on files, each of which has metrics of its own.

    Args:
        make_call: the class ``EvaluationCall``.
        arguments: its arguments, whose data are the files.
    """

    def __init__(
        self,
        make_call: Callable[[EvaluationArguments], Any],
        arguments: EvaluationArguments,
    ) -> None:
        for name in ("suite", "tasks", "predictions", "report", "excel_safe"):
            if getattr(arguments, name):
                flag = name.replace("_", "-")
                raise UsageError(
                    f"--output has the metrics of many files, and --{flag} is for one evaluation",
                    f"leave --{flag} out",
                )
        if arguments.options.get("figures") is not None:
            raise UsageError("--figures is for one evaluation", "leave --figures out")
        self._make_call = make_call
        # The manifest of a model has the results of one evaluation of each task.
        self._arguments = replace(arguments, record=False, force=False)
        self._inputs = [str(path) for path in as_paths(arguments.eval)]
        self.metrics: dict[str, Mapping[str, float]] = {}

    def run(self, folder: Path, *, shard: "FileShard", resume: bool, force: bool) -> Result:
        """Evaluate the files of a shard.

        Returns:
            details: ``files``, counts as in ``zoo.run``, and ``results``, the metrics of each file
            that was evaluated. There are no metrics of all files: an average over data sets is
            rarely what is meant.
        """
        from zoo.data.many_files.folder import JobFolder
        from zoo.data.many_files.plan import plan_files

        plan = plan_files(self._inputs, folder, METRICS, has_tables=False)
        job_folder = JobFolder(folder, plan, "eval", shard=shard, resume=resume, force=force)
        if not job_folder.jobs:
            result = job_folder.result(written=0, rows=0)
        else:
            settings = self._load_model(job_folder.jobs[0])
            result = job_folder.run(settings, self._evaluate)
        return Result({}, {"files": result.to_dict(), "results": self.metrics})

    def _load_model(self, job: "FileJob") -> dict[str, Any]:
        """Load the model once, and return what all outputs depend on."""
        call = self._make_call(replace(self._arguments, eval=[job.source]))
        checkpoint, session = call.open_model()
        self._reference = call.reference
        self._arguments = replace(
            self._arguments,
            model=Model(checkpoint, session),
            compute=dict.fromkeys(self._arguments.compute),
            source=dict.fromkeys(self._arguments.source),
        )
        return {
            "task": call.task,
            "options": msgspec.to_builtins(call.options, enc_hook=str),
            "model": blake3(checkpoint.identity).hexdigest(),
            "backend": [session.backend, session.device, session.dtype],
        }

    def _evaluate(self, job: "FileJob", resume: bool) -> int:
        """Write the metrics of a file: what ``zoo eval --json`` prints."""
        from zoo.data.many_files.plan import FileStamp

        stamp = FileStamp.read(job.source)
        call = self._make_call(replace(self._arguments, eval=[job.source]))
        result = call.measure()
        stamp.require_same(job.source)
        value = {**call.to_dict(result), "reference": self._reference}
        content = dump_json(value, ensure_ascii=False, indent=2) + "\n"
        with writing(job.output):
            atomic_write(job.output, content.encode())
        self.metrics[job.name] = result.metrics
        return 1
