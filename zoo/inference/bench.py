"""Measuring a model on several backends side by side, after checking that they agree."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zoo.errors import VerificationError
from zoo.io.progress import progress

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.checkpoint import Checkpoint
    from zoo.inference import Session

WARM_UP = 2
TOLERANCE = {"float64": 1e-3, "float32": 1e-3, "float16": 3e-2, "bfloat16": 2e-1}


@dataclass(frozen=True)
class Measurement:
    """What was measured of one backend.

    Attributes:
        backend: its name.
        device: where it ran.
        dtype: what it computed in.
        seconds: of each round.
        tokens: tokens in a round.
        difference: largest difference from the first backend, relative to the output's largest
            magnitude.
    """

    backend: str
    device: str
    dtype: str
    seconds: tuple[float, ...]
    tokens: int
    difference: float

    @property
    def median(self) -> float:
        """Median seconds of a round."""
        return statistics.median(self.seconds)

    @property
    def tokens_per_second(self) -> float:
        """Tokens in a second, by the median."""
        return self.tokens / self.median


def measure(
    checkpoint: "Checkpoint",
    sessions: "Sequence[Session]",
    *,
    batch_size: int,
    seq_len: int,
    iterations: int,
    seed: int = 0,
) -> list[Measurement]:
    """Run the same random tokens through each session in turn, round by round.

    Args:
        checkpoint: the model; it says what the inputs are.
        sessions: what to compare; the first one is the reference for the answers.
        batch_size: sequences in a batch.
        seq_len: tokens in each sequence; the last quarter of every other one is padding.
        iterations: number of timed batches, after a warm-up.
        seed: of the tokens.

    Raises:
        VerificationError: two sessions do not agree.
    """
    inputs = _inputs(checkpoint, batch_size, seq_len, seed)
    answers = [session.run(inputs) for session in sessions]
    differences = [_difference(answers[0], answer, inputs) for answer in answers]
    for session, difference in zip(sessions, differences, strict=True):
        if not difference <= TOLERANCE[session.dtype]:
            raise VerificationError(
                f"{session.backend} differs from {sessions[0].backend} by {difference:.1e} of "
                "the largest magnitude: a comparison of their speed would mean nothing"
            )
    times: list[list[float]] = [[] for _ in sessions]
    with progress("measuring", iterations + WARM_UP) as advance:
        for turn in range(iterations + WARM_UP):
            for session, spent in zip(sessions, times, strict=True):
                start = time.perf_counter()
                session.run(inputs)
                if turn >= WARM_UP:
                    spent.append(time.perf_counter() - start)
            advance(1)
    return [
        Measurement(s.backend, s.device, s.dtype, tuple(spent), batch_size * seq_len, difference)
        for s, spent, difference in zip(sessions, times, differences, strict=True)
    ]


def _inputs(
    checkpoint: "Checkpoint", batch_size: int, seq_len: int, seed: int
) -> "dict[str, NDArray[np.int64]]":
    from zoo.families.random_inputs import random_inputs

    spec = checkpoint.family.onnx(checkpoint.config, checkpoint.head_name)
    lengths = [seq_len - row % 2 * (seq_len // 4) for row in range(batch_size)]
    drawn = random_inputs(spec, checkpoint.config, lengths, seed=seed)
    return {name: values.numpy() for name, values in drawn.items()}


def _difference(
    one: "dict[str, Any]", other: "dict[str, Any]", inputs: "dict[str, NDArray[np.int64]]"
) -> float:
    """Return the largest relative difference, at places that are not padding."""
    import numpy as np

    mask = inputs["attention_mask"].astype(bool)
    found = []
    for name in one.keys() & other.keys():
        a, b = one[name], other[name]
        if a.shape[:2] == mask.shape:
            a, b = a[mask], b[mask]
        found.append(np.abs(a - b).max() / np.abs(a).max())
    return float(np.max(found))  # which keeps a NaN
