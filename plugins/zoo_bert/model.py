"""BERT: Bidirectional Encoder Representations from Transformers.

Devlin, Chang, Lee and Toutanova 2018, "BERT: Pre-training of Deep Bidirectional Transformers for
Language Understanding", arXiv:1810.04805.

The paper in short. A text, or a pair of texts, is cut into word pieces and framed as
``[CLS] first [SEP] second [SEP]``. Each token's vector is the sum of three learned embeddings:
which piece it is, where it stands, and whether it is in the first or the second text (figure 2).
A stack of Transformer encoder blocks follows, in which every token sees all others, to its left
and to its right (section 3); each block normalises after its residual sums.

Two objectives teach it (section 3.1). *Masked LM*: some pieces are hidden, and the vector at
such a place must tell the piece that was there. *Next sentence*: the vector of ``[CLS]``, sent
through the *pooler*, must tell whether the second text really followed the first. For a task,
the pretraining head gives way to one linear layer (figure 4): on the pooled vector to classify
a text, on each token's vector to label tokens, and with two outputs per token to score where an
answer starts and ends.

The parts are in ``zoo.nn``; this file says how they go together.
"""

from torch import Tensor, nn

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
from zoo_bert.config import BertConfig


class Pretraining(MaskedLM):
    """Both objectives: the missing pieces, and whether the second text followed the first."""

    def outputs(self, hidden: Tensor) -> dict[str, Tensor]:
        """See ``Encoder``."""
        return {
            **super().outputs(hidden),
            "seq_relationship_logits": self.pair_scores(hidden[:, 0]),
        }

    def pair_scores(self, firsts: Tensor) -> Tensor:
        """Score whether texts follow each other: (n, hidden) of their first tokens to (n, 2)."""
        assert self.head is not None and self.pooler is not None, "build gives it both"
        return self.head.next_sentence(self.pooler(firsts[:, None]))  # type: ignore[operator,no-any-return]


def build(config: BertConfig, head: str) -> Encoder:
    """Return a model with fresh weights, drawn as the paper's were."""
    model = _assemble(config, head)
    init_weights(model, std=config.initializer_range)
    return model


def _assemble(config: BertConfig, head: str) -> Encoder:
    width, labels, own = config.hidden_size, len(config.labels), config.classifier_dropout
    dropout = config.dropout if own is None else own
    trunk = embeddings(config), blocks(config)
    match head:
        case "none":
            return Encoder(*trunk, pooler=Pooler(width) if config.pooler else None)
        case "masked-lm":
            return MaskedLM(*trunk, head=masked_token_head(config))
        case "pretraining":
            both = masked_token_head(config)
            both.next_sentence = nn.Linear(width, 2)  # it followed, it did not
            return Pretraining(*trunk, pooler=Pooler(width), head=both)
        case "sequence-classification":
            linear = LinearHead(width, labels, dropout)
            return Classifier(*trunk, pooler=Pooler(width), head=linear)
        case "multiple-choice":
            return MultipleChoice(*trunk, pooler=Pooler(width), head=LinearHead(width, 1, dropout))
        case "token-classification":
            return Classifier(*trunk, head=LinearHead(width, labels, dropout))
        case "question-answering":
            return QuestionAnswering(*trunk, head=LinearHead(width, 2))
    raise ValueError(f"BERT has no head {head!r}")
