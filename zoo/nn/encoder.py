"""Text encoders: backbone, a class for each head, and the factory that builds them.

A batch has ``input_ids``, ``attention_mask`` and ``token_type_ids``, int64 and (batch, tokens)
each. A mask of ``None`` means all 1, types of ``None`` all 0. All models return a dict of named
outputs. The arithmetic is in ``zoo.nn.transformer`` and ``zoo.nn.heads``.

In training, several documents may share a row (packing): ``document_ids`` number them from 1,
``position_ids`` count within each, and attention is restricted to tokens of the same document.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from zoo.nn.heads import (
    ClassifierMixin,
    HeadMixin,
    LinearHead,
    MLMHead,
    Pooler,
    SpanMixin,
    VocabularyProjection,
)
from zoo.nn.layers.init import init_weights
from zoo.nn.layers.scalar_mix import ScalarMix
from zoo.nn.packed_attention import DocumentOffsets
from zoo.nn.positions import AttentionInputs, Positions
from zoo.nn.transformer import (
    Embeddings,
    PostNormBlock,
    SelfAttention,
    documents_mask,
    packed_mask,
    padding_mask,
)


class Encoder(HeadMixin):
    """The backbone: embeddings, blocks and an optional final norm. Subclasses add a head.

    Args:
        embeddings: maps token, type and position ids to (batch, tokens, hidden).
        layers: the blocks, which map (batch, tokens, hidden) and a mask to the same shape.
        final_norm: norm after the last block.
        pooler: maps (batch, tokens, hidden) to one vector per row, (batch, hidden).
        head: maps the hidden state, or the pooler's output, to the outputs.
        mix: maps all hidden states, of the embeddings first, to the one that the head reads;
            ``None`` to take the last one.
        order: indices of the blocks in the order in which they run, where blocks share weights;
            ``None`` for each once.

    Attributes:
        adds_bias: whether ``attention_inputs`` adds a bias to the mask, so that attention takes
            no offsets of documents, and computes no causal mask itself.
    """

    adds_bias: ClassVar[bool] = False

    def __init__(
        self,
        embeddings: nn.Module,
        layers: Iterable[nn.Module],
        *,
        final_norm: nn.Module | None = None,
        pooler: nn.Module | None = None,
        head: nn.Module | None = None,
        mix: nn.Module | None = None,
        order: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self.embeddings = embeddings
        self.layers = nn.ModuleList(layers)
        self.final_norm = final_norm
        self.pooler = pooler
        self.head = head
        self.mix = mix
        self.order = range(len(self.layers)) if order is None else tuple(order)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Run backbone and head; see the module for the inputs."""
        return self.outputs(self.encode(input_ids, attention_mask, token_type_ids))

    def encode(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        document_ids: Tensor | None = None,
    ) -> Tensor:
        """Run the backbone.

        Args:
            input_ids: (batch, tokens), int64.
            attention_mask: (batch, tokens), int64: 1 for tokens, 0 for padding; ``None`` for all 1.
            token_type_ids: (batch, tokens), int64; ``None`` for all 0.
            position_ids: (batch, tokens), int64, from 0 in each document of a packed row;
                ``None`` where each row is one document.
            document_ids: (batch, tokens), int64: the document of each token of a packed row,
                counted from 1; 0 for padding. It takes the place of ``attention_mask``.

        Returns:
            the last hidden state, (batch, tokens, hidden).
        """
        x: Tensor = self.embeddings(input_ids, token_type_ids, position_ids)
        mask: Any = padding_mask(attention_mask, x.dtype)  # (batch, 1, 1, tokens)
        if document_ids is not None:
            mask = self.documents_mask(document_ids, x)
        if position_ids is None:
            position_ids = torch.arange(x.shape[1], device=x.device)[None]
        inputs = self.attention_inputs(x, mask, Positions(position_ids, position_ids))
        before = list[Tensor]()
        for index, layer_inputs in zip(self.order, inputs, strict=True):
            self.keep_for_mix(before, x)
            x = self.layers[index](x, *layer_inputs.arguments())
        return self.mix_layers(before, self.apply_final_norm(x))

    def keep_for_mix(self, states: list[Tensor], x: Tensor) -> None:
        """Append a hidden state to a list if there is a mix; else it is not kept in memory."""
        if self.mix is not None:
            states.append(x)

    def mix_layers(self, before: Sequence[Tensor], last: Tensor) -> Tensor:
        """Return the hidden state that the head reads.

        Args:
            before: the inputs of all blocks, (batch, tokens, hidden) each, if there is a mix.
            last: the output of the last block, after the final norm if there is one.
        """
        mixed: Tensor = last if self.mix is None else self.mix([*before, last])
        return mixed

    def documents_mask(
        self, document_ids: Tensor, x: Tensor, *, causal: bool = False
    ) -> Tensor | DocumentOffsets:
        """Return the mask of packed rows, (batch, 1, tokens, tokens), or the documents' offsets."""
        if self.adds_bias:
            return packed_mask(document_ids, document_ids, x.dtype, causal=causal)
        return documents_mask(document_ids, x, causal=causal)

    def attention_inputs(
        self, x: Tensor, mask: Tensor | DocumentOffsets | None, positions: Positions
    ) -> Sequence[AttentionInputs]:
        """Return mask and positions for the attention of each layer, in the order of the layers.

        A model with relative positions overrides it: with a rotation of queries and keys
        (``zoo.nn.positions.Rotary``), or with a bias that is added to the mask, where
        ``adds_bias`` is ``True``.

        Args:
            x: embeddings, (batch, tokens, hidden).
            mask: excludes padding, other documents and, in decoders, later tokens.
            positions: positions of the tokens.
        """
        return [AttentionInputs(mask)] * len(self.order)

    def apply_final_norm(self, x: Tensor) -> Tensor:
        """Normalize the output of the last block, if there is a final norm."""
        return x if self.final_norm is None else self.final_norm(x)

    def outputs(self, hidden: Tensor) -> dict[str, Tensor]:
        """Return the named outputs for the last hidden state, (batch, tokens, hidden)."""
        outputs = {"last_hidden_state": hidden}
        if self.pooler is not None:
            outputs["pooler_output"] = self.pooler(hidden)
        return outputs

    def apply_head(self, hidden: Tensor, *head_args: Any) -> Tensor:
        """Run the head on the pooler's output if there is a pooler, else on the hidden state."""
        pooled = hidden if self.pooler is None else self.pooler(hidden)
        return super().apply_head(pooled, *head_args)


class Classifier(ClassifierMixin, Encoder):
    """Token classification, (batch, tokens, labels); with a pooler, of rows, (batch, labels)."""


class MaskedLM(Encoder):
    """Masked language modelling: logits, (batch, tokens, vocabulary)."""

    def outputs(self, hidden: Tensor) -> dict[str, Tensor]:
        """Return the logits of all tokens."""
        return {"logits": self.scores(hidden)}

    def scores(self, hidden: Tensor) -> Tensor:
        """Return the logits over the vocabulary: (..., hidden) to (..., vocabulary)."""
        assert self.head is not None, "the factory builds one"
        return self.head(hidden, self.embeddings.tokens)  # type: ignore[no-any-return]

    def project(self, hidden: Tensor) -> VocabularyProjection:
        """Return the projection to the logits of (..., hidden)."""
        assert isinstance(self.head, MLMHead), "the factory builds one"
        embeddings: Any = self.embeddings
        return self.head.project(hidden, embeddings.tokens)

    @property
    def vocab_size(self) -> int:
        """Number of tokens in the vocabulary."""
        assert isinstance(self.head, MLMHead), "the factory builds one"
        return self.head.vocab_size


class MLMWithPairHead(MaskedLM):
    """Masked language modelling with a classifier of pairs of segments.

    Attributes:
        pair_head: name of the submodule of the head that classifies pairs.
        pair_output: name of the output with the pairs' logits, (batch, classes).
    """

    pair_head: ClassVar[str]
    pair_output: ClassVar[str]

    def outputs(self, hidden: Tensor) -> dict[str, Tensor]:
        """Return the logits of all tokens, and of the pair in each row."""
        return {**super().outputs(hidden), self.pair_output: self.pair_scores(hidden[:, 0])}

    def pair_scores(self, first_tokens: Tensor) -> Tensor:
        """Return the logits of pairs.

        Args:
            first_tokens: (pairs, hidden): the hidden state of each pair's first token.

        Returns:
            (pairs, classes).
        """
        assert self.head is not None and self.pooler is not None, "the factory builds both"
        pooled = self.pooler(first_tokens[:, None])
        return self.head.get_submodule(self.pair_head)(pooled)  # type: ignore[no-any-return]


class TokenDiscriminator(Encoder):
    """Replaced-token detection: one logit per token, (batch, tokens)."""

    def outputs(self, hidden: Tensor) -> dict[str, Tensor]:
        """Return the logits of all tokens."""
        return {"logits": self.scores(hidden)}

    def scores(self, hidden: Tensor, position_ids: Tensor | None = None) -> Tensor:
        """Return one logit per token.

        Args:
            hidden: (batch, tokens, hidden).
            position_ids: (batch, tokens), int64, from 0 in each document of a packed row, for
                heads that use the first token of each document; ``None`` for other rows.

        Returns:
            (batch, tokens).
        """
        return self.apply_head(hidden).squeeze(-1)


class QuestionAnswering(SpanMixin, Encoder):
    """Extractive question answering: start and end logits, (batch, tokens) each."""


class MultipleChoice(Classifier):
    """Multiple choice: one logit per choice. The inputs are (batch, choices, tokens) each."""

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Return the logits of the choices, (batch, choices), each a row of a larger batch."""
        mask, types = (
            None if tensor is None else tensor.flatten(0, 1)
            for tensor in (attention_mask, token_type_ids)
        )
        logits = super().forward(input_ids.flatten(0, 1), mask, types)["logits"]
        return {"logits": logits.view(input_ids.shape[:2])}


def make_embeddings(
    config: Any,
    embeddings_type: type[Embeddings] = Embeddings,
    *,
    project: bool = False,
    positions: bool = True,
    norm: bool = True,
) -> Any:
    """Return the input embeddings of a configuration.

    Args:
        config: an ``EncoderConfig``, or a configuration with the same fields.
        embeddings_type: the class to build.
        project: map the embeddings to the width of the blocks even if it is the same.
        positions: whether there are position embeddings.
        norm: whether the sum is normalized.
    """
    width = getattr(config, "embedding_size", config.hidden_size)
    return embeddings_type(
        vocab_size=config.vocab_size,
        max_positions=config.max_positions if positions else 0,
        type_vocab_size=getattr(config, "type_vocab_size", 0),
        hidden_size=width,
        layer_norm_eps=config.layer_norm_eps if norm else None,
        dropout=getattr(config, "embedding_dropout", config.dropout),
        project_to=config.hidden_size if project or width != config.hidden_size else None,
    )


def make_self_attention(config: Any, **changes: Any) -> SelfAttention:
    """Return the self-attention of a configuration.

    Args:
        config: an ``EncoderConfig``, or a configuration with the same fields.
        **changes: further arguments of ``SelfAttention``.
    """
    return SelfAttention(
        hidden_size=config.hidden_size,
        num_heads=config.num_heads,
        dropout=config.attention_dropout,
        **changes,
    )


def make_blocks(
    config: Any,
    block_type: Callable[..., PostNormBlock] = PostNormBlock,
    *,
    attention: Callable[[int], nn.Module] | None = None,
    count: int | None = None,
    **changes: Any,
) -> list[PostNormBlock]:
    """Return the blocks of a configuration.

    Args:
        config: an ``EncoderConfig``, or a configuration with the same fields.
        block_type: the class to build.
        attention: maps the index of a block to its attention; ``None`` for ``SelfAttention``.
        count: number of blocks; ``None`` for ``num_layers``.
        **changes: further arguments of ``block_type``.
    """
    block_args = {
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "act": config.activation,
        "layer_norm_eps": config.layer_norm_eps,
        "dropout": config.dropout,
        **changes,
    }
    return [
        block_type(attention(index) if attention else make_self_attention(config), **block_args)
        for index in range(config.num_layers if count is None else count)
    ]


def make_mlm_head(config: Any, act: str | None = None) -> MLMHead:
    """Return the masked-language-modelling head of a configuration.

    Args:
        config: an ``EncoderConfig``.
        act: name of the activation function; ``None`` for that of the blocks.
    """
    return MLMHead(
        hidden_size=config.hidden_size,
        embedding_size=getattr(config, "embedding_size", None),
        vocab_size=config.vocab_size,
        act=act or config.activation,
        layer_norm_eps=config.layer_norm_eps,
        tied=config.tie_embeddings,
    )


PoolerAndHead = tuple[nn.Module | None, nn.Module | None]


class ModelFactory:
    """Builds the models of a family. A family overrides what differs from the most common parts.

    Args:
        config: an ``EncoderConfig``.

    Attributes:
        config: the same.
        width: width of the blocks.
        dropout: dropout probability before classifiers: ``classifier_dropout`` of the
            configuration if it is set, else ``dropout``.
        model_classes: name of each head -> the class of its model. A family with a backbone class
            of its own names classes that combine both.
        mixing_heads: heads that read a mix of all layers where the configuration has ``mix``.
    """

    mixing_heads: ClassVar[tuple[str, ...]] = ("sequence-classification", "token-classification")

    model_classes: ClassVar[Mapping[str, type[Encoder]]] = {
        "none": Encoder,
        "masked-lm": MaskedLM,
        "sequence-classification": Classifier,
        "multiple-choice": MultipleChoice,
        "token-classification": Classifier,
        "question-answering": QuestionAnswering,
    }

    def __init__(self, config: Any) -> None:
        self.config, self.width = config, config.hidden_size
        classifier_dropout = getattr(config, "classifier_dropout", None)
        self.dropout = config.dropout if classifier_dropout is None else classifier_dropout

    def build(self, head: str) -> Encoder:
        """Return a model with randomly initialized weights.

        Raises:
            ValueError: the family has no such head.
        """
        if head not in self.model_classes:
            raise ValueError(f"{type(self.config).__name__} has no head {head!r}")
        backbone = self.backbone_args()
        if head in self.mixing_heads and getattr(self.config, "mix", False):
            backbone["mix"] = ScalarMix(self.config.num_layers + 1)
        pooler, head_module = self.pooler_and_head(head)
        model = self.model_classes[head](**backbone, pooler=pooler, head=head_module)
        init_weights(model, std=self.config.initializer_range)
        return model

    def backbone_args(self) -> dict[str, Any]:
        """Return the arguments of the model's class beside pooler and head."""
        return {"embeddings": make_embeddings(self.config), "layers": make_blocks(self.config)}

    def pooler_and_head(self, head: str) -> PoolerAndHead:
        """Return pooler and head of a model. A family with further heads extends this.

        Raises:
            ValueError: there is no such head.
        """
        labels = len(self.config.labels)
        match head:
            case "none":
                return self.pooler() if getattr(self.config, "pooler", False) else None, None
            case "masked-lm":
                return None, self.masked_lm_head()
            case "sequence-classification":
                return self.sequence_head(labels)
            case "multiple-choice":
                return self.choice_head()
            case "token-classification":
                return None, self.token_head(labels)
            case "question-answering":
                return None, self.span_head()
        raise ValueError(f"{type(self).__name__} builds no head {head!r}")

    def pooler(self) -> nn.Module:
        """Return the module that pools a row into one vector."""
        return Pooler(self.width)

    def masked_lm_head(self) -> MLMHead:
        """Return the head for masked language modelling."""
        return make_mlm_head(self.config)

    def sequence_head(self, outputs: int) -> PoolerAndHead:
        """Return pooler and head for sequence classification, with ``outputs`` classes."""
        return self.pooler(), LinearHead(self.width, outputs, self.dropout)

    def choice_head(self) -> PoolerAndHead:
        """Return pooler and head for multiple choice: one logit per choice."""
        return self.sequence_head(1)

    def token_head(self, outputs: int) -> nn.Module:
        """Return the head for token classification, with ``outputs`` classes."""
        return LinearHead(self.width, outputs, self.dropout)

    def span_head(self) -> nn.Module:
        """Return the head for extractive question answering: start and end logits."""
        return LinearHead(self.width, 2)

    def mlm_and_pair_head(self, name: str, pair_head: nn.Module) -> PoolerAndHead:
        """Return pooler and head for masked language modelling with classification of pairs.

        Args:
            name: name of ``pair_head`` in the head, ``MLMWithPairHead.pair_head``.
            pair_head: maps the pooler's output, (pairs, hidden), to (pairs, classes).
        """
        head = self.masked_lm_head()
        head.add_module(name, pair_head)
        return self.pooler(), head
