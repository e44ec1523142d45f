"""DeBERTa: Decoding-enhanced BERT with disentangled attention.

He, Liu, Gao and Chen 2021, "DeBERTa: Decoding-enhanced BERT with Disentangled Attention",
arXiv:2006.03654; He, Gao and Chen 2021, "DeBERTaV3", arXiv:2111.09543.

Positions are not added to the token embeddings. Attention has two further terms instead: from the
content of the query to the relative position of the key, and from the content of the key to the
relative position of the query (section 3.1; see ``attention``). All blocks share one table of
relative position embeddings, which each projects with matrices of its own, or since version 2
with the contents'. Version 2 also lets large distances share rows of the table,
normalizes it, and in its large sizes adds a convolution over neighbours to the first block.

Relative positions do not tell apart "new *store*" and "new *mall*" by which is the subject, so
the masked-LM head adds absolute positions before the softmax: the *enhanced mask decoder*
(section 3.2). In the released code, the last block runs twice more, with the keys and values of
its input. The first queries are that input plus the absolute positions, the second ones the
output of the first pass; the second output is decoded. Checkpoints of the paper's authors hold
the table of absolute positions, and get the decoder; files without it (the Hub's library drops
it) decode the output of the last block, as that library does.

Version 3 is a discriminator of tokens that a small generator replaced. Its files hold that head
next to a masked-LM head.

Batches and outputs are as in ``zoo.nn.encoder``.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from zoo.nn.encoder import (
    Classifier,
    Encoder,
    MaskedLM,
    MultipleChoice,
    QuestionAnswering,
    TokenDiscriminator,
    packed_mask,
    padding_mask,
)
from zoo.nn.encoder_factory import ModelFactory, PoolerAndHead, make_blocks, make_embeddings
from zoo.nn.heads import LinearHead, Pooler
from zoo.nn.layers.activations import activation
from zoo.nn.transformer import PostNormBlock
from zoo.overrides import override
from zoo_deberta.attention import Context, DisentangledAttention
from zoo_deberta.blocks import ConvolutionBlock, DebertaEmbeddings
from zoo_deberta.config import DebertaConfig
from zoo_deberta.positions import rows_by_difference


class DebertaEncoder(Encoder):
    """The backbone."""

    layer_inputs: tuple[str, ...] = ("relative", "relative_norm")

    def __init__(self, config: DebertaConfig, **head_args: Any) -> None:
        first_block: Any = PostNormBlock
        if config.conv_kernel_size:
            first_block = partial(ConvolutionBlock, config)
        blocks = partial(make_blocks, config, attention=lambda _: DisentangledAttention(config))
        layers = [*blocks(first_block, count=1), *blocks(count=config.num_layers - 1)]
        embeddings = make_embeddings(
            config, DebertaEmbeddings, positions=config.position_biased_input
        )
        super().__init__(embeddings, layers, **head_args)
        width = config.hidden_size
        eps = config.layer_norm_eps
        self.relative = nn.Embedding(2 * config.reach, width) if config.relative_attention else None
        norm = nn.LayerNorm(width, eps=eps) if config.norms_positions else nn.Identity()
        self.relative_norm = norm
        self.rows = rows_by_difference(config)
        # Each block caches them; see ``optimize_for_inference``.
        self.positions_are_cached = False

    @override
    def encode(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        document_ids: Tensor | None = None,
    ) -> Tensor:
        context = self._context(
            input_ids.shape[1], attention_mask, position_ids=position_ids, document_ids=document_ids
        )
        x = self.embeddings(input_ids, token_type_ids, position_ids, context.real)
        last_input = x
        block_inputs: list[Tensor] = []
        for layer in self.layers:
            self.keep_for_mix(block_inputs, x)
            last_input = x
            x = layer(x, context)
        return self.decode(last_input, self.mix_layers(block_inputs, x), context)

    def decode(self, last_input: Tensor, hidden: Tensor, context: Context) -> Tensor:
        """Return the input of the head; here the output of the last block.

        Args:
            last_input: (batch, tokens, hidden): the input of the last block.
            hidden: (batch, tokens, hidden): its output.
        """
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
        """Return ``table`` and ``rows`` of a ``Context``."""
        recording = torch.is_grad_enabled() or torch.compiler.is_exporting()
        if self.relative is None or (self.positions_are_cached and not recording):
            return None, None
        table = self.relative_norm(self.relative.weight)
        longest = len(self.rows) // 2
        rows = torch.tensor(self.rows, device=table.device)[longest - tokens : longest + tokens]
        # Blocks project either the table or its rows for each difference, whichever has fewer
        # rows. In a graph always the table: ONNX Runtime folds that into a constant.
        if torch.compiler.is_exporting() or 2 * tokens >= len(table):
            return table, rows
        return table[rows], None

    def optimize_for_inference(self) -> None:
        """Cache each block's projected positions, which only depend on the weights."""
        # Neither the weights nor their device may change afterwards
        self.positions_are_cached = False
        with torch.inference_mode():
            table, rows = self._positions(len(self.rows) // 2)
            for module in self.modules():
                if isinstance(module, DisentangledAttention):
                    module.cached_positions = module.positions(table, rows)
        self.positions_are_cached = True


class DebertaMaskedLM(MaskedLM, DebertaEncoder):
    """Masked language modelling, with the enhanced mask decoder if the configuration has one."""

    def __init__(self, config: DebertaConfig, **head_args: Any) -> None:
        super().__init__(config, **head_args)
        size = (config.max_positions, config.hidden_size)
        self.positions = nn.Embedding(*size) if config.decodes_positions else None

    @override
    def decode(self, last_input: Tensor, hidden: Tensor, context: Context) -> Tensor:
        """Run the last block twice more from absolute positions, if there is a table of them."""
        if self.positions is None:
            return hidden
        if context.position_ids is None:
            queries = last_input + self.positions.weight[: last_input.shape[1]]
        else:
            queries = last_input + self.positions(context.position_ids)
        for _ in range(2):
            queries = self.layers[-1](queries, context._replace(source=last_input))
        return queries


class DebertaClassifier(Classifier, DebertaEncoder):
    """Sequence classification with a pooler, token classification without."""


class DebertaMultipleChoice(MultipleChoice, DebertaEncoder):
    """Multiple choice."""


class DebertaQuestionAnswering(QuestionAnswering, DebertaEncoder):
    """Extractive question answering."""


class ReplacedHead(nn.Module):
    """The head for replaced-token detection, which adds the first token to each token."""

    def __init__(self, config: DebertaConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.act = activation(config.activation)
        self.classifier = nn.Linear(config.hidden_size, 1)

    def forward(self, hidden: Tensor, position_ids: Tensor | None = None) -> Tensor:
        """Return a logit for each token, positive for a replaced one.

        Args:
            hidden: (batch, tokens, hidden): output of the last block.
            position_ids: (batch, tokens), int64, from 0 in each document of a packed row; ``None``
                where each row is one document.

        Returns:
            (batch, tokens, 1).
        """
        first_states = hidden[:, :1]
        if position_ids is not None:
            starts = torch.arange(hidden.shape[1], device=hidden.device) - position_ids
            first_states = hidden.gather(1, starts[..., None].expand_as(hidden))
        x = self.act(self.dense(self.norm(hidden + first_states)))
        return self.classifier(x)  # type: ignore[no-any-return]


class DebertaPretraining(DebertaMaskedLM):
    """Both heads of the files of version 3. The discriminator's reads the last block's output."""

    def __init__(self, config: DebertaConfig, **head_args: Any) -> None:
        super().__init__(config, **head_args)
        self.replaced = ReplacedHead(config)

    @override
    def decode(self, last_input: Tensor, hidden: Tensor, context: Context) -> Tensor:
        """Return the inputs of both heads, (2, batch, tokens, hidden)."""
        return torch.stack((super().decode(last_input, hidden, context), hidden))

    @override
    def outputs(self, hidden: Tensor) -> dict[str, Tensor]:
        """Return the outputs of both heads."""
        decoder_output, last_output = hidden.unbind()
        outputs = super().outputs(decoder_output)
        return {**outputs, "replaced_logits": self.replaced(last_output).squeeze(-1)}


class DebertaTokenDiscriminator(TokenDiscriminator, DebertaEncoder):
    """Replaced-token detection."""

    @override
    def scores(self, hidden: Tensor, position_ids: Tensor | None = None) -> Tensor:
        """Return one logit per token, (batch, tokens); see ``TokenDiscriminator``."""
        return self.apply_head(hidden, position_ids).squeeze(-1)


class DebertaFactory(ModelFactory):
    """The models of the family, all on its own backbone."""

    model_classes: ClassVar[Mapping[str, type[Encoder]]] = {
        "none": DebertaEncoder,
        "masked-lm": DebertaMaskedLM,
        "sequence-classification": DebertaClassifier,
        "multiple-choice": DebertaMultipleChoice,
        "token-classification": DebertaClassifier,
        "question-answering": DebertaQuestionAnswering,
        "pretraining": DebertaPretraining,
        "replaced-token-detection": DebertaTokenDiscriminator,
    }

    @override
    def backbone_args(self) -> dict[str, Any]:
        return {"config": self.config}

    @override
    def pooler_and_head(self, head: str) -> PoolerAndHead:
        if head == "pretraining":
            return None, self.masked_lm_head()
        if head == "replaced-token-detection":
            return None, ReplacedHead(self.config)
        return super().pooler_and_head(head)

    @override
    def pooler(self) -> nn.Module:
        return Pooler(self.width, self.config.pooler_activation, self.config.pooler_dropout)

    @override
    def token_head(self, outputs: int) -> nn.Module:
        return LinearHead(self.width, outputs, self.config.dropout)


def build(config: DebertaConfig, head: str) -> Encoder:
    """Return a model with randomly initialized weights, as in the released code."""
    return DebertaFactory(config).build(head)
