"""What a run's directory says of the run, as far as it is there yet."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from zoo.io.files import decode_text, read_regular
from zoo.io.json import read_json_object
from zoo.io.limits import MAX_YAML_BYTES
from zoo.io.yaml import parse_yaml
from zoo.training.logging.jsonl import PERFORMANCE_FILE, Record, read_jsonl

SETTINGS, MANIFEST = "config.yaml", "run.json"


@dataclass(frozen=True)
class RunHistory:
    """All that is known of a run.

    Attributes:
        settings: what ``config.yaml`` says.
        source: its text.
        manifest: ``run.json``.
        train: records of the log.
        validation: records of the log.
        speed: records of ``performance.jsonl``, by step.
        seconds: that the run has taken, over all its processes.
    """

    config: Record
    config_text: str
    manifest: Record
    train: list[Record]
    validation: list[Record]
    performance: list[Record]
    seconds: float

    @property
    def best(self) -> Record | None:
        """The validation with the lowest loss."""
        return min(self.validation, key=lambda record: record["loss"], default=None)

    @property
    def steps(self) -> int:
        """How many updates were made, as far as the log says."""
        return max((r[-1]["step"] for r in (self.train, self.validation) if r), default=0)

    def names(self, group: str) -> list[str]:
        """Return the names in ``losses`` or ``metrics``, in the order of the log."""
        lasts = [r[-1].get(group, {}) for r in (self.train, self.validation) if r]
        return list(dict.fromkeys(name for found in lasts for name in found))

    @classmethod
    def read(cls, run: Path) -> Self:
        """Read a run.

        Raises:
            VerificationError: a line of a log is damaged.
        """
        log, speed = read_jsonl(run), read_jsonl(run, PERFORMANCE_FILE)
        source = _text(run / SETTINGS)
        manifest = run / MANIFEST
        return cls(
            config=parse_yaml(source, run / SETTINGS) or {},
            config_text=source,
            manifest=read_json_object(manifest) if manifest.is_file() else {},
            train=[record for record in log if record["split"] == "train"],
            validation=[record for record in log if record["split"] == "validation"],
            # steps that were made again after a kill count as they were made last
            performance=sorted(
                {r["step"]: r for r in speed}.values(), key=lambda record: record["step"]
            ),
            seconds=sum(record.get("seconds", 0) for record in speed),
        )


def _text(path: Path) -> str:
    if not path.is_file():
        return ""
    return decode_text(read_regular(path, "settings", MAX_YAML_BYTES), path)
