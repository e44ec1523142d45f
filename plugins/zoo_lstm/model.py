"""LSTM language models (Hochreiter and Schmidhuber 1997; Dai and Le 2015, arXiv:1511.01432).

A layer reads a text from left to right. Its state after a token is a hidden state and a cell:

    i, f, o = sigmoid(W x + U h + b), each with weights of its own
    g = tanh(W x + U h + b)
    c' = f c + i g
    h' = o tanh(c')

A language model predicts the next token from h' (section 2, "recurrent language models"). A
sequence autoencoder reads a text and writes it again, with the same weights: the state after the
text is all that it keeps of it. Both are the same model, trained by the objectives ``causal-lm``
and ``sequence-autoencoder``. A text is classified by the hidden state after its last token.

The layers are torch's, with its two biases of each gate. A batch is as in ``zoo.nn.decoder``,
padded on the right or on the left. Each document of a packed row begins with a state of zeros.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from zoo.nn.adapters.prompt import with_prompt
from zoo.nn.decoder import last_token_index
from zoo.nn.encoder import Classifier, Encoder
from zoo.nn.encoder_factory import ModelFactory, PoolerAndHead, make_embeddings
from zoo.nn.heads import (
    LinearHead,
    LMHeadMixin,
    OutputEmbeddings,
    VocabularyProjection,
    gather_rows,
)
from zoo.nn.kernels.dropout import dropout
from zoo.nn.layers.dropout import Dropout
from zoo.nn.layers.init import init_function
from zoo.nn.transformer import Embeddings
from zoo.overrides import override
from zoo_lstm.config import LstmConfig
from zoo_lstm.lstm import LstmLayer, LstmState, rows_of_documents, rows_of_padded_batch

FORGET_BIAS = 1.0  # Initial bias of the forget gate (Jozefowicz et al. 2015, section 2.2).


class WordEmbeddings(Embeddings):
    """Token embeddings of which some are read as zeros in training.

    Args:
        word_dropout: probability with which all values of a token are zero.
        **options: see ``Embeddings``.
    """

    def __init__(self, *, word_dropout: float, **options: Any) -> None:
        super().__init__(**options)
        self.word_dropout = word_dropout

    @override
    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
    ) -> Tensor:
        x = super().forward(input_ids)
        if not self.training or not self.word_dropout:
            return x
        return x * dropout(torch.ones_like(x[..., :1]), self.word_dropout, training=True)


class LstmBackbone(Encoder):
    """The embeddings and the layers."""

    @override
    def encode(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        document_ids: Tensor | None = None,
        state: LstmState | None = None,
    ) -> Tensor:
        """Run the backbone; see ``Encoder.encode``.

        Args:
            input_ids: (batch, tokens), int64.
            attention_mask: (batch, tokens), int64: 1 for tokens, 0 for padding; ``None`` for all 1.
            token_type_ids: not read.
            position_ids: not read: the order of the tokens says it.
            document_ids: (batch, tokens), int64: the document of each token of a packed row,
                counted from 1; 0 for padding. It takes the place of ``attention_mask``.
            state: the state before the first tokens, which is extended by them; ``None`` for zeros.

        Returns:
            the last layer's hidden state, (batch, tokens, hidden).
        """
        rows = None
        if document_ids is not None:
            rows = rows_of_documents(document_ids)
        elif attention_mask is not None and _has_padding(attention_mask):
            rows = rows_of_padded_batch(attention_mask)
        x: Tensor = self.embeddings(input_ids)
        for index, layer in enumerate(self.layers):
            x = layer(x, rows, None if state is None else state.layers[index])
        return x

    @override
    def encode_batch(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> Tensor:
        # The layers skip padding, so that rows need not be packed.
        return self.encode(input_ids, attention_mask)


def _has_padding(attention_mask: Tensor) -> bool:
    """Return whether a batch may have padding, as every batch of a graph."""
    return torch.compiler.is_exporting() or not bool(attention_mask.all())


class WordPrediction(OutputEmbeddings):
    """The head of language models, after dropout.

    Args:
        dropout: dropout probability of the hidden state.
        **options: see ``OutputEmbeddings``.
    """

    def __init__(self, *, dropout: float, **options: Any) -> None:
        super().__init__(**options)
        self.dropout = Dropout(dropout)

    @override
    def project(self, hidden: Tensor, embeddings: nn.Embedding) -> VocabularyProjection:
        return super().project(self.dropout(hidden), embeddings)


class LstmLM(LMHeadMixin, LstmBackbone):
    """A language model, and a ``zoo.inference.generation.decoder.SessionDecoder``.

    Prompts of different lengths are padded on the left. The state after a text takes the place of
    a cache: it has one size, however long the text is.
    """

    head: WordPrediction

    @property
    @override
    def output_embeddings(self) -> Tensor:
        decoder = self.head.decoder
        table: Tensor = self.embeddings.tokens.weight if decoder is None else decoder.weight
        return table

    @override
    def project(self, hidden: Tensor) -> VocabularyProjection:
        return self.head.project(hidden, self.embeddings.tokens)

    def prefill(
        self, inputs: Mapping[str, Tensor], max_new_tokens: int
    ) -> tuple[Tensor, LstmState]:
        """Return the logits after the prompts, and the state; see ``SessionDecoder.prefill``."""
        inputs = with_prompt(self, inputs)
        state = LstmState(len(self.layers))
        hidden = self.encode(inputs["input_ids"], inputs.get("attention_mask"), state=state)
        return self.scores(hidden[:, -1]), state

    def step(self, tokens: Tensor, state: LstmState) -> Tensor:
        """Return the logits after one more token in each row; see ``SessionDecoder.step``."""
        return self.scores(self.encode(tokens[:, None], state=state)[:, -1])


class LstmClassifier(Classifier, LstmBackbone):
    """Classification of texts by the hidden state after their last token."""

    @override
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Return the logits, (batch, labels)."""
        hidden = self.encode(input_ids, attention_mask)
        last = last_token_index(input_ids, attention_mask, None)
        return self.outputs(gather_rows(hidden, last))


class LstmFactory(ModelFactory):
    """Builds the models."""

    model_classes: ClassVar[Mapping[str, type[Encoder]]] = {
        "none": LstmBackbone,
        "causal-lm": LstmLM,
        "sequence-classification": LstmClassifier,
    }

    @override
    def build(self, head: str) -> Encoder:
        # Matrices of the layers are uniform, as torch draws them, up to the inverse root of the
        # width.
        model = super().build(head)
        for layer in model.layers:
            lstm: Any = layer
            nn.init.zeros_(lstm.lstm.bias_hh_l0)
            set_forget_bias_(lstm.lstm.bias_ih_l0, FORGET_BIAS)
        return model

    @override
    def backbone_args(self) -> dict[str, Any]:
        config = self.config
        embeddings = make_embeddings(
            config,
            WordEmbeddings,
            positions=False,
            norm=False,
            project_to=None,
            word_dropout=config.word_dropout,
        )
        layers = []
        for number in range(config.num_layers):
            inputs = config.hidden_size if number else config.embedding_size
            is_last = number == config.num_layers - 1
            dropout = 0.0 if is_last else config.dropout  # A head drops values of the last output.
            layers.append(LstmLayer(inputs, config.hidden_size, dropout))
        return {"embeddings": embeddings, "layers": layers}

    @override
    def pooler_and_head(self, head: str) -> PoolerAndHead:
        match head:
            case "none":
                return None, None
            case "causal-lm":
                return None, WordPrediction(
                    dropout=self.config.dropout,
                    hidden_size=self.width,
                    vocab_size=self.config.vocab_size,
                    tied=self.config.tie_embeddings,
                    bias=self.config.logits_bias,
                )
            case _:
                return None, LinearHead(self.width, len(self.config.labels), self.dropout)


def build(config: LstmConfig, head: str) -> Encoder:
    """Return a model with randomly initialized weights."""
    return LstmFactory(config).build(head)


@init_function
@torch.no_grad()
def set_forget_bias_(bias: Tensor, value: float) -> Tensor:
    """Set the biases of the forget gate, the second quarter, and all others to zero."""
    quarter = len(bias) // 4
    bias.zero_()
    bias[quarter : 2 * quarter] = value
    return bias
