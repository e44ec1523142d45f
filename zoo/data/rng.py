"""Random numbers that depend on what they are for, and on nothing that happened before.

Every draw of a run is named: ``generator(seed, "masks", step, row)``. So there is no state to
save, and a run that is resumed, or split over other ranks, draws what it would have drawn.
"""

import numpy as np
from blake3 import blake3


def generator(seed: int, *purpose: int | str) -> np.random.Generator:
    """Return a generator for one purpose: Philox, a counter-based one, under a key of its own.

    Args:
        seed: of the run.
        *purpose: what the draws are for, such as ``"masks", step, row``.
    """
    return np.random.Generator(np.random.Philox(key=_key(seed, purpose)))


def torch_seed(seed: int, *purpose: int | str) -> int:
    """Return a seed for torch's generators, below 2**63; see ``generator``."""
    return _key(seed, purpose) >> 65


def _key(seed: int, purpose: tuple[int | str, ...]) -> int:
    """Return 128 bits that are the same for the same purpose alone."""
    words = "\0".join(f"{type(part).__name__}:{part}" for part in (seed, *purpose))
    return int.from_bytes(blake3(words.encode()).digest(16), "little")
