"""Losses of embeddings, one a module; their settings are options of the tasks.

A loss is a subclass of ``zoo.finetuning.embeddings.losses.base.EmbeddingLoss`` and a line in
``BUILT_IN``; a plugin's is an entry point of ``zoo.api1.embedding_losses``.
"""

from typing import TYPE_CHECKING

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
