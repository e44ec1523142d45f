"""KL divergence of softened probabilities (Hinton et al. 2015, arXiv:1503.02531, section 2)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from zoo.distillation.losses.base import (
    LogitRows,
    LogitsLoss,
    LogitsSettings,
    LossSettings,
    Substitute,
)
from zoo.distillation.outputs import ModelOutput, TeacherLogits, TeacherOutput
from zoo.errors import UsageError
from zoo.overrides import override

if TYPE_CHECKING:
    from torch import Tensor

WITHOUT_PROBABILITIES = ("regression", "multi_label_classification")  # problem types
# Divergences are exact there; at higher temperatures they are squared errors of logits.
LOWEST_TEMPERATURE = 1e-4
HIGHEST_TEMPERATURE = 1e4


class KLSettings(LogitsSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of ``kl``."""

    temperature: float = 1.0  # The number that logits are divided by.
    # Multiply by the square of the temperature, so that the size of the gradients does not depend
    # on it (Hinton et al. 2015, arXiv:1503.02531, section 2).
    scale_by_temperature: bool = True

    def __post_init__(self) -> None:
        if not LOWEST_TEMPERATURE <= self.temperature <= HIGHEST_TEMPERATURE:
            raise ValueError(
                f"temperature is {self.temperature}, not from {LOWEST_TEMPERATURE:g} to "
                f"{HIGHEST_TEMPERATURE:g}; the limit of high temperatures is the kind logits-mse"
            )


class KLDivergence(LogitsLoss):
    """KL(teacher || student) of softened probabilities."""

    name: ClassVar[str] = "kl"
    summary: ClassVar[str] = "divergence of softened probabilities"
    settings_type: ClassVar[type[LossSettings]] = KLSettings
    settings: KLSettings

    @override
    @classmethod
    def substitute(cls, problem: str | None) -> Substitute | None:
        """Outputs that are not probabilities are compared by their squared error."""
        if problem in WITHOUT_PROBABILITIES:
            return Substitute("logits-mse", term_name="logits")
        return None

    def __post_init__(self) -> None:
        super().__post_init__()
        if getattr(self.objective, "problem", None) in WITHOUT_PROBABILITIES:
            raise UsageError(
                f"terms.{self.term_name}: kl compares probabilities of classes, and "
                f"{self.objective.name} has none",
                f"--set distillation.terms.{self.term_name}.kind=logits-mse compares the outputs",
            )

    @property
    @override
    def teacher_output(self) -> TeacherOutput | None:
        return TeacherLogits(
            self.logits_of, everywhere=self.everywhere, temperature=self.settings.temperature
        )

    @override
    def distance(self, rows: LogitRows) -> "Tensor":
        from zoo.distillation.divergences import kl_divergence

        temperature = self.settings.temperature
        total = kl_divergence(
            rows.student, rows.teachers, temperature=temperature, columns=rows.columns
        )
        return total * temperature**2 if self.settings.scale_by_temperature else total

    @override
    def metrics(self, teachers: Sequence[ModelOutput]) -> "dict[str, tuple[Tensor, Tensor]]":
        from zoo.distillation.logits import TopLogits

        logits = teachers[0].logits(self.logits_of, everywhere=self.everywhere)
        if not isinstance(logits, TopLogits):
            return {}
        lost = logits.lost_probability(self.settings.temperature)
        return {f"{self.term_name}-lost-probability": (lost.sum(), lost.new_tensor(len(lost)))}
