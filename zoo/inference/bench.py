"""Throughput and latency of a model on several backends, after a comparison of their outputs."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from zoo.errors import UsageError, VerificationError
from zoo.families.onnx import EMBEDDING
from zoo.inference.exported import read_export_info
from zoo.io.progress import progress
from zoo.sentence_models.numpy_modules import pool
from zoo.sentence_models.pooling import Pooling

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.checkpoint import Checkpoint
    from zoo.inference import Session

WARM_UP = 2  # iterations that are not measured
PERCENTILES = (50, 95, 99)  # percentiles of the latency
DEFAULT_SEQ_LEN = 128
DEFAULT_NEW_TOKENS = 32
# Dtype of the computation -> the largest accepted difference between outputs.
TOLERANCE = {
    "float64": 1e-3,
    "float32": 1e-3,
    "float16": 3e-2,
    "bfloat16": 2e-1,
    # The tokens are random; on text, quantized graphs were compared when they were exported.
    "int8": 0.5,
    "int4": 1.0,
}
QUANTIZED_TOLERANCE = 1.0  # the tolerance of other precisions of runtimes, such as q4_0


@dataclass(frozen=True)
class Measurement:
    """Measurement of one backend."""

    backend: str
    device: str  # device it ran on
    dtype: str  # dtype of the computation
    seconds: tuple[float, ...]  # seconds of each iteration
    latencies: tuple[float, ...]  # seconds of each iteration with one row
    bytes: int  # size of the files of the model
    tokens: int  # tokens per iteration; only new ones, if the model generates
    # Largest difference from the first backend, relative to the largest magnitude of the output.
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

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, and what is derived from them, as values that JSON can represent."""
        return {
            **asdict(self),
            "median": self.median,
            "tokens_per_second": self.tokens_per_second,
            "latency": {f"p{percent}": self.latency(percent) for percent in PERCENTILES},
        }


def default_seq_len(checkpoint: "Checkpoint", new_tokens: int = 0) -> int:
    """Return 128 tokens, or what the model's limit leaves next to the new ones."""
    limits = [limit - new_tokens for limit in checkpoint.onnx_spec.limits.values()]
    return min([DEFAULT_SEQ_LEN, *limits])


def default_new_tokens(checkpoint: "Checkpoint", seq_len: int | None) -> int:
    """Return 32 tokens, or what the limit of the model leaves; 0 if it does not generate."""
    if not checkpoint.head.has_cache:
        return 0
    if checkpoint.export_target == "onnx" and not read_export_info(checkpoint).cache:
        return 0
    record: Any = checkpoint.manifest.export or {}
    if checkpoint.export_target not in (None, "onnx") and not record.get("generation"):
        # The runtime did not generate text when the model was exported.
        return 0
    room = [limit - (seq_len or limit // 2) for limit in checkpoint.onnx_spec.limits.values()]
    return max(0, min([DEFAULT_NEW_TOKENS, *room]))


def measure(
    checkpoint: "Checkpoint",
    sessions: "Sequence[Session]",
    *,
    batch_size: int,
    seq_len: int,
    iterations: int,
    new_tokens: int = 0,
    seed: int = 0,
) -> list[Measurement]:
    """Time sessions on the same random batch, in turn within each iteration.

    Models that generate text are timed while they do so, greedily and with a cache.

    Args:
        checkpoint: the model.
        sessions: the model on several backends.
        batch_size: rows of the batch.
        seq_len: tokens of a row; the last quarter of every other row is padding.
        iterations: number of measured iterations.
        new_tokens: number of tokens to generate; 0 for a forward pass.
        seed: the seed of the batch.

    Raises:
        VerificationError: the outputs of a session differ from those of the first.
    """
    if new_tokens:
        _check_room(checkpoint, seq_len, new_tokens)
    differences = _require_same_outputs(checkpoint, sessions, batch_size, seq_len, seed)
    times = []
    for rows in (batch_size, 1):
        batch = random_batch(checkpoint, rows, seq_len, seed, padding=not new_tokens)
        inputs = _common_inputs(sessions, batch)
        runs = [repeatable_run(session, inputs, new_tokens) for session in sessions]
        times.append(time_in_turn(runs, iterations))
    batch_seconds, row_seconds = times
    measurements = []
    for number, session in enumerate(sessions):
        measurement = Measurement(
            backend=session.backend,
            device=session.device,
            dtype=session.dtype,
            seconds=tuple(batch_seconds[number]),
            latencies=tuple(row_seconds[number]),
            bytes=session.stored_bytes,
            tokens=batch_size * (new_tokens or seq_len),
            difference=differences[number],
        )
        measurements.append(measurement)
    return measurements


def _require_same_outputs(
    checkpoint: "Checkpoint",
    sessions: "Sequence[Session]",
    batch_size: int,
    seq_len: int,
    seed: int,
) -> list[float]:
    """Check that all sessions compute the same, and return their differences from the first."""
    inputs = _common_inputs(sessions, random_batch(checkpoint, batch_size, seq_len, seed))
    outputs = [session.run(inputs) for session in sessions]
    pooling = checkpoint.model.pooling or Pooling()
    differences = [_difference(outputs[0], output, inputs, pooling) for output in outputs]
    reference = sessions[0]
    for session, difference in zip(sessions, differences, strict=True):
        tolerance = max(accepted_difference(session), accepted_difference(reference))
        if not difference <= tolerance:
            raise VerificationError(
                f"{session.backend} in {session.dtype} differs from {reference.backend} in "
                f"{reference.dtype} by {difference:.1e} of the largest magnitude: "
                "a comparison of their speed would mean nothing"
            )
    return differences


def accepted_difference(session: "Session") -> float:
    """Return the largest accepted difference of a session from the first one."""
    return max(session.tolerance or 0, TOLERANCE.get(session.dtype, QUANTIZED_TOLERANCE))


def _check_room(checkpoint: "Checkpoint", seq_len: int, new_tokens: int) -> None:
    spec = checkpoint.onnx_spec
    # An encoder-decoder reads the input and the new tokens in different parts.
    tokens = seq_len + new_tokens
    if "decoder_input_ids" in spec.inputs:
        tokens = max(seq_len, new_tokens)
    for limit in spec.limits.values():
        if tokens > limit:
            raise UsageError(
                f"the model takes {limit} tokens, and {seq_len} with {new_tokens} new ones are "
                "more",
                "lower --seq-len or --new-tokens",
            )


def repeatable_run(
    session: "Session", inputs: "dict[str, NDArray[np.int64]]", new_tokens: int
) -> Callable[[], object]:
    """Return a function that runs a session once: a forward pass, or generation of all rows."""
    if not new_tokens:
        return partial(session.run, inputs)
    import torch

    from zoo.inference.generation.config import GenerationConfig
    from zoo.inference.generation.generate import generate

    # ONNX Runtime copies its inputs from the CPU to its device.
    device = "cpu" if session.backend == "onnx" else session.device
    prompts = {"input_ids": torch.from_numpy(inputs["input_ids"]).to(device)}
    settings = GenerationConfig(max_new_tokens=new_tokens)
    return partial(generate, session.generator(), prompts, settings)


def time_in_turn(runs: Sequence[Callable[[], object]], iterations: int) -> list[list[float]]:
    """Return the seconds of each iteration, of functions that run in turn within each."""
    times: list[list[float]] = [[] for _ in runs]
    with progress("timing", iterations + WARM_UP, unit="batches") as advance:
        for iteration in range(iterations + WARM_UP):
            for run, seconds in zip(runs, times, strict=True):
                start = time.perf_counter()
                run()
                if iteration >= WARM_UP:
                    seconds.append(time.perf_counter() - start)
            advance(1)
    return times


def random_batch(
    checkpoint: "Checkpoint", batch_size: int, seq_len: int, seed: int = 0, *, padding: bool = True
) -> "dict[str, NDArray[np.int64]]":
    """Return random inputs of a model; with padding, every other row is shorter by a quarter."""
    from zoo.families.random_inputs import random_inputs

    spec = checkpoint.onnx_spec
    lengths = [seq_len] * batch_size
    if padding:
        for row in range(1, batch_size, 2):
            lengths[row] = seq_len - seq_len // 4
    tensors = random_inputs(spec, checkpoint.config, lengths, seed=seed)
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def _common_inputs(
    sessions: "Sequence[Session]", inputs: "dict[str, NDArray[np.int64]]"
) -> "dict[str, NDArray[np.int64]]":
    """Return the inputs that all sessions take: some runtimes read no token types."""
    common_inputs = {}
    for name, array in inputs.items():
        if all(name in session.inputs for session in sessions):
            common_inputs[name] = array
    return common_inputs


def _difference(
    expected: "dict[str, Any]",
    outputs: "dict[str, Any]",
    inputs: "dict[str, NDArray[np.int64]]",
    pooling: Pooling,
) -> float:
    """Return the largest relative difference of the outputs at tokens that are not padding."""
    import numpy as np

    mask = inputs["attention_mask"].astype(bool)
    differences = []
    if EMBEDDING in expected or EMBEDDING in outputs:
        # One of the runtimes pools.
        expected = {EMBEDDING: _embedding(expected, mask, pooling)}
        outputs = {EMBEDDING: _embedding(outputs, mask, pooling)}
    for name in expected.keys() & outputs.keys():
        a = expected[name]
        b = outputs[name]
        if a.shape[:2] == mask.shape:
            a = a[mask]
            b = b[mask]
        differences.append(np.abs(a - b).max() / np.abs(a).max())
    # The maximum of NumPy, unlike Python's, is NaN if a difference is.
    return float(np.max(differences))


def _embedding(outputs: "dict[str, Any]", mask: "NDArray[np.bool_]", pooling: Pooling) -> Any:
    if EMBEDDING in outputs:
        return outputs[EMBEDDING]
    return pool(outputs[pooling.output], mask, pooling)
