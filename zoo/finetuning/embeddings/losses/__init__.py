"""Losses of embeddings, one a module; their settings are options of the tasks.

A loss is a subclass of ``zoo.finetuning.embeddings.losses.base.EmbeddingLoss`` and a line in
``BUILT_IN``; a plugin's is an entry point of ``zoo.api1.embedding_losses``.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from zoo.errors import PluginError
from zoo.plugins.catalog import Catalog

if TYPE_CHECKING:
    from zoo.finetuning.embeddings.losses.base import EmbeddingLoss

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
EMBEDDING_LOSSES: "Catalog[EmbeddingLoss]" = Catalog(
    "embedding_losses", f"{MODULE}.base:EmbeddingLoss", BUILT_IN
)


def loss_types() -> "Iterator[type[EmbeddingLoss]]":
    """Yield the classes of all losses; a loss that cannot be imported is left out."""
    for name in EMBEDDING_LOSSES.names():
        try:
            yield EMBEDDING_LOSSES.find(name)
        except PluginError:  # It is reported where the loss is used.
            continue


def loss_types_of_any() -> "Iterator[type[EmbeddingLoss]]":
    """Yield the losses that compare embeddings of any representation, not only dense vectors."""
    for loss in loss_types():
        if loss.compares_any:
            yield loss
