"""Options of pattern-exploiting training."""

from typing import Any, Literal

import msgspec

from zoo.finetuning.text_inputs import TextOptions


class PetOptions(TextOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of pattern-exploiting training."""

    template: tuple[str, ...] = ()  # The patterns: texts, or files.
    # Words of one token that stand for labels: label -> word, or ``LABEL=WORD,...``.
    label_words: dict[str, str] | str = ""
    # Settings of the runs of the patterns' models.
    patterns: dict[str, Any] = msgspec.field(default_factory=dict)
    repetitions: int = 3  # Models of each pattern, with different seeds.
    # Weights of the models' scores: the accuracy of each pattern on the training data before
    # training, or equal ones.
    weighting: Literal["accuracy", "uniform"] = "accuracy"
    temperature: float = 2.0  # Temperature of soft labels and of the loss.
    stage: str | None = None  # Name of the stage; ``None`` for a run of all.

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.repetitions < 1:
            raise ValueError(f"repetitions is {self.repetitions}, not positive")
        if not 0 < self.temperature < float("inf"):
            raise ValueError(f"temperature is {self.temperature}, not positive")
