"""ALBERT: A Lite BERT for Self-supervised Learning of Language Representations.

Lan, Chen, Goodman, Gimpel, Sharma and Soricut 2020, arXiv:1909.11942.

The paper in short. BERT's encoder with two savings and one other objective (section 3.1).
*Factorised embeddings*: words have narrow vectors, and one linear map takes them to the width of
the blocks. *Shared parameters*: the same block runs in every layer; in general there are groups,
each of which runs for an equal stretch of the layers. *Sentence order*: in place of BERT's second
objective, the pooled vector must tell whether two consecutive segments were swapped.

Version 2 was taught longer, on more text and without dropout.
"""

from torch import Tensor

from zoo.nn.encoder import (
    Classifier,
    Encoder,
    MaskedLM,
    MultipleChoice,
    QuestionAnswering,
    blocks,
    embeddings,
    masked_token_head,
)
from zoo.nn.heads import LinearHead, Pooler
from zoo.nn.init import init_weights
from zoo_albert.config import AlbertConfig


class Pretraining(MaskedLM):
    """Both objectives: the missing pieces, and whether two segments were swapped."""

    def outputs(self, hidden: Tensor) -> dict[str, Tensor]:
        """See ``Encoder``."""
        return {**super().outputs(hidden), "sop_logits": self.pair_scores(hidden[:, 0])}

    def pair_scores(self, firsts: Tensor) -> Tensor:
        """Score whether texts were swapped: (n, hidden) of their first tokens to (n, labels)."""
        assert self.head is not None and self.pooler is not None, "build gives it both"
        return self.head.order(self.pooler(firsts[:, None]))  # type: ignore[operator,no-any-return]


def build(config: AlbertConfig, head: str) -> Encoder:
    """Return a model with fresh weights."""
    model = _assemble(config, head)
    init_weights(model, std=config.initializer_range)
    return model


def _assemble(config: AlbertConfig, head: str) -> Encoder:
    width, labels, dropout = config.hidden_size, len(config.labels), config.classifier_dropout
    layers = blocks(config, count=config.num_groups * config.blocks_in_group)
    trunk, order = (embeddings(config, project=True), layers), config.order
    match head:
        case "none":
            return Encoder(*trunk, order=order, pooler=Pooler(width) if config.pooler else None)
        case "masked-lm":
            return MaskedLM(*trunk, order=order, head=masked_token_head(config))
        case "pretraining":
            both = masked_token_head(config)
            both.order = LinearHead(width, labels, dropout)  # swapped or not
            return Pretraining(*trunk, order=order, pooler=Pooler(width), head=both)
        case "sequence-classification":
            linear = LinearHead(width, labels, dropout)
            return Classifier(*trunk, order=order, pooler=Pooler(width), head=linear)
        case "multiple-choice":
            linear = LinearHead(width, 1, dropout)
            return MultipleChoice(*trunk, order=order, pooler=Pooler(width), head=linear)
        case "token-classification":
            return Classifier(*trunk, order=order, head=LinearHead(width, labels, dropout))
        case "question-answering":
            return QuestionAnswering(*trunk, order=order, head=LinearHead(width, 2))
    raise ValueError(f"ALBERT has no head {head!r}")
