"""The configuration, manifest and log records of a run, read from its directory."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from zoo.io.files import decode_text, read_regular
from zoo.io.json import read_json_object
from zoo.io.limits import MAX_YAML_BYTES
from zoo.io.yaml import parse_yaml
from zoo.report.mistakes import Mistakes, read_mistakes
from zoo.training.logging.jsonl import PERFORMANCE_FILE, Record, read_jsonl
from zoo.training.logging.scores import ScoresRecord, read_scores

SETTINGS = "config.yaml"
MANIFEST = "run.json"


@dataclass(frozen=True)
class RunHistory:
    """Contents of a run's directory; missing files are empty."""

    config: Record  # Contents of ``config.yaml``.
    config_text: str
    manifest: Record  # Contents of ``run.json``.
    train: list[Record]  # Training records of ``metrics.jsonl``.
    validation: list[Record]  # Evaluation records of ``metrics.jsonl``.
    performance: list[Record]  # Records of ``performance.jsonl``, by step.
    seconds: float  # Duration of the run, over all its processes.
    # Mistakes of the best evaluation; ``None`` without ``mistakes.json``.
    mistakes: Mistakes | None = None
    scores: ScoresRecord | None = (
        None  # scores of a distilled model; ``None`` without ``scores.json``
    )

    @property
    def best(self) -> Record | None:
        """The best evaluation: with the lowest loss, unless the settings name a metric."""
        return min(self.validation, key=self.rank, default=None)

    @property
    def selecting_name(self) -> str:
        """Name of the metric that selects the best evaluation, or ``loss``."""
        return self.config.get("metric_for_best_model") or "loss"

    @property
    def best_name(self) -> str:
        """The best evaluation in words: ``lowest`` for the loss, or ``best accuracy``."""
        name = self.selecting_name
        return "lowest" if name == "loss" else f"best {name.replace('_', ' ')}"

    def selecting_value(self, evaluation: Record) -> float:
        """Return the value by which the best evaluation is selected: the loss, or a metric."""
        name = self.selecting_name
        values = evaluation if name == "loss" else evaluation["metrics"]
        return float(values[name])

    def rank(self, evaluation: Record) -> float:
        """Return the value that selects the best evaluation, lower for a better one."""
        sign = -1 if self.config.get("greater_is_better") else 1
        return sign * self.selecting_value(evaluation)

    @property
    def steps(self) -> int:
        """Number of steps of the last record."""
        return max((record["step"] for record in self._last_records()), default=0)

    def names(self, group: str) -> list[str]:
        """Return the names in ``losses`` or ``metrics``, in the order of the last records."""
        names: dict[str, None] = {}
        for record in self._last_records():
            names.update(dict.fromkeys(record.get(group, {})))
        return list(names)

    def _last_records(self) -> list[Record]:
        """Return the last training record and the last evaluation, as far as there are any."""
        return [records[-1] for records in (self.train, self.validation) if records]

    @classmethod
    def read(cls, run: Path) -> Self:
        """Read the directory of a run."""
        log = read_jsonl(run)
        path = run / SETTINGS
        config_text = ""
        if path.is_file():
            config_text = decode_text(read_regular(path, "settings", MAX_YAML_BYTES), path)
        manifest: Record = {}
        if (run / MANIFEST).is_file():
            manifest = read_json_object(run / MANIFEST)
        performance = read_jsonl(run, PERFORMANCE_FILE)
        # The last record counts where a step was repeated after a kill.
        performance_by_step = {record["step"]: record for record in performance}
        return cls(
            config=parse_yaml(config_text, path) or {},
            config_text=config_text,
            manifest=manifest,
            train=[record for record in log if record["split"] == "train"],
            validation=[record for record in log if record["split"] == "validation"],
            performance=[performance_by_step[step] for step in sorted(performance_by_step)],
            seconds=sum(record.get("seconds", 0) for record in performance),
            mistakes=read_mistakes(run),
            scores=read_scores(run),
        )
