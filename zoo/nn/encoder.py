"""Text encoders: the backbone, and a class for each head.

A batch has ``input_ids``, ``attention_mask`` and ``token_type_ids``, int64 and (batch, tokens)
each. A mask of ``None`` means all 1, types of ``None`` all 0. All models return a dict of named
outputs. Their parts are in ``zoo.nn.transformer`` and ``zoo.nn.heads``, and the factory of models
in ``zoo.nn.encoder_factory``.

In training, several documents may share a row (packing): ``document_ids`` number them from 1,
``position_ids`` count within each, and attention is restricted to tokens of the same document.
"""

import inspect
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

# under these names, plugins import them from here
from zoo.nn.attention.masks import mask_value as mask_value
from zoo.nn.attention.masks import packed_mask as packed_mask
from zoo.nn.attention.masks import padding_mask as padding_mask
from zoo.nn.attention_pattern import AttentionPattern
from zoo.nn.capture import is_capturing
from zoo.nn.global_tokens import GlobalTokenRule
from zoo.nn.heads import (
    ClassifierMixin,
    FirstTokenPooler,
    HeadMixin,
    Pooler,
    SpanMixin,
    VocabularyProjection,
)
from zoo.nn.kernels.packed_attention import attends_by_document, document_mask
from zoo.nn.kernels.row_packing import (
    PackedRows,
    is_padded_on_right,
    pack_rows,
    packs_in_inference,
)
from zoo.nn.layers.layer_drop import LayerDrop
from zoo.nn.packed_attention import DocumentOffsets
from zoo.nn.positions import AttentionInputs, Positions, add_bias
from zoo.nn.transformer import Embeddings, select_tokens
from zoo.overrides import override


def pool_tokens(hidden: Tensor, attention_mask: Tensor | None, pooling: str) -> Tensor:
    """Return the mean or the maximum of the tokens of each row, (batch, hidden)."""
    # hidden: (batch, tokens, hidden); attention_mask: (batch, tokens), 1 for tokens, 0 for padding;
    # ``None`` for all 1
    if attention_mask is None:
        return hidden.mean(1) if pooling == "mean" else hidden.amax(1)
    padding = (attention_mask == 0)[:, :, None]
    if pooling == "max":
        return hidden.masked_fill(padding, mask_value(hidden.dtype)).amax(1)
    tokens = attention_mask.sum(1, keepdim=True).clamp(min=1).to(hidden.dtype)
    return hidden.masked_fill(padding, 0).sum(1) / tokens


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
        rotary: rotates queries and keys of all blocks by their positions, such as
            ``zoo.nn.positions.Rotary``; ``None`` for no rotation.
        relative_bias: maps ``Positions`` and a dtype to a bias of the attention scores of all
            blocks, such as ``zoo.nn.positions.LinearBias``; ``None`` for no bias.
        pattern: what differs between the attention of the blocks; ``None`` if nothing does.
        global_tokens: chooses the tokens that all tokens of their text attend to where the others
            attend to a window; ``None`` for none. The pattern applies it.
        adds_bias: sets the attribute even without a bias: ``SelfAttention`` that bounds scores
            (``cap``) needs it.
        layerdrop: probability that training skips a block; see ``LayerDrop``.

    Attributes:
        adds_bias: whether ``attention_inputs`` adds a bias to the mask, so that attention takes
            no offsets of documents, and computes no causal mask itself.
        pooling: what the pooler and the head read in place of the first token of a row: the
            ``mean`` or ``max`` of its tokens; ``None`` for that token.
        packs_rows: pack the rows of a batch that is padded on the right in training on a CPU. The
            results are the same, up to rounding and dropout. See ``supports_packed_rows``.
        layer_inputs: names of the modules that all blocks read, such as relative positions, in
            addition to the embeddings; see ``zoo.nn.stacks``.
    """

    layer_inputs: tuple[str, ...] = ()
    adds_bias: bool = False
    packs_rows: bool = False
    pooling: str | None = None

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
        rotary: nn.Module | None = None,
        relative_bias: nn.Module | None = None,
        pattern: AttentionPattern | None = None,
        global_tokens: GlobalTokenRule | None = None,
        adds_bias: bool = False,
        layerdrop: float = 0.0,
    ) -> None:
        super().__init__()
        self.embeddings: Any = embeddings
        self.layers = nn.ModuleList(layers)
        self.final_norm = final_norm
        self.pooler = pooler
        self.head = head
        self.mix = mix
        self.order = range(len(self.layers)) if order is None else tuple(order)
        self.rotary: Any = rotary
        self.relative_bias: Any = relative_bias
        self.pattern = pattern
        self.global_tokens = global_tokens
        if relative_bias is not None:
            adds_bias = True
            self.layer_inputs = ("relative_bias",)
        if pattern is not None and pattern.adds_bias:
            adds_bias = True
        if adds_bias:  # Otherwise a subclass decides.
            self.adds_bias = True
        self.layer_drop = LayerDrop(layerdrop) if layerdrop else None

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Run backbone and head; see the module for the inputs."""
        return self.outputs(self.encode_for_head(input_ids, attention_mask, token_type_ids))

    def encode_for_head(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> Tensor:
        """Return what the head reads: the last hidden state, or one pooled vector of each row.

        For the arguments, see ``encode``.

        Returns:
            (batch, tokens, hidden), or (batch, 1, hidden) if ``pooling`` is set.
        """
        hidden = self.encode_batch(input_ids, attention_mask, token_type_ids)
        if self.pooling is None:
            return hidden
        return pool_tokens(hidden, attention_mask, self.pooling)[:, None]

    def encode_batch(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> Tensor:
        """Run the backbone on a padded batch, in packed rows if they are faster and asked for.

        ``packs_rows`` asks for them in training, and ``packing_in_inference`` in inference.
        For the arguments, see ``encode``.

        Returns:
            the last hidden state, (batch, tokens, hidden); at padding, anything.
        """
        rows = self._pack_rows(input_ids, attention_mask)
        if rows is None:
            return self.encode(input_ids, attention_mask, token_type_ids)
        return rows.unpack(self.encode(**rows.inputs(input_ids, token_type_ids)))

    def encode_first_tokens(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> Tensor:
        """Return the hidden state of each row's first token in a padded batch, (batch, hidden).

        For the arguments, see ``encode``.
        """
        rows = self._pack_rows(input_ids, attention_mask)
        if rows is not None:
            return self.encode_at(rows.target[:, 0], **rows.inputs(input_ids, token_type_ids))
        batch, tokens = input_ids.shape
        positions = torch.arange(batch, device=input_ids.device) * tokens
        return self.encode_at(positions, input_ids, attention_mask, token_type_ids)

    def _pack_rows(self, input_ids: Tensor, attention_mask: Tensor | None) -> PackedRows | None:
        """Return the packing of a padded batch, or ``None`` if it stays as it is."""
        if self.pattern is not None and self.pattern.reads_row_length:
            return None
        one_row = self._reads_offsets() and attends_by_document()
        if self.training:
            return pack_rows(attention_mask, one_row=one_row) if self.packs_rows else None
        if not one_row or attention_mask is None:
            return None
        if not packs_in_inference() or not packs_in_one_row(self):
            return None
        # Hidden states that are captured have the shape of the batch.
        if is_capturing() or not is_padded_on_right(attention_mask):
            return None
        if not self.embeddings.has_packed_positions(input_ids, attention_mask):
            return None
        return pack_rows(attention_mask, one_row=True)

    def _reads_offsets(self) -> bool:
        """Return whether ``encode`` calls ``documents_mask``, which may return offsets."""
        return type(self).encode is Encoder.encode and not self.adds_bias

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
        return self._encode(
            None, input_ids, attention_mask, token_type_ids, position_ids, document_ids
        )

    def encode_at(self, positions: Tensor, *args: Tensor | None, **inputs: Tensor | None) -> Tensor:
        """Run the backbone for the last hidden states of some tokens.

        The feed-forward network of the last block then only computes these, if it is a block of
        ``zoo.nn.transformer`` and nothing else reads its output.

        Args:
            positions: indices into the flattened rows, (n,), int64.
            *args: the arguments of ``encode``.
            **inputs: the same, by name.

        Returns:
            (n, hidden).
        """
        if type(self).encode is Encoder.encode and self.mix is None and not is_capturing():
            # An instance may wrap the method.
            block_class = type(self.layers[self.order[-1]])
            if "positions" in inspect.signature(block_class.forward).parameters:
                return self._encode(positions, *args, **inputs)  # type: ignore[arg-type]
        return select_tokens(positions, self.encode(*args, **inputs))[0]  # type: ignore[arg-type]

    def _encode(
        self,
        positions: Tensor | None,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        document_ids: Tensor | None = None,
    ) -> Tensor:
        """Run the backbone, for all tokens or for some of them."""
        x: Tensor = self.embeddings(input_ids, token_type_ids, position_ids)
        mask: Any = padding_mask(attention_mask, x.dtype)  # (batch, 1, 1, tokens)
        if document_ids is not None:
            mask = self.documents_mask(document_ids, x)
        if position_ids is None:
            position_ids = torch.arange(x.shape[1], device=x.device)[None]
        segments = attention_mask if document_ids is None else document_ids
        positions_of_tokens = Positions(position_ids, position_ids, segments)
        if self.global_tokens is not None:
            positions_of_tokens = self.global_tokens.mark(input_ids, positions_of_tokens)
        inputs = self.attention_inputs(x, mask, positions_of_tokens)
        block_inputs: list[Tensor] = []
        steps = zip(self.order, inputs, strict=True)
        for number, (index, (layer_mask, rotation)) in enumerate(steps, start=1):
            self.keep_for_mix(block_inputs, x)
            cache_and_rotation = () if rotation is None else (None, rotation)
            selection = {}
            if positions is not None and number == len(self.order):
                selection = {"positions": positions}
            drop = self.layer_drop
            is_skipped = drop is not None and drop.skips_block()
            if drop is None or not is_skipped or drop.runs_skipped_blocks:
                output = self.layers[index](x, layer_mask, *cache_and_rotation, **selection)
            if is_skipped:
                (x,) = select_tokens(selection.get("positions"), x)
                if drop is not None and drop.runs_skipped_blocks:
                    x = x + 0 * output  # Its gradients are zero.
                continue
            x = output
        return self.mix_layers(block_inputs, self.apply_final_norm(x))

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
        if self.mix is None:
            return last
        mixed: Tensor = self.mix([*before, last])
        return mixed

    def documents_mask(
        self, document_ids: Tensor, x: Tensor, *, causal: bool = False
    ) -> Tensor | DocumentOffsets:
        """Return the mask that restricts the self-attention of packed rows to their documents.

        Args:
            document_ids: see ``encode``.
            x: the embeddings, (batch, tokens, hidden).
            causal: also exclude the keys that follow a query.

        Returns:
            ``packed_mask``, or the documents' offsets where attention supports them.
        """
        if self.adds_bias:
            return packed_mask(document_ids, document_ids, x.dtype, causal=causal)
        return document_mask(document_ids, x, causal=causal)

    def attention_inputs(
        self, x: Tensor, mask: Tensor | DocumentOffsets | None, positions: Positions
    ) -> Sequence[AttentionInputs]:
        """Return mask and positions for the attention of each layer, in the order of the layers.

        They follow from ``rotary``, ``relative_bias`` and ``pattern``. A model with relative
        positions of another kind overrides it; if it adds a bias to the mask, its ``adds_bias``
        is ``True``.

        Args:
            x: embeddings, (batch, tokens, hidden).
            mask: excludes padding, other documents and, in decoders, later tokens.
            positions: positions of the tokens.
        """
        rotation = None if self.rotary is None else self.rotary(positions.queries)
        if self.relative_bias is not None:
            mask = add_bias(mask, self.relative_bias(positions, x.dtype))
        inputs = AttentionInputs(mask, rotation)
        if self.pattern is None:
            return [inputs] * len(self.order)
        return self.pattern(x, inputs, positions)  # type: ignore[no-any-return]

    @property
    def has_default_attention_inputs(self) -> bool:
        """Whether attention reads no positions: there are no such parts, and no subclass reads."""
        parts = (self.rotary, self.relative_bias, self.pattern)
        has_no_parts = all(part is None for part in parts)
        return has_no_parts and type(self).attention_inputs is Encoder.attention_inputs

    def apply_final_norm(self, x: Tensor) -> Tensor:
        """Normalize the output of the last block, if there is a final norm."""
        return x if self.final_norm is None else self.final_norm(x)

    def outputs(self, hidden: Tensor) -> dict[str, Tensor]:
        """Return the named outputs for the last hidden state, (batch, tokens, hidden)."""
        outputs = {"last_hidden_state": hidden}
        if self.pooler is not None:
            outputs["pooler_output"] = self.pooler(hidden)
        return outputs

    @override
    def apply_head(self, hidden: Tensor, *head_args: Any) -> Tensor:
        """Run the head on the pooler's output if there is a pooler, else on the hidden state."""
        pooled = hidden if self.pooler is None else self.pooler(hidden)
        return super().apply_head(pooled, *head_args)


def packs_in_one_row(model: nn.Module) -> bool:
    """Return whether ``packing_in_inference`` packs the batches of a model.

    Its attention has to be restricted by nothing but padding.
    """
    return (
        isinstance(model, Encoder)
        and type(model).encode is Encoder.encode
        and type(model).attention_inputs is Encoder.attention_inputs
        and isinstance(model.embeddings, Embeddings)
        and model.pattern is None
        and not model.adds_bias
    )


def supports_packed_rows(model: nn.Module) -> bool:
    """Return whether ``packs_rows`` can be set: the model's ``encode`` takes packed rows."""
    if not isinstance(model, Encoder) or (model.pattern and model.pattern.reads_row_length):
        return False
    return "document_ids" in inspect.signature(model.encode).parameters


class Classifier(ClassifierMixin, Encoder):
    """Token classification, (batch, tokens, labels); with a pooler, of rows, (batch, labels)."""

    @override
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Return the logits; in training, the last block computes only tokens that are read."""
        reads_first = self.pooling is None and isinstance(self.pooler, Pooler | FirstTokenPooler)
        if not (self.training and reads_first):
            return super().forward(input_ids, attention_mask, token_type_ids)
        hidden = self.encode_first_tokens(input_ids, attention_mask, token_type_ids)
        return self.outputs(hidden[:, None])


class MaskedLM(Encoder):
    """Masked language modelling: logits, (batch, tokens, vocabulary).

    Its head is an ``MLMHead``, or another module with ``project`` and ``vocab_size``.
    """

    @override
    def outputs(self, hidden: Tensor) -> dict[str, Tensor]:
        return {"logits": self.scores(hidden)}

    def scores(self, hidden: Tensor) -> Tensor:
        """Return the logits over the vocabulary: (..., hidden) to (..., vocabulary)."""
        assert self.head is not None, "the factory builds one"
        return self.head(hidden, self.embeddings.tokens)  # type: ignore[no-any-return]

    def project(self, hidden: Tensor) -> VocabularyProjection:
        """Return the projection to the logits of (..., hidden)."""
        head: Any = self.head
        projection: VocabularyProjection = head.project(hidden, self.embeddings.tokens)
        return projection

    @property
    def vocab_size(self) -> int:
        """Number of tokens in the vocabulary."""
        head: Any = self.head
        return head.vocab_size  # type: ignore[no-any-return]


class MLMWithPairHead(MaskedLM):
    """Masked language modelling with a classifier of pairs of segments.

    Attributes:
        pair_head: name of the submodule of the head that classifies pairs.
        pair_output: name of the output with the pairs' logits, (batch, classes).
    """

    pair_head: ClassVar[str]
    pair_output: ClassVar[str]

    @override
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

    @override
    def outputs(self, hidden: Tensor) -> dict[str, Tensor]:
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

    @override
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
