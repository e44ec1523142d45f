"""ERNIE: Enhanced Representation through Knowledge Integration.

Sun et al. 2019, arXiv:1904.09223, and "ERNIE 2.0: A Continual Pre-training Framework for Language
Understanding", 2020, arXiv:1907.12412. BERT's architecture. From version 2.0 on, an embedding of
the task is added to those of a token: models were pretrained on several tasks, one after the other.
All other uses have task 0, as in transformers where no task is given.
"""

from typing import Any

from torch import Tensor, nn

from zoo.nn.encoder import Encoder
from zoo.nn.encoder_factory import ModelFactory, make_blocks, make_embeddings
from zoo.nn.transformer import Embeddings
from zoo.overrides import override
from zoo_ernie.config import ErnieConfig


class ErnieEmbeddings(Embeddings):
    """Embeddings with the one of task 0 added to the positions."""

    def __init__(self, *, tasks: int, hidden_size: int, **options: Any) -> None:
        super().__init__(hidden_size=hidden_size, **options)
        self.tasks = nn.Embedding(tasks, hidden_size)

    @override
    def default_positions(self, input_ids: Tensor) -> Tensor:
        return super().default_positions(input_ids) + self.tasks.weight[0]

    @override
    def embed_positions(self, position_ids: Tensor) -> Tensor:
        return super().embed_positions(position_ids) + self.tasks.weight[0]


class ErnieFactory(ModelFactory):
    """The default models of encoders, with an embedding of the task."""

    @override
    def backbone_args(self) -> dict[str, Any]:
        config = self.config
        if not config.use_task_id:
            return super().backbone_args()
        embeddings = make_embeddings(config, ErnieEmbeddings, tasks=config.task_type_vocab_size)
        return {"embeddings": embeddings, "layers": make_blocks(config)}


def build(config: ErnieConfig, head: str) -> Encoder:
    """Return a model with randomly initialized weights."""
    return ErnieFactory(config).build(head)
