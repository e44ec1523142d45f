"""GPT: a causal language model.

Radford, Narasimhan, Salimans and Sutskever 2018, "Improving Language Understanding by Generative
Pre-Training"; Radford, Wu, Child, Luan, Amodei and Sutskever 2019, "Language Models are
Unsupervised Multitask Learners" (GPT-2).

The input embedding of a token is the sum of token and position embeddings. A stack of Transformer
blocks follows in which a token attends to itself and to earlier tokens. Products of the hidden
state with the token embeddings are the logits of the next token; predicting it is the one
objective. GPT-2 differs from its predecessor in its norms (section 2.3), which precede attention
and feed-forward network, with one more after the last block, and in the initialization of the
weights that feed the residual path, which is scaled down with depth. A text is classified by the
hidden state of its last token (Radford et al. 2018, section 3.2).

Batches and generation are as in ``zoo.nn.decoder``. There are no segment types.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor, nn

from zoo.nn.decoder import CausalLM, CausalModelFactory, last_token_index
from zoo.nn.encoder import Encoder
from zoo.nn.encoder_factory import (
    PoolerAndHead,
    make_blocks,
    make_embeddings,
    make_self_attention,
)
from zoo.nn.heads import LinearHead, gather_rows
from zoo.nn.layers.init import truncated_normal_
from zoo.nn.transformer import PostNormBlock, PreNormBlock, SelfAttention
from zoo.overrides import override
from zoo_gpt.config import GptConfig


class GptMultipleChoice(CausalLM):
    """Multiple choice next to language modelling: the first GPT was fine-tuned on both losses
    (section 3.2). A choice is scored by its last token.

    Args:
        *parts: see ``CausalBackbone``.
        pooler: maps one token of each choice, (choices, hidden), to its score, (choices, 1).
        **options: see ``CausalBackbone``.
    """

    def __init__(self, *parts: Any, pooler: nn.Module, **options: Any) -> None:
        super().__init__(*parts, **options)
        self.choice = pooler

    @override
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        mc_token_ids: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Run the model on each choice, as a row of a larger batch.

        Inputs are (batch, choices, tokens), int64, and ``mc_token_ids`` (batch, choices): the index
        of the token that scores a choice, by default the last one.
        """
        hidden, choices = self.hidden_and_logits(input_ids, attention_mask, mc_token_ids)
        return {"logits": self.scores(hidden).view(*input_ids.shape, -1), "mc_logits": choices}

    def choice_logits(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        mc_token_ids: Tensor | None = None,
    ) -> Tensor:
        """Return only ``mc_logits``, (batch, choices); see ``forward``."""
        return self.hidden_and_logits(input_ids, attention_mask, mc_token_ids)[1]

    def hidden_and_logits(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        mc_token_ids: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return hidden states, (batch * choices, tokens, hidden), and the choices' logits."""
        mask = None if attention_mask is None else attention_mask.flatten(0, 1)
        ids = input_ids.flatten(0, 1)
        if mc_token_ids is None:
            positions = last_token_index(ids, mask, self.pad_token_id)
        else:
            positions = mc_token_ids.flatten()
        hidden = self.encode_batch(ids, mask)
        return hidden, self.choice(gather_rows(hidden, positions)).view(input_ids.shape[:2])


class GptFactory(CausalModelFactory):
    """The default models of decoders, for the first GPT with norms after the sums."""

    language_model_heads: ClassVar[tuple[str, ...]] = ("causal-lm", "multiple-choice")
    model_classes: ClassVar[Mapping[str, type[Encoder]]] = {
        **CausalModelFactory.model_classes,
        "multiple-choice": GptMultipleChoice,
    }

    @override
    def backbone_args(self) -> dict[str, Any]:
        config = self.config
        block_type = PostNormBlock
        final_norm = None
        if config.norm == "pre":
            block_type = PreNormBlock
            final_norm = nn.LayerNorm(self.width, eps=config.layer_norm_eps)
        blocks = make_blocks(
            config, block_type, attention=self.attention, intermediate_size=config.inner_size
        )
        return {
            "embeddings": make_embeddings(config, norm=False),
            "layers": blocks,
            "final_norm": final_norm,
            "pad_token_id": config.pad_token_id,
        }

    def attention(self, index: int) -> SelfAttention:
        """Return the attention of a block."""
        scale = self.config.attention_scale(index)
        return make_self_attention(self.config, causal=True, scale=scale)

    @override
    def pooler_and_head(self, head: str) -> PoolerAndHead:
        pooler, head_module = super().pooler_and_head(head)
        if head == "multiple-choice":
            pooler = LinearHead(self.width, 1, self.config.choice_dropout)
        return pooler, head_module

    @override
    def token_head(self, outputs: int) -> nn.Module:
        return LinearHead(self.width, outputs, dropout=0.1)


def build(config: GptConfig, head: str) -> Encoder:
    """Return a model with randomly initialized weights."""
    # In GPT-2, those that feed the residual path are scaled by 1 / sqrt(2 * num_layers)
    model = GptFactory(config).build(head)
    if config.norm == "pre":
        std = config.initializer_range / (2 * config.num_layers) ** 0.5
        for name, parameter in model.layers.named_parameters():
            if name.endswith(("attention.out.weight", "ffn.down.weight")):
                truncated_normal_(parameter, std, 2 * std)
    return model
