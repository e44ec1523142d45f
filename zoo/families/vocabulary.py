"""Which weights of a model belong to its vocabulary."""

import msgspec

from zoo.errors import UsageError
from zoo.families.base import Family
from zoo.families.config import Config


def vocabulary_tensors(family: Family, config: Config, head: str) -> dict[str, int]:
    """Return name -> axis of the vocabulary, for tensors with a row or column for each token."""
    size = getattr(config, "vocab_size", None)
    if size is None or family.text_tokenizer(config) is not None:
        raise UsageError(
            f"models of {family.name} have no embeddings of tokens", "they read characters"
        )
    larger_config = msgspec.structs.replace(config, vocab_size=size + 1)
    larger_shapes = {}
    for entry in family.weights(larger_config, head).entries():
        larger_shapes[entry.target] = entry.shape
    axes = {}
    for entry in family.weights(config, head).entries():
        larger_shape = larger_shapes[entry.target]
        vocabulary_axes = []
        for axis, length in enumerate(entry.shape):
            if length != larger_shape[axis]:
                vocabulary_axes.append(axis)
        if vocabulary_axes:
            (axes[entry.target],) = vocabulary_axes
    return axes
