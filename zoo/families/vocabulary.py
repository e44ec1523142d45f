"""Which weights of a model belong to its vocabulary."""

import msgspec

from zoo.errors import UsageError
from zoo.families.base import Family
from zoo.families.config import Config


def vocabulary_tensors(family: Family, config: Config, head: str) -> dict[str, int]:
    """Return name -> axis of the vocabulary, of each tensor with a row or column for each token."""
    size = getattr(config, "vocab_size", None)
    if size is None or family.text_tokenizer(config) is not None:
        raise UsageError(
            f"models of {family.name} have no embeddings of tokens", "they read characters"
        )
    before, after = (
        {entry.target: entry.shape for entry in family.weights(each, head).entries()}
        for each in (config, msgspec.structs.replace(config, vocab_size=size + 1))
    )
    axes = {}
    for name, shape in before.items():
        if changed := [k for k, n in enumerate(shape) if n != after[name][k]]:
            (axes[name],) = changed
    return axes
