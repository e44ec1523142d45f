"""DeBERTa: Decoding-enhanced BERT with disentangled attention.

He, Liu, Gao and Chen 2021, "DeBERTa: Decoding-enhanced BERT with Disentangled Attention",
arXiv:2006.03654; He, Gao and Chen 2021, "DeBERTaV3", arXiv:2111.09543.

The paper in short. Where a token stands is not added to its vector. Each block's attention asks
two more questions instead: how much does this *content* attend to that *relative position*, and
how much does that position attend to this content (section 3.1; see ``attention``). All blocks
read one table of relative positions, through projections of their own, or since version 2
through those of the contents. Version 2 also lets far distances share rows of the table,
normalises it, and in its large sizes puts a convolution over neighbours beside the first block.

Relative positions alone cannot tell "new *store*" from "new *mall*" by who is the subject, so
the masked-token objective adds absolute positions just before it decides: the *enhanced mask
decoder* (section 3.2). As the released code has it, the last block runs twice more, over the
vectors that it ran over before. Its first queries are those vectors plus the absolute positions,
its second ones what the first pass returned; the result is decoded. Checkpoints of the paper's
authors hold the table it needs, and get the decoder; files without it (the Hub's library drops it)
decode the last block's vectors, which is what that library computes for either.

Version 3 is taught as a discriminator: which tokens did a small generator replace? Its files
hold that head beside a masked-token head.

What a batch and the outputs are, ``zoo.nn.encoder`` says.
"""

import torch
from torch import Tensor, nn

from zoo.nn.activations import activation
from zoo.nn.attention import padding_mask
from zoo.nn.encoder import (
    Classifier,
    Encoder,
    MaskedLM,
    MultipleChoice,
    QuestionAnswering,
    TokenScores,
    masked_token_head,
)
from zoo.nn.ffn import FeedForward
from zoo.nn.heads import LinearHead
from zoo.nn.init import init_weights
from zoo_deberta.attention import Context, DisentangledAttention, rows_by_difference
from zoo_deberta.config import DebertaConfig


class Embeddings(nn.Module):
    """What each token is; where it stands and its segment only if the configuration says so."""

    def __init__(self, config: DebertaConfig) -> None:
        super().__init__()
        width, kinds = config.hidden_size, config.type_vocab_size
        self.tokens = nn.Embedding(config.vocab_size, width)
        where = config.position_biased_input
        self.positions = nn.Embedding(config.max_positions, width) if where else None
        self.types = nn.Embedding(kinds, width) if kinds else None
        self.norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self, input_ids: Tensor, token_type_ids: Tensor | None, real: Tensor | None
    ) -> Tensor:
        """Embed token numbers as (batch, tokens, hidden); zeros where nothing is ``real``."""
        x = self.tokens(input_ids)
        if self.positions is not None:
            x = x + self.positions.weight[: input_ids.shape[1]]
        if self.types is not None:
            own = self.types.weight[0] if token_type_ids is None else self.types(token_type_ids)
            x = x + own
        return self.dropout(_masked(self.norm(x), real))  # type: ignore[no-any-return]


class Block(nn.Module):
    """Attention and a feed-forward network, each normalised after its residual sum."""

    def __init__(self, config: DebertaConfig) -> None:
        super().__init__()
        width, eps = config.hidden_size, config.layer_norm_eps
        self.attention = DisentangledAttention(config)
        self.attention_norm = nn.LayerNorm(width, eps=eps)
        self.ffn = FeedForward(
            hidden_size=width, intermediate_size=config.intermediate_size, act=config.activation
        )
        self.ffn_norm = nn.LayerNorm(width, eps=eps)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, context: Context, queries: Tensor | None = None) -> Tensor:
        """Transform (batch, tokens, hidden) to the same shape; see the attention."""
        attended = self.dropout(self.attention(x, context, queries))
        y = self.attention_norm((x if queries is None else queries) + attended)
        return self.ffn_norm(y + self.dropout(self.ffn(y)))  # type: ignore[no-any-return]


class ConvolutionBlock(Block):
    """The first block of large models, which looks at each token's neighbours besides."""

    def __init__(self, config: DebertaConfig) -> None:
        super().__init__(config)
        width, kernel = config.hidden_size, config.conv_kernel_size
        self.conv = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=config.conv_groups)
        self.conv_act = activation(config.conv_activation)
        self.conv_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)

    def forward(self, x: Tensor, context: Context, queries: Tensor | None = None) -> Tensor:
        """See ``Block``. Where queries are given, it decodes, and has no convolution."""
        y = super().forward(x, context, queries)
        if queries is not None:
            return y
        near = _masked(self.conv(x.transpose(1, 2)).transpose(1, 2), context.real)
        near = self.conv_act(self.dropout(near))
        return _masked(self.conv_norm(y + near), context.real)


class Deberta(Encoder):
    """The trunk, which all heads share.

    Args:
        config: the shape.
        pooler: see ``Encoder``.
        head: see ``Encoder``.
    """

    def __init__(
        self,
        config: DebertaConfig,
        *,
        pooler: nn.Module | None = None,
        head: nn.Module | None = None,
    ) -> None:
        first = ConvolutionBlock if config.conv_kernel_size else Block
        layers = [(Block if i else first)(config) for i in range(config.num_layers)]
        super().__init__(Embeddings(config), layers, pooler=pooler, head=head)
        width, eps = config.hidden_size, config.layer_norm_eps
        self.relative = nn.Embedding(2 * config.reach, width) if config.relative_attention else None
        self.relative_norm = nn.LayerNorm(width, eps=eps) if config.norms_positions else None
        self.rows = rows_by_difference(config)
        self.quick = False  # whether blocks keep their positions

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """See ``Encoder``."""
        context = self._context(input_ids.shape[1], attention_mask)
        before = x = self.embeddings(input_ids, token_type_ids, context.real)
        for layer in self.layers:
            before, x = x, layer(x, context)
        return self.outputs(self.decode(before, x, context))

    def decode(self, before: Tensor, hidden: Tensor, context: Context) -> Tensor:
        """Return what the head reads: the last block's result, or one made of its input."""
        return hidden

    def _context(self, tokens: int, attention_mask: Tensor | None) -> Context:
        """Prepare relative positions and masks, once for all blocks."""
        weight = self.embeddings.get_parameter("tokens.weight")
        mask, real = padding_mask(attention_mask, weight.dtype), None
        if attention_mask is not None and mask is not None:
            mask = torch.minimum(mask, mask.transpose(-1, -2))  # padding is not seen, nor sees
            real = (attention_mask != 0).to(weight.dtype)[..., None]
        return Context(*self._positions(tokens), mask, real)

    def _positions(self, tokens: int) -> tuple[Tensor | None, Tensor | None]:
        """Return a ``Context``'s table and rows."""
        if self.relative is None or (self.quick and not torch.is_grad_enabled()):
            return None, None
        table = self.relative.weight
        if self.relative_norm is not None:
            table = self.relative_norm(table)
        longest = len(self.rows) // 2
        rows = torch.tensor(self.rows, device=table.device)[longest - tokens : longest + tokens]
        # blocks project the smaller of the two; a graph's runtime does so once for all inputs
        if torch.compiler.is_exporting() or 2 * tokens >= len(table):
            return table, rows
        return table[rows], None

    def quicken(self) -> None:
        """Prepare for inference: keep what blocks make of the table, which is for all inputs.

        Weights should stay as they are afterwards, and where they are.
        """
        self.quick = False
        with torch.inference_mode():
            table, rows = self._positions(len(self.rows) // 2)
            for layer in self.layers:
                attention = layer.get_submodule("attention")
                assert isinstance(attention, DisentangledAttention)
                attention.kept = attention.positions(table, rows)
        self.quick = True


class DebertaMaskedLM(MaskedLM, Deberta):
    """The masked-token objective, with the enhanced decoder where there is a table for it."""

    def __init__(self, config: DebertaConfig) -> None:
        super().__init__(config, head=masked_token_head(config))
        where = config.decodes_positions
        self.positions = nn.Embedding(config.max_positions, config.hidden_size) if where else None

    def decode(self, before: Tensor, hidden: Tensor, context: Context) -> Tensor:
        """Run the last block twice more, from absolute positions on, where there are any."""
        if self.positions is None:
            return hidden
        queries = before + self.positions.weight[: before.shape[1]]
        for _ in range(2):
            queries = self.layers[-1](before, context, queries)
        return queries


class ReplacedHead(nn.Module):
    """Is this the token that stood here, or a generator's? Asked beside the first token."""

    def __init__(self, config: DebertaConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.act = activation(config.activation)
        self.classifier = nn.Linear(config.hidden_size, 1)

    def forward(self, hidden: Tensor) -> Tensor:
        """Score (batch, tokens, hidden) as (batch, tokens, 1): positive for replaced."""
        x = self.act(self.dense(self.norm(hidden + hidden[:, :1])))
        return self.classifier(x)  # type: ignore[no-any-return]


class Pretraining(DebertaMaskedLM):
    """Both heads, as the files of version 3 hold them; the second reads the last block."""

    def __init__(self, config: DebertaConfig) -> None:
        super().__init__(config)
        self.replaced = ReplacedHead(config)

    def decode(self, before: Tensor, hidden: Tensor, context: Context) -> Tensor:
        """Return what either head reads: (2, batch, tokens, hidden)."""
        return torch.stack((super().decode(before, hidden, context), hidden))

    def outputs(self, hidden: Tensor) -> dict[str, Tensor]:
        """See ``Encoder``."""
        decoded, last = hidden.unbind()
        return {**super().outputs(decoded), "replaced_logits": self.replaced(last).squeeze(-1)}


class Pooler(nn.Linear):
    """A vector for the whole text: the first token's, through a linear map and an activation."""

    def __init__(self, config: DebertaConfig) -> None:
        super().__init__(config.hidden_size, config.hidden_size)
        self.dropout = nn.Dropout(config.pooler_dropout)
        self.act = activation(config.pooler_activation)

    def forward(self, hidden: Tensor) -> Tensor:
        """Pool (batch, tokens, hidden) into (batch, hidden)."""
        return self.act(super().forward(self.dropout(hidden[:, 0])))


class DebertaClassifier(Classifier, Deberta):
    """See ``Classifier``."""


class DebertaTokenScores(TokenScores, Deberta):
    """See ``TokenScores``."""


class DebertaMultipleChoice(MultipleChoice, Deberta):
    """See ``MultipleChoice``."""


class DebertaQuestionAnswering(QuestionAnswering, Deberta):
    """See ``QuestionAnswering``."""


def _masked(x: Tensor, real: Tensor | None) -> Tensor:
    return x if real is None else x * real


def build(config: DebertaConfig, head: str) -> Encoder:
    """Return a model with fresh weights, drawn as the paper's were."""
    model = _assemble(config, head)
    init_weights(model, std=config.initializer_range)
    return model


def _assemble(config: DebertaConfig, head: str) -> Encoder:
    width, labels, own = config.hidden_size, len(config.labels), config.classifier_dropout
    dropout = config.dropout if own is None else own
    match head:
        case "none":
            return Deberta(config)
        case "masked-lm":
            return DebertaMaskedLM(config)
        case "pretraining":
            return Pretraining(config)
        case "replaced-token-detection":
            return DebertaTokenScores(config, head=ReplacedHead(config))
        case "sequence-classification":
            linear = LinearHead(width, labels, dropout)
            return DebertaClassifier(config, pooler=Pooler(config), head=linear)
        case "multiple-choice":
            linear = LinearHead(width, 1, dropout)
            return DebertaMultipleChoice(config, pooler=Pooler(config), head=linear)
        case "token-classification":
            return DebertaClassifier(config, head=LinearHead(width, labels, config.dropout))
        case "question-answering":
            return DebertaQuestionAnswering(config, head=LinearHead(width, 2))
    raise ValueError(f"DeBERTa has no head {head!r}")
