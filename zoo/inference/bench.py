"""Throughput and latency of a model on several backends, after a comparison of their outputs."""

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
DEFAULT_SEQ_LEN = 128  # tokens
TOLERANCE = {
    "float64": 1e-3,
    "float32": 1e-3,
    "float16": 3e-2,
    "bfloat16": 2e-1,
    # of random tokens; on text, quantized graphs were compared when they were exported
    "int8": 0.5,
    "int4": 1.0,
}


@dataclass(frozen=True)
class Measurement:
    """Measurement of one backend.

    Attributes:
        backend: name of the backend.
        device: device it ran on.
        dtype: dtype of the computation.
        seconds: seconds of each iteration.
        latencies: seconds of each iteration with one row.
        tokens: number of tokens per iteration.
        difference: largest difference from the first backend, relative to the largest magnitude
            of the output.
    """

    backend: str
    device: str
    dtype: str
    seconds: tuple[float, ...]
    latencies: tuple[float, ...]
    tokens: int
    difference: float

    @property
    def median(self) -> float:
        """Median seconds of an iteration."""
        return statistics.median(self.seconds)

    @property
    def tokens_per_second(self) -> float:
        """Tokens per second in the median iteration."""
        return self.tokens / self.median

    def latency(self, percent: float) -> float:
        """Return a percentile of the seconds of one row, interpolated between iterations."""
        import numpy as np

        return float(np.percentile(self.latencies, percent))


def default_seq_len(checkpoint: "Checkpoint") -> int:
    """Return 128 tokens, or the limit of the model if it is lower."""
    spec = checkpoint.family.onnx(checkpoint.config, checkpoint.head_name)
    return min([DEFAULT_SEQ_LEN, *spec.limits.values()])


def measure(
    checkpoint: "Checkpoint",
    sessions: "Sequence[Session]",
    *,
    batch_size: int,
    seq_len: int,
    iterations: int,
    seed: int = 0,
) -> list[Measurement]:
    """Time sessions on the same random batch, in turn within each iteration.

    Args:
        checkpoint: the model.
        sessions: sessions to time; outputs are compared with those of the first.
        batch_size: number of rows.
        seq_len: number of tokens per row; the last quarter of every other row is padding.
        iterations: number of timed batches, after a warm-up.
        seed: random seed of the tokens.

    Raises:
        VerificationError: the outputs of two sessions differ.
    """
    inputs = random_batch(checkpoint, batch_size, seq_len, seed)
    outputs = [session.run(inputs) for session in sessions]
    differences = [_difference(outputs[0], output, inputs) for output in outputs]
    for session, difference in zip(sessions, differences, strict=True):
        both = (session, sessions[0])
        if not difference <= max(TOLERANCE[compared.dtype] for compared in both):
            names = [f"{compared.backend} in {compared.dtype}" for compared in both]
            raise VerificationError(
                f"{names[0]} differs from {names[1]} by {difference:.1e} of the largest magnitude: "
                "a comparison of their speed would mean nothing"
            )
    times = time_in_turn([(session, inputs) for session in sessions], iterations)
    row = random_batch(checkpoint, 1, seq_len, seed)
    latencies = time_in_turn([(session, row) for session in sessions], iterations)
    tokens = batch_size * seq_len
    return [
        Measurement(s.backend, s.device, s.dtype, tuple(seconds), tuple(single), tokens, difference)
        for s, seconds, single, difference in zip(
            sessions, times, latencies, differences, strict=True
        )
    ]


def time_in_turn(
    runs: "Sequence[tuple[Session, dict[str, NDArray[np.int64]]]]", iterations: int
) -> list[list[float]]:
    """Return the seconds of each iteration, of sessions that run in turn within each.

    Args:
        runs: sessions and their inputs.
        iterations: number of timed iterations, after a warm-up.
    """
    times: list[list[float]] = [[] for _ in runs]
    with progress("measuring", iterations + WARM_UP) as advance:
        for iteration in range(iterations + WARM_UP):
            for (session, inputs), seconds in zip(runs, times, strict=True):
                start = time.perf_counter()
                session.run(inputs)
                if iteration >= WARM_UP:
                    seconds.append(time.perf_counter() - start)
            advance(1)
    return times


def random_batch(
    checkpoint: "Checkpoint", batch_size: int, seq_len: int, seed: int = 0
) -> "dict[str, NDArray[np.int64]]":
    """Return random inputs of a model.

    Args:
        checkpoint: the model.
        batch_size: number of rows.
        seq_len: number of tokens per row; the last quarter of every other row is padding.
        seed: random seed of the tokens.
    """
    from zoo.families.random_inputs import random_inputs

    spec = checkpoint.family.onnx(checkpoint.config, checkpoint.head_name)
    lengths = [seq_len - row % 2 * (seq_len // 4) for row in range(batch_size)]
    tensors = random_inputs(spec, checkpoint.config, lengths, seed=seed)
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def _difference(
    expected: "dict[str, Any]", outputs: "dict[str, Any]", inputs: "dict[str, NDArray[np.int64]]"
) -> float:
    """Return the largest relative difference of the outputs at tokens that are not padding."""
    import numpy as np

    mask = inputs["attention_mask"].astype(bool)
    differences = []
    for name in expected.keys() & outputs.keys():
        a, b = expected[name], outputs[name]
        if a.shape[:2] == mask.shape:
            a, b = a[mask], b[mask]
        differences.append(np.abs(a - b).max() / np.abs(a).max())
    return float(np.max(differences))  # np.max propagates NaN
