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

from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from zoo.nn.attention import packed_mask, padding_mask
from zoo.nn.blocks import PostNormBlock
from zoo.nn.encoder import Encoder, MaskedLM, TokenDiscriminator, make_blocks, make_embeddings
from zoo.nn.factory import ModelFactory, ModelParts
from zoo.nn.heads import LinearHead, Pooler
from zoo.nn.layers.activations import activation
from zoo_deberta.attention import Context, DisentangledAttention
from zoo_deberta.blocks import ConvolutionBlock, Embeddings
from zoo_deberta.config import DebertaConfig
from zoo_deberta.positions import rows_by_difference


class Deberta(Encoder):
    """The trunk, which all heads share.

    Args:
        config: the shape.
        **top: the pooler and the head, see ``Encoder``.
    """

    def __init__(self, config: DebertaConfig, **top: Any) -> None:
        first = partial(ConvolutionBlock, config) if config.conv_kernel_size else PostNormBlock
        usual = partial(make_blocks, config, attention=lambda _: DisentangledAttention(config))
        layers = [*usual(first, count=1), *usual(count=config.num_layers - 1)]
        inputs = make_embeddings(config, Embeddings, positions=config.position_biased_input)
        super().__init__(inputs, layers, **top)
        width, eps = config.hidden_size, config.layer_norm_eps
        self.relative = nn.Embedding(2 * config.reach, width) if config.relative_attention else None
        norm = nn.LayerNorm(width, eps=eps) if config.norms_positions else nn.Identity()
        self.relative_norm = norm
        self.rows = rows_by_difference(config)
        self.quick = False  # whether blocks keep their positions

    def encode(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        document_ids: Tensor | None = None,
    ) -> Tensor:
        """Run embeddings, blocks and ``decode``; see ``Encoder``."""
        context = self._context(
            input_ids.shape[1], attention_mask, position_ids=position_ids, document_ids=document_ids
        )
        before = x = self.embeddings(input_ids, token_type_ids, position_ids, context.real)
        for layer in self.layers:
            before, x = x, layer(x, context)
        return self.decode(before, x, context)

    def decode(self, before: Tensor, hidden: Tensor, context: Context) -> Tensor:
        """Return what the head reads: the last block's result, or one made of its input."""
        return hidden

    def _context(
        self,
        tokens: int,
        attention_mask: Tensor | None,
        *,
        position_ids: Tensor | None,
        document_ids: Tensor | None,
    ) -> Context:
        """Return relative positions and masks, computed once for all blocks."""
        context = Context(
            *self._positions(tokens), document_ids=document_ids, position_ids=position_ids
        )
        dtype = self.embeddings.get_parameter("norm.weight").dtype
        if document_ids is not None:
            mask = packed_mask(document_ids, document_ids, dtype)
            return context._replace(mask=mask, real=(document_ids != 0).to(dtype)[..., None])
        if attention_mask is None:
            return context
        padding = padding_mask(attention_mask, dtype)
        assert padding is not None, "attention_mask is given"
        # padding is masked as a key and as a query, as in the released code
        mask = torch.minimum(padding, padding.transpose(-1, -2))
        return context._replace(mask=mask, real=(attention_mask != 0).to(dtype)[..., None])

    def _positions(self, tokens: int) -> tuple[Tensor | None, Tensor | None]:
        """Return a ``Context``'s table and rows."""
        anew = torch.is_grad_enabled() or torch.compiler.is_exporting() or not self.quick
        if self.relative is None or not anew:
            return None, None
        table = self.relative_norm(self.relative.weight)
        longest = len(self.rows) // 2
        rows = torch.tensor(self.rows, device=table.device)[longest - tokens : longest + tokens]
        # blocks project the smaller of the two; a graph's runtime does so once for all inputs
        if torch.compiler.is_exporting() or 2 * tokens >= len(table):
            return table, rows
        return table[rows], None

    def optimize_for_inference(self) -> None:
        """Prepare for inference: keep what blocks make of the table, which is for all inputs.

        Weights should stay as they are afterwards, and where they are.
        """
        self.quick = False
        with torch.inference_mode():
            table, rows = self._positions(len(self.rows) // 2)
            for module in self.modules():
                if isinstance(module, DisentangledAttention):
                    module.kept = module.positions(table, rows)
        self.quick = True


class DebertaMaskedLM(MaskedLM, Deberta):
    """The masked-token objective, with the enhanced decoder where there is a table for it."""

    def __init__(self, config: DebertaConfig, **top: Any) -> None:
        super().__init__(config, **top)
        where = config.decodes_positions
        self.positions = nn.Embedding(config.max_positions, config.hidden_size) if where else None

    def decode(self, before: Tensor, hidden: Tensor, context: Context) -> Tensor:
        """Run the last block twice more, from absolute positions on, where there are any."""
        if self.positions is None:
            return hidden
        table, places = self.positions, context.position_ids
        queries = before + (table.weight[: before.shape[1]] if places is None else table(places))
        for _ in range(2):
            queries = self.layers[-1](queries, context._replace(source=before))
        return queries


class ReplacedHead(nn.Module):
    """Is this the token that stood here, or a generator's? Asked beside the first token."""

    def __init__(self, config: DebertaConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.act = activation(config.activation)
        self.classifier = nn.Linear(config.hidden_size, 1)

    def forward(self, hidden: Tensor, position_ids: Tensor | None = None) -> Tensor:
        """Score (batch, tokens, hidden) as (batch, tokens, 1): positive for replaced.

        Args:
            hidden: of the last block.
            position_ids: (batch, tokens), from 0 in each text, where several share a row.
        """
        first = hidden[:, :1]
        if position_ids is not None:
            starts = torch.arange(hidden.shape[1], device=hidden.device) - position_ids
            first = hidden.gather(1, starts[..., None].expand_as(hidden))
        x = self.act(self.dense(self.norm(hidden + first)))
        return self.classifier(x)  # type: ignore[no-any-return]


class Pretraining(DebertaMaskedLM):
    """Both heads, as the files of version 3 hold them; the second reads the last block."""

    def __init__(self, config: DebertaConfig, **top: Any) -> None:
        super().__init__(config, **top)
        self.replaced = ReplacedHead(config)

    def decode(self, before: Tensor, hidden: Tensor, context: Context) -> Tensor:
        """Return what either head reads: (2, batch, tokens, hidden)."""
        return torch.stack((super().decode(before, hidden, context), hidden))

    def outputs(self, hidden: Tensor) -> dict[str, Tensor]:
        """See ``Encoder``."""
        decoded, last = hidden.unbind()
        return {**super().outputs(decoded), "replaced_logits": self.replaced(last).squeeze(-1)}


class DebertaTokenScores(TokenDiscriminator, Deberta):
    """See ``TokenDiscriminator``."""

    def scores(self, hidden: Tensor, position_ids: Tensor | None = None) -> Tensor:
        """See ``TokenDiscriminator``; each token is asked beside the first one of its own text."""
        return self.apply_head(hidden, position_ids).squeeze(-1)


class DebertaFactory(ModelFactory):
    """The family's trunk under the usual heads and its own."""

    backbone_type: ClassVar[type[Encoder]] = Deberta

    def build_head(self, head: str) -> ModelParts:
        """See ``ModelFactory``."""
        if head in ("masked-lm", "pretraining"):
            return (
                DebertaMaskedLM if head == "masked-lm" else Pretraining,
                None,
                self.masked_lm_head(),
            )
        if head == "replaced-token-detection":
            return DebertaTokenScores, None, ReplacedHead(self.config)
        return super().build_head(head)

    def pooler(self) -> nn.Module:
        """See ``ModelFactory``."""
        return Pooler(self.width, self.config.pooler_activation, self.config.pooler_dropout)

    def token_head(self, outputs: int) -> nn.Module:
        """See ``ModelFactory``."""
        return LinearHead(self.width, outputs, self.config.dropout)


def build(config: DebertaConfig, head: str) -> Encoder:
    """Return a model with fresh weights, drawn as the paper's were."""
    return DebertaFactory(config).build(head)
