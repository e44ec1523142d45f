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

Every class below takes a batch as ``input_ids``, ``attention_mask`` and ``token_type_ids``,
int64 and (batch, tokens) each. A mask of ``None`` says that all tokens are real, types of
``None`` that there is one text. All return a dict of named outputs.
"""

from torch import Tensor, nn

from zoo.nn.attention import padding_mask
from zoo.nn.blocks import PostNormBlock
from zoo.nn.embeddings import Embeddings
from zoo.nn.heads import MaskedTokenHead, Pooler
from zoo.nn.init import init_weights
from zoo_bert.config import BertConfig


class Bert(nn.Module):
    """The trunk, which all heads share. A head adds a module and says in ``outputs`` what for.

    Args:
        config: the shape.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.embeddings = Embeddings(
            vocab_size=config.vocab_size,
            max_positions=config.max_positions,
            type_vocab_size=config.type_vocab_size,
            hidden_size=config.hidden_size,
            layer_norm_eps=config.layer_norm_eps,
            dropout=config.dropout,
        )
        self.layers = nn.ModuleList(
            PostNormBlock(
                hidden_size=config.hidden_size,
                num_heads=config.num_heads,
                intermediate_size=config.intermediate_size,
                act=config.activation,
                layer_norm_eps=config.layer_norm_eps,
                dropout=config.dropout,
                attention_dropout=config.attention_dropout,
            )
            for _ in range(config.num_layers)
        )

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Run the trunk, then the head."""
        x = self.embeddings(input_ids, token_type_ids)  # (batch, tokens, hidden)
        mask = padding_mask(attention_mask, x.dtype)  # (batch, 1, 1, tokens)
        for layer in self.layers:
            x = layer(x, mask)
        return self.outputs(x)

    def outputs(self, hidden: Tensor) -> dict[str, Tensor]:
        """Read the head's outputs off the last block's, (batch, tokens, hidden)."""
        return {"last_hidden_state": hidden}


class PooledBert(Bert):
    """The trunk and the pooler: a vector for each token, and one for the text."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.pooler = Pooler(config.hidden_size)

    def outputs(self, hidden: Tensor) -> dict[str, Tensor]:
        """See ``Bert``."""
        return {"last_hidden_state": hidden, "pooler_output": self.pooler(hidden)}


class MaskedLM(Bert):
    """Which piece stood at each place? The first objective."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.head = MaskedTokenHead(
            hidden_size=config.hidden_size,
            vocab_size=config.vocab_size,
            act=config.activation,
            layer_norm_eps=config.layer_norm_eps,
            tied=config.tie_embeddings,
        )

    def outputs(self, hidden: Tensor) -> dict[str, Tensor]:
        """See ``Bert``."""
        return {"logits": self.head(hidden, self.embeddings.tokens)}  # (batch, tokens, vocabulary)


class Pretraining(MaskedLM):
    """Both objectives: the missing pieces, and whether the second text followed the first."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.pooler = Pooler(config.hidden_size)
        self.head.next_sentence = nn.Linear(config.hidden_size, 2)  # it followed, it did not

    def outputs(self, hidden: Tensor) -> dict[str, Tensor]:
        """See ``Bert``."""
        follows = self.head.next_sentence(self.pooler(hidden))  # type: ignore[operator]
        return {**super().outputs(hidden), "seq_relationship_logits": follows}


class SequenceClassification(Bert):
    """What is said of the text as a whole: a class, several, or a number."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.pooler = Pooler(config.hidden_size)
        self.dropout = _classifier_dropout(config)
        self.head = nn.Linear(config.hidden_size, len(config.labels))

    def outputs(self, hidden: Tensor) -> dict[str, Tensor]:
        """See ``Bert``."""
        return {"logits": self.head(self.dropout(self.pooler(hidden)))}  # (batch, labels)


class TokenClassification(Bert):
    """What is said of each token, such as the kind of name it belongs to."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.dropout = _classifier_dropout(config)
        self.head = nn.Linear(config.hidden_size, len(config.labels))

    def outputs(self, hidden: Tensor) -> dict[str, Tensor]:
        """See ``Bert``."""
        return {"logits": self.head(self.dropout(hidden))}  # (batch, tokens, labels)


class QuestionAnswering(Bert):
    """Where in the second text the answer to the first starts, and where it ends."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.head = nn.Linear(config.hidden_size, 2)

    def outputs(self, hidden: Tensor) -> dict[str, Tensor]:
        """See ``Bert``."""
        start, end = self.head(hidden).unbind(dim=-1)  # (batch, tokens) each
        return {"start_logits": start, "end_logits": end}


def _classifier_dropout(config: BertConfig) -> nn.Dropout:
    own = config.classifier_dropout
    return nn.Dropout(config.dropout if own is None else own)


_HEADS: dict[str, type[Bert]] = {
    "masked-lm": MaskedLM,
    "pretraining": Pretraining,
    "sequence-classification": SequenceClassification,
    "token-classification": TokenClassification,
    "question-answering": QuestionAnswering,
}


def build(config: BertConfig, head: str) -> Bert:
    """Return a model with fresh weights, drawn as the paper's were."""
    bare = PooledBert if config.pooler else Bert
    model = (bare if head == "none" else _HEADS[head])(config)
    init_weights(model, std=config.initializer_range)
    return model
