"""Encoding texts in int8 in torch: a scale for each token, as in zoo, and one for the whole batch.

    python -m benchmarks.int8_scales MODEL --texts FILE [--threads 1] [--rounds 7]

MODEL is an encoder in the Hub's layout, FILE has a text on each line. 96 of them are encoded in
batches of 16 of similar length. The embeddings, the means of the last hidden states, are compared
with torch in float32; and each text must have the same one in another batch, with a scale for each
token.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from benchmarks._common import cpu_table, machine, versions
from benchmarks.bounds import encoded, encoding_parser, run_all
from zoo.nn.kernels import int8_linear as kernel

SCALES = {"batch": "one scale for the batch", "token": "a scale for each token"}
SAME = 1e-5  # largest difference of an embedding in another batch, of its largest magnitude


def main() -> None:
    options = encoding_parser(__doc__).parse_args()
    print(f"{machine(options.threads)}; {versions('torch')}\n")
    print(measured(options.model, options.texts, options.threads, options.rounds))


def measured(model: str, texts: Path, threads: int, rounds: int) -> str:
    """Return the table of both kinds of scales."""
    from zoo.conversion.cache import resolve_checkpoint
    from zoo.exporting.session import open_session

    checkpoint = resolve_checkpoint(model)
    batches = list(encoded(checkpoint, texts))
    torch.set_num_threads(threads)
    exact, session = (
        open_session(checkpoint, "cpu", dtype=dtype, threads=threads)
        for dtype in ("float32", "int8")
    )
    products: dict[str, Callable[..., Tensor]] = {
        "batch": one_scale,
        "token": kernel.int8_linear,
    }

    def by(scales: str) -> list[Any]:
        with mock.patch.object(kernel, "int8_linear", products[scales]):
            return run_all(session, batches)

    expected = embeddings(run_all(exact, batches), batches)
    found = {scales: embeddings(by(scales), batches) for scales in SCALES}
    alone = [{name: rows[:1] for name, rows in batch.items()} for batch in batches]
    first = embeddings(run_all(session, alone), alone)
    same = np.concatenate([found["token"][16 * k : 16 * k + 1] for k in range(len(batches))])
    np.testing.assert_allclose(first, same, rtol=0, atol=SAME * float(np.abs(same).max()))
    columns = {SCALES[scales]: f"{cosines(found[scales], expected).min():.4f}" for scales in SCALES}
    sides = {SCALES[scales]: partial(by, scales) for scales in SCALES}
    return cpu_table(sides, rounds, {"lowest cosine to float32": columns})


def one_scale(x: Tensor, matrix: kernel.PackedMatrix) -> Tensor:
    """Compute ``int8_linear`` with one scale and one zero for all rows."""
    low, high = (bound.item() for bound in torch.aminmax(x))
    low = min(low, 0.0)
    high = max(high, 0.0)
    scale = (high - low) / kernel.STEPS or 1.0
    zero = round(-low / scale)
    integers = torch.add(x.new_tensor(zero + 0.5), x, alpha=1 / scale).to(torch.int16)
    bias = matrix.offsets[1]
    return kernel.multiply(integers.to(torch.uint8), matrix, scale, zero).add_(bias)


def embeddings(outputs: list[Any], batches: list[Any]) -> Any:
    """Return the mean of the last hidden states of each text, (texts, hidden)."""
    means = []
    for output, batch in zip(outputs, batches, strict=True):
        mask = batch["attention_mask"][..., None]
        means.append((output["last_hidden_state"] * mask).sum(1) / mask.sum(1))
    return np.concatenate(means)


def cosines(first: Any, second: Any) -> Any:
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return (first * second).sum(1) / lengths


if __name__ == "__main__":
    main()
