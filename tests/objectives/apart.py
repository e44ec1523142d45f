"""Assertion that packed texts are scored as in rows of their own."""

from typing import Any

import numpy as np
import torch

from zoo.objectives.examples.packing import pack, without_special_tokens

LENGTHS = (7, 1, 12, 5)


def drawn(vocab_size: int) -> list[np.ndarray[Any, np.dtype[np.int64]]]:
    rng = np.random.default_rng(0)
    return [rng.integers(vocab_size, size=length) for length in LENGTHS]


def assert_apart(model: Any, vocab_size: int, *, positions: bool = False) -> None:
    """Check that logits of packed texts, followed by padding, equal those of single texts.

    Args:
        model: a float64 model without dropout.
        vocab_size: size of the vocabulary.
        positions: pass position ids to ``scores``.
    """
    texts = drawn(vocab_size)
    packed = pack([without_special_tokens(text) for text in texts], length=sum(LENGTHS) + 3, pad=0)
    row = {k: torch.from_numpy(v)[None] for k, v in packed.arrays(token_types=False).items()}
    with torch.no_grad():
        hidden = model.encode(**row)
        logits = model.scores(hidden, row["position_ids"]) if positions else model.scores(hidden)
        for number, text in enumerate(texts, 1):
            alone = model(torch.from_numpy(text)[None])["logits"][0]
            mine = logits[0][packed.document_ids == number]
            assert (mine - alone).abs().max() < 1e-12, number
