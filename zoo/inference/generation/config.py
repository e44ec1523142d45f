"""How text is generated. Torch-free."""

from dataclasses import dataclass
from typing import Literal

from zoo.errors import UsageError
from zoo.io.limits import MAX_BEAM_TOKENS, MAX_BEAMS, MAX_NEW_TOKENS


@dataclass(frozen=True)
class GenerationConfig:
    """How to choose among continuations, and when to stop.

    A text is continued greedily, with the likeliest token at each step, unless ``beams`` is over
    1 or one of ``temperature``, ``top_k``, ``top_p`` and ``seed`` is given, which all mean
    sampling.

    Attributes:
        max_new_tokens: the longest continuation.
        min_new_tokens: no end-of-text token is accepted before.
        num_beams: continuations to follow side by side, keeping the likeliest.
        length_penalty: with beams, log-probabilities are divided by the length to this power:
            above zero favours long continuations. From -10 to 10.
        early_stopping: with beams, when a text is done: ``True`` as soon as ``beams``
            continuations are complete; ``False`` when none of the others looks better, by its
            present length; ``"never"`` when none can become better.
        temperature: what logits are divided by: below 1 sharpens the distribution.
        top_k: draw from this many of the likeliest tokens.
        top_p: draw from the fewest likeliest tokens whose probabilities sum up to this.
        seed: of the draws; a text's depend on it and on the text's place among the inputs.

    Raises:
        UsageError: a value is out of its range, or two exclude each other.
    """

    max_new_tokens: int = 20
    min_new_tokens: int = 0
    num_beams: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        """Check the values."""
        most = self.max_new_tokens
        checks = [
            ("max_new_tokens", 1 <= most <= MAX_NEW_TOKENS, f"from 1 to {MAX_NEW_TOKENS}"),
            ("min_new_tokens", 0 <= self.min_new_tokens <= most, f"from 0 to {most}, the most"),
            ("num_beams", 1 <= self.num_beams <= MAX_BEAMS, f"from 1 to {MAX_BEAMS}"),
            ("early_stopping", self.early_stopping in (True, False, "never"), "a bool or 'never'"),
            ("length_penalty", abs(self.length_penalty) <= 10, "from -10 to 10"),
            ("temperature", self.temperature is None or 0 < self.temperature < float("inf"), "> 0"),
            ("top_k", self.top_k is None or self.top_k >= 1, "from 1 up"),
            ("top_p", self.top_p is None or 0 < self.top_p <= 1, "over 0 and at most 1"),
            ("seed", self.seed is None or 0 <= self.seed < 1 << 63, "from 0 to 2^63 - 1"),
        ]
        for name, valid, range_ in checks:
            if not valid:
                raise UsageError(f"{name} cannot be {getattr(self, name)!r}", f"it is {range_}")
        if most * self.num_beams > MAX_BEAM_TOKENS:
            raise UsageError(
                f"{self.num_beams} beams of {most} new tokens take too much memory",
                f"their product is at most {MAX_BEAM_TOKENS:,}",
            )
        if self.samples and self.num_beams > 1:
            raise UsageError(
                "beam search does not sample", "leave out beams, or temperature, top_k, top_p, seed"
            )
        if self.num_beams == 1 and (self.length_penalty != 1 or self.early_stopping):
            raise UsageError("length_penalty and early_stopping are for beams", "give beams, too")

    @property
    def samples(self) -> bool:
        """Whether tokens are drawn at random."""
        chosen = (self.temperature, self.top_k, self.top_p, self.seed)
        return any(value is not None for value in chosen)
