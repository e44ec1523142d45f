"""Readers and writers of checkpoint file formats, as a plugin."""

from typing import TYPE_CHECKING

from zoo.plugins.hookspecs import hookimpl

if TYPE_CHECKING:
    from zoo.io.tensors.formats import Format


@hookimpl
def zoo_formats() -> "list[Format]":
    """Return the file formats of this package."""
    from zoo_converters.gguf import Gguf
    from zoo_converters.hdf5 import Hdf5
    from zoo_converters.npy import Npy
    from zoo_converters.safetensors import Safetensors
    from zoo_converters.tensorflow import TensorFlow
    from zoo_converters.torch_bin import ComposerCheckpoint, TorchBin
    from zoo_converters.word_vectors import WordVectors

    return [
        Safetensors(),
        TorchBin(),
        ComposerCheckpoint(),
        Hdf5(),
        TensorFlow(),
        Npy(),
        Gguf(),
        WordVectors(),
    ]
