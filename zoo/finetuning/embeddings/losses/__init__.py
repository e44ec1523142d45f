"""Losses of embeddings, one a module; their settings are options of the tasks.

A loss is a subclass of ``zoo.finetuning.embeddings.losses.base.EmbeddingLoss`` and a line in
``BUILT_IN``; a plugin's is an entry point of ``zoo.api1.embedding_losses``.
"""

from typing import TYPE_CHECKING, Any

from zoo.plugins.entry_point_objects import import_class, named_objects

if TYPE_CHECKING:
    from zoo.finetuning.embeddings.losses.base import EmbeddingLoss

GROUP = "embedding_losses"
MODULE = "zoo.finetuning.embeddings.losses"
# Name of a loss -> its class, imported when it is used.
BUILT_IN = {
    "multiple-negatives": f"{MODULE}.multiple_negatives:MultipleNegatives",
    "cosent": f"{MODULE}.cosent:CoSENT",
    "cosine": f"{MODULE}.cosine:CosineError",
    "triplet": f"{MODULE}.triplet:Triplet",
    "softmax": f"{MODULE}.softmax:Softmax",
    "margin-mse": f"{MODULE}.margins:MarginError",
    "kl-div": f"{MODULE}.margins:MarginDivergence",
}


def loss_names() -> tuple[str, ...]:
    """Return the names of all losses, those of plugins included."""
    return (*BUILT_IN, *(named.name for named in named_objects(GROUP)))


def loss_type(name: str) -> "type[EmbeddingLoss]":
    """Return the class of a loss; raises ``UsageError`` if there is none of this name."""
    from zoo.finetuning.embeddings.losses.base import EmbeddingLoss

    loss: Any = import_class(GROUP, name, BUILT_IN, EmbeddingLoss)
    return loss  # type: ignore[no-any-return]
