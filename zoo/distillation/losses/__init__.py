"""Losses that compare a student with its teachers, one a module.

A loss is a subclass of ``zoo.distillation.losses.base.DistillationLoss`` and a line in
``BUILT_IN``; a plugin's is an entry point of ``zoo.api1.distillation_losses``. A term of a recipe
has the name of its loss as ``kind``.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from zoo.errors import PluginError
from zoo.plugins.catalog import Catalog

if TYPE_CHECKING:
    from zoo.distillation.losses.base import DistillationLoss

MODULE = "zoo.distillation.losses"
# Name of a loss -> its class, imported when it is used.
BUILT_IN = {
    "attention-kl": f"{MODULE}.attention_kl:AttentionKL",
    "attention-mse": f"{MODULE}.attention_mse:AttentionMSE",
    "embeddings": f"{MODULE}.embeddings:EmbeddingMSE",
    "first-token-mse": f"{MODULE}.first_token_mse:FirstTokenMSE",
    "hidden-cosine": f"{MODULE}.hidden_cosine:HiddenCosine",
    "hidden-mse": f"{MODULE}.hidden_mse:HiddenMSE",
    "kl": f"{MODULE}.kl:KLDivergence",
    "logits-mse": f"{MODULE}.logits_mse:LogitsMSE",
    "relations": f"{MODULE}.relations:Relations",
    "sentence-mse": f"{MODULE}.sentence_mse:SentenceMSE",
}
DISTILLATION_LOSSES: "Catalog[DistillationLoss]" = Catalog(
    "distillation_losses", f"{MODULE}.base:DistillationLoss", BUILT_IN
)


def loss_types() -> "Iterator[type[DistillationLoss]]":
    """Yield the classes of all losses; a loss that cannot be imported is left out."""
    for name in DISTILLATION_LOSSES.names():
        try:
            yield DISTILLATION_LOSSES.find(name)
        except PluginError:  # It is reported where the loss is used.
            continue
