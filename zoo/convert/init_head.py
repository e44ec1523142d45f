"""Initial values of a new head."""

from typing import TYPE_CHECKING

from zoo.families.config import Config
from zoo.weights import TensorMapping

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def init_tensor(entry: TensorMapping, config: Config, seed: int = 0) -> "NDArray[np.float32]":
    """Return the initial value of a parameter.

    Weights are normal with the standard deviation ``initializer_range`` of the configuration,
    biases 0, and scales of norms 1. The values depend only on the seed and the parameter name.
    """
    import numpy as np
    from blake3 import blake3

    if entry.target.endswith(".bias"):
        return np.zeros(entry.shape, np.float32)
    if len(entry.shape) == 1:
        return np.ones(entry.shape, np.float32)
    key = int.from_bytes(blake3(f"{seed}\0{entry.target}".encode()).digest(8))
    deviation = getattr(config, "initializer_range", 0.02)
    generator = np.random.Generator(np.random.Philox(key))
    return (generator.standard_normal(entry.shape) * deviation).astype(np.float32)
