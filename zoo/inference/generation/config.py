"""Settings of text generation; this module does not import torch."""

from dataclasses import dataclass
from typing import Literal

from zoo.errors import UsageError
from zoo.io.limits import MAX_BEAM_TOKENS, MAX_BEAMS, MAX_NEW_TOKENS


@dataclass(frozen=True)
class GenerationConfig:
    """Settings of generation, named as in transformers' ``GenerationConfig``.

    The search is greedy by default, a beam search if ``num_beams`` is over 1, and sampling if any
    of ``temperature``, ``top_k``, ``top_p`` and ``seed`` is given.

    Attributes:
        max_new_tokens: maximum number of new tokens.
        min_new_tokens: minimum number of new tokens; end-of-sequence tokens are excluded before.
        num_beams: number of beams.
        length_penalty: exponent of the length that the log-probability of a finished beam is
            divided by; positive values favour long sequences. From -10 to 10.
        early_stopping: when a beam search ends: ``True`` as soon as ``num_beams`` hypotheses are
            finished; ``False`` when no running beam has a better score at its present length;
            ``"never"`` when none can reach one.
        temperature: divisor of the logits.
        top_k: number of most likely tokens to sample from.
        top_p: total probability of the most likely tokens to sample from.
        seed: random seed; the numbers of a prompt depend on it and on the index of the prompt.

    Raises:
        UsageError: a value is out of range, or two settings exclude each other.
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
        """``True`` if tokens are sampled."""
        sampling = (self.temperature, self.top_k, self.top_p, self.seed)
        return any(value is not None for value in sampling)
