"""Random generators keyed by seed and purpose instead of a state."""

import numpy as np
from blake3 import blake3


def generator(seed: int, *purpose: int | str) -> np.random.Generator:
    """Return a counter-based generator (Philox) of a key.

    Args:
        seed: seed of the run.
        *purpose: the rest of the key, such as ``"masks", step, row``.
    """
    # Every draw of a run has a key: ``generator(seed, "masks", step, row)``. There is no state to
    # save, and a run that is resumed, or distributed over other ranks, draws the same numbers.
    return np.random.Generator(np.random.Philox(key=_key(seed, purpose)))


def torch_seed(seed: int, *purpose: int | str) -> int:
    """Return a seed for torch's generators, below 2**63; see ``generator``."""
    return _key(seed, purpose) >> 65


def key_bytes(seed: int, purpose: tuple[int | str, ...], size: int) -> bytes:
    """Return a hash of the key, of any number of bytes."""
    words = "\0".join(f"{type(part).__name__}:{part}" for part in (seed, *purpose))
    return blake3(words.encode()).digest(size)


def _key(seed: int, purpose: tuple[int | str, ...]) -> int:
    """Return a 128-bit hash of the key."""
    return int.from_bytes(key_bytes(seed, purpose, 16), "little")
