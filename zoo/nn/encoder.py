"""Text encoders: embeddings, a stack of blocks, and what is read off the last one.

A batch is ``input_ids``, ``attention_mask`` and ``token_type_ids``, int64 and (batch, tokens)
each. A mask of ``None`` says that all tokens are real, types of ``None`` that there is one
segment. All classes return a dict of named outputs.

In training, several documents may share a row (packing): ``document_ids`` number them from 1,
``position_ids`` count within each, and attention is restricted to tokens of the same document.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from zoo.nn.attention import SelfAttention, packed_mask, padding_mask
from zoo.nn.blocks import PostNormBlock
from zoo.nn.heads import ClassifierMixin, HeadMixin, MLMHead, SpanMixin
from zoo.nn.layers.embeddings import Embeddings


class Encoder(HeadMixin):
    """The trunk, which all heads share. A subclass says in ``outputs`` what is read off it.

    Args:
        embeddings: token numbers and types -> (batch, tokens, hidden).
        layers: the blocks, each of which takes (batch, tokens, hidden) and a mask.
        final_norm: a norm after the last block.
        pooler: the tokens' vectors -> one for the text, where the head looks at that.
        head: what stands on top.
        order: the numbers of the blocks in the order in which they run, some of them several
            times; by default each once.
    """

    def __init__(
        self,
        embeddings: nn.Module,
        layers: Iterable[nn.Module],
        *,
        final_norm: nn.Module | None = None,
        pooler: nn.Module | None = None,
        head: nn.Module | None = None,
        order: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self.embeddings = embeddings
        self.layers = nn.ModuleList(layers)
        self.final_norm = final_norm
        self.pooler = pooler
        self.head = head
        self.order = range(len(self.layers)) if order is None else tuple(order)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Run the trunk, then the head."""
        return self.outputs(self.encode(input_ids, attention_mask, token_type_ids))

    def encode(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        document_ids: Tensor | None = None,
    ) -> Tensor:
        """Run embeddings and blocks.

        Args:
            input_ids: (batch, tokens), int64.
            attention_mask: (batch, tokens), int64: 1 for tokens, 0 for padding; ``None`` for all 1.
            token_type_ids: (batch, tokens), int64; ``None`` for all 0.
            position_ids: (batch, tokens), int64, from 0 in each document of a packed row;
                ``None`` where each row is one document.
            document_ids: (batch, tokens), int64: the document of each token of a packed row,
                counted from 1; 0 for padding. It takes the place of ``attention_mask``.

        Returns:
            (batch, tokens, hidden).
        """
        x: Tensor = self.embeddings(input_ids, token_type_ids, position_ids)
        if document_ids is None:
            mask = padding_mask(attention_mask, x.dtype)  # (batch, 1, 1, tokens)
        else:
            mask = packed_mask(document_ids, document_ids, x.dtype)  # (batch, 1, tokens, tokens)
        for number in self.order:
            x = self.layers[number](x, mask)
        return self.apply_final_norm(x)

    def apply_final_norm(self, x: Tensor) -> Tensor:
        """Normalise what the last block returned, where a norm follows it."""
        return x if self.final_norm is None else self.final_norm(x)

    def outputs(self, hidden: Tensor) -> dict[str, Tensor]:
        """Read the outputs off the last block's, (batch, tokens, hidden)."""
        found = {"last_hidden_state": hidden}
        return found if self.pooler is None else {**found, "pooler_output": self.pooler(hidden)}

    def apply_head(self, hidden: Tensor, *more: Any) -> Tensor:
        """Run the head on each token's vector, or on the text's where there is a pooler."""
        return super().apply_head(hidden if self.pooler is None else self.pooler(hidden), *more)


class Classifier(ClassifierMixin, Encoder):
    """What is said of each token; with a pooler, of the text: (batch, [tokens,] labels)."""


class MaskedLM(Encoder):
    """Which token stood at each place: (batch, tokens, vocabulary)."""

    def outputs(self, hidden: Tensor) -> dict[str, Tensor]:
        """See ``Encoder``."""
        return {"logits": self.scores(hidden)}

    def scores(self, hidden: Tensor) -> Tensor:
        """Score every token of the vocabulary: (..., hidden) to (..., vocabulary)."""
        assert self.head is not None, "build gives it one"
        return self.head(hidden, self.embeddings.tokens)  # type: ignore[no-any-return]


class MLMWithPairHead(MaskedLM):
    """Which token stood at each place, and whether two texts belong together.

    Attributes:
        pair_head: what the part of the head is called that scores pairs.
        pair_output: what the model calls those scores, (batch, scores).
    """

    pair_head: ClassVar[str]
    pair_output: ClassVar[str]

    def outputs(self, hidden: Tensor) -> dict[str, Tensor]:
        """See ``Encoder``."""
        return {**super().outputs(hidden), self.pair_output: self.pair_scores(hidden[:, 0])}

    def pair_scores(self, start_positions: Tensor) -> Tensor:
        """Score pairs of texts: (n, hidden) of their first tokens to (n, scores)."""
        assert self.head is not None and self.pooler is not None, "build gives it both"
        pooled = self.pooler(start_positions[:, None])
        return self.head.get_submodule(self.pair_head)(pooled)  # type: ignore[no-any-return]


class TokenDiscriminator(Encoder):
    """One number for each token: (batch, tokens)."""

    def outputs(self, hidden: Tensor) -> dict[str, Tensor]:
        """See ``Encoder``."""
        return {"logits": self.scores(hidden)}

    def scores(self, hidden: Tensor, position_ids: Tensor | None = None) -> Tensor:
        """Score each token: (batch, tokens, hidden) to (batch, tokens).

        Positions are given for packed rows alone, for heads that look at a text's first token.
        """
        return self.apply_head(hidden).squeeze(-1)


class QuestionAnswering(SpanMixin, Encoder):
    """Where the answer starts and where it ends: (batch, tokens) each."""


class MultipleChoice(Classifier):
    """Which of several texts it is. Inputs are (batch, choices, tokens) each."""

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Score each text by itself, as one of a larger batch: (batch, choices)."""
        rows = [
            None if given is None else given.flatten(0, 1)
            for given in (attention_mask, token_type_ids)
        ]
        scores = super().forward(input_ids.flatten(0, 1), *rows)["logits"]
        return {"logits": scores.view(input_ids.shape[:2])}


def make_embeddings(
    config: Any,
    kind: type[Embeddings] = Embeddings,
    *,
    project: bool = False,
    positions: bool = True,
    norm: bool = True,
) -> Any:
    """Return input embeddings of the shape that a configuration says.

    Args:
        config: an ``EncoderConfig``, or one with the same fields.
        kind: the class.
        project: map them to the width of the blocks, even if it is the same.
        positions: whether there is a table of positions.
        norm: normalise their sum.
    """
    width = getattr(config, "embedding_size", config.hidden_size)
    return kind(
        vocab_size=config.vocab_size,
        max_positions=config.max_positions if positions else 0,
        type_vocab_size=getattr(config, "type_vocab_size", 0),
        hidden_size=width,
        layer_norm_eps=config.layer_norm_eps if norm else None,
        dropout=getattr(config, "embedding_dropout", config.dropout),
        project_to=config.hidden_size if project or width != config.hidden_size else None,
    )


def make_self_attention(config: Any, **changes: Any) -> SelfAttention:
    """Return attention of the shape that a configuration says.

    Args:
        config: an ``EncoderConfig``, or one with the same fields.
        **changes: arguments that it does not say so.
    """
    return SelfAttention(
        hidden_size=config.hidden_size,
        num_heads=config.num_heads,
        dropout=config.attention_dropout,
        **changes,
    )


def make_blocks(
    config: Any,
    kind: Callable[..., PostNormBlock] = PostNormBlock,
    *,
    attention: Callable[[int], nn.Module] | None = None,
    count: int | None = None,
    **changes: Any,
) -> list[PostNormBlock]:
    """Return blocks of the shape that a configuration says.

    Args:
        config: an ``EncoderConfig``, or one with the same fields.
        kind: the class.
        attention: a block's number -> what mixes tokens in it, if it is not ``SelfAttention``.
        count: how many, if not ``num_layers``.
        **changes: arguments of ``kind`` that the configuration does not say so.
    """
    usual = {
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "act": config.activation,
        "layer_norm_eps": config.layer_norm_eps,
        "dropout": config.dropout,
    }
    return [
        kind(attention(number) if attention else make_self_attention(config), **usual | changes)
        for number in range(config.num_layers if count is None else count)
    ]


def make_mlm_head(config: Any, act: str | None = None) -> MLMHead:
    """Return the head of masked language models of the shape that a configuration says.

    Args:
        config: an ``EncoderConfig``.
        act: name of the activation, if it is not the blocks'.
    """
    return MLMHead(
        hidden_size=config.hidden_size,
        embedding_size=getattr(config, "embedding_size", None),
        vocab_size=config.vocab_size,
        act=act or config.activation,
        layer_norm_eps=config.layer_norm_eps,
        tied=config.tie_embeddings,
    )
