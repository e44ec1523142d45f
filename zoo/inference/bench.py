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

WARM_UP = 2
PERCENTILES = (50, 95, 99)  # of the latency
DEFAULT_SEQ_LEN = 128
DEFAULT_NEW_TOKENS = 32
TOLERANCE = {
    "float64": 1e-3,
    "float32": 1e-3,
    "float16": 3e-2,
    "bfloat16": 2e-1,
    # of random tokens; on text, quantized graphs were compared when they were exported
    "int8": 0.5,
    "int4": 1.0,
}
QUANTIZED = 1.0  # of other precisions of runtimes, such as q4_0


@dataclass(frozen=True)
class Measurement:
    """Measurement of one backend."""

    backend: str
    device: str  # device it ran on
    dtype: str  # dtype of the computation
    seconds: tuple[float, ...]  # seconds of each iteration
    latencies: tuple[float, ...]  # seconds of each iteration with one row
    bytes: int  # size of the files of the model
    tokens: int  # number of tokens per iteration: of new ones, where the model generates
    # largest difference from the first backend, relative to the largest magnitude of the output
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
    spec = checkpoint.onnx_spec
    return min([DEFAULT_SEQ_LEN, *(limit - new_tokens for limit in spec.limits.values())])


def default_new_tokens(checkpoint: "Checkpoint", seq_len: int | None) -> int:
    """Return 32 tokens, or what the limit of the model leaves; 0 if it does not generate."""
    if not checkpoint.head.has_cache:
        return 0
    if checkpoint.export_target == "onnx" and not read_export_info(checkpoint).cache:
        return 0
    record: Any = checkpoint.manifest.export or {}
    if checkpoint.export_target not in (None, "onnx") and not record.get("generation"):
        return 0  # its runtime did not generate text when it was exported
    spec = checkpoint.onnx_spec
    rest = [limit - (seq_len or limit // 2) for limit in spec.limits.values()]
    return max(0, min([DEFAULT_NEW_TOKENS, *rest]))


def measure(
    checkpoint: "Checkpoint",
    sessions: "Sequence[Session]",
    *,
    batch_size: int,
    seq_len: int,  # the last quarter of every other row is padding
    iterations: int,
    new_tokens: int = 0,
    seed: int = 0,
) -> list[Measurement]:
    """Time sessions on the same random batch, in turn within each iteration."""
    # Models that generate text are timed while they do so, greedily and with a cache.
    if new_tokens:
        _check_room(checkpoint, seq_len, new_tokens)
    inputs = _common(sessions, random_batch(checkpoint, batch_size, seq_len, seed))
    outputs = [session.run(inputs) for session in sessions]
    pooling = checkpoint.model.pooling or Pooling()
    differences = [_difference(outputs[0], output, inputs, pooling) for output in outputs]
    for session, difference in zip(sessions, differences, strict=True):
        both = (session, sessions[0])
        if not difference <= max(map(accepted_difference, both)):
            names = [f"{compared.backend} in {compared.dtype}" for compared in both]
            raise VerificationError(
                f"{names[0]} differs from {names[1]} by {difference:.1e} of the largest magnitude: "
                "a comparison of their speed would mean nothing"
            )
    times, latencies = (
        time_in_turn(
            [repeatable_run(session, timed, new_tokens) for session in sessions], iterations
        )
        for timed in (
            _common(sessions, random_batch(checkpoint, rows, seq_len, seed, padding=not new_tokens))
            for rows in (batch_size, 1)
        )
    )
    tokens = batch_size * (new_tokens or seq_len)
    return [
        Measurement(
            s.backend,
            s.device,
            s.dtype,
            tuple(seconds),
            tuple(single),
            s.stored_bytes,
            tokens,
            difference,
        )
        for s, seconds, single, difference in zip(
            sessions, times, latencies, differences, strict=True
        )
    ]


def accepted_difference(session: "Session") -> float:
    """Return the largest accepted difference of a session from the first one."""
    return max(session.tolerance or 0, TOLERANCE.get(session.dtype, QUANTIZED))


def _check_room(checkpoint: "Checkpoint", seq_len: int, new_tokens: int) -> None:
    spec = checkpoint.onnx_spec
    together = sum if "decoder_input_ids" not in spec.inputs else max
    for limit in spec.limits.values():
        if together((seq_len, new_tokens)) > limit:
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

    # ONNX Runtime copies its inputs from the CPU to its device
    device = "cpu" if session.backend == "onnx" else session.device
    prompts = {"input_ids": torch.from_numpy(inputs["input_ids"]).to(device)}
    settings = GenerationConfig(max_new_tokens=new_tokens)
    return partial(generate, session.generator(), prompts, settings)


def time_in_turn(runs: Sequence[Callable[[], object]], iterations: int) -> list[list[float]]:
    """Return the seconds of each iteration, of functions that run in turn within each."""
    times: list[list[float]] = [[] for _ in runs]
    with progress("measuring", iterations + WARM_UP, unit="batches") as advance:
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
    """Return random inputs of a model."""
    from zoo.families.random_inputs import random_inputs

    spec = checkpoint.onnx_spec
    lengths = [seq_len - row % 2 * padding * (seq_len // 4) for row in range(batch_size)]
    tensors = random_inputs(spec, checkpoint.config, lengths, seed=seed)
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def _common(
    sessions: "Sequence[Session]", inputs: "dict[str, NDArray[np.int64]]"
) -> "dict[str, NDArray[np.int64]]":
    """Return the inputs that all sessions take: some runtimes read no token types."""
    return {n: array for n, array in inputs.items() if all(n in s.inputs for s in sessions)}


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
    if EMBEDDING in {*expected, *outputs}:  # of a runtime that pools
        expected, outputs = (
            {EMBEDDING: o[EMBEDDING] if EMBEDDING in o else pool(o[pooling.output], mask, pooling)}
            for o in (expected, outputs)
        )
    for name in expected.keys() & outputs.keys():
        a = expected[name]
        b = outputs[name]
        if a.shape[:2] == mask.shape:
            a = a[mask]
            b = b[mask]
        differences.append(np.abs(a - b).max() / np.abs(a).max())
    return float(np.max(differences))  # np.max propagates NaN
