"""Weights of the modules of a sentence encoder, each in the file of its folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.io.paths import safe_join
from zoo.io.tensors.safetensors import SafetensorsReader
from zoo.sentence_models.modules import MODULE_WEIGHTS, require_shapes, weighted_modules
from zoo.sentence_models.pooling import Pooling

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    ModuleWeights = Mapping[str, Mapping[str, NDArray[np.floating[Any]]]]


def module_weight_files(pooling: Pooling | None) -> list[str]:
    """Return the names of the files with the weights of modules, of all representations."""
    folders = pooling.weighted_modules() if pooling else {}
    return [f"{folder}/{MODULE_WEIGHTS}" for folder in folders]


def read_module_weights(directory: Path, pooling: Pooling | None) -> "ModuleWeights":
    """Return folder -> name -> weight in float32 or float64, for the modules with weights."""
    import numpy as np

    weights: dict[str, dict[str, NDArray[Any]]] = {}
    if pooling is None:
        return weights
    for folder, shapes in weighted_modules(pooling.steps).items():
        file = f"{pooling.checkpoint_folder(folder)}/{MODULE_WEIGHTS}"
        path = safe_join(directory, file, str(directory))
        with SafetensorsReader([path]) as reader:
            found = {name: info.shape for name, info in reader.tensors.items()}
            require_shapes(found, shapes, str(path))
            read = {name: reader.read(name) for name in shapes}
            for name, array in read.items():
                if reader.tensors[name].dtype == "BF16":
                    import ml_dtypes

                    read[name] = array.view(ml_dtypes.bfloat16)
        weights[folder] = {
            name: array if array.dtype == np.float64 else array.astype(np.float32)
            for name, array in read.items()
        }
    return weights
