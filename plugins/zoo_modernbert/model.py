"""ModernBERT: a text encoder for long texts.

Warner et al. 2024, "Smarter, Better, Faster, Longer: A Modern Bidirectional Encoder for Fast,
Memory Efficient, and Long Context Finetuning and Inference", arXiv:2412.13663. It differs from the
first encoders in these points (section 2.1): queries and keys are rotated by their positions; layer
norms precede attention and feed-forward network, but for the first block's attention, whose input
is normalized already; feed-forward networks have a gate; no linear map nor norm has a bias, but the
output embeddings; attention is global in every third block, and else limited to a window.
"""

from collections.abc import Mapping, Sequence
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
)
from zoo.nn.encoder_factory import (
    ModelFactory,
    PoolerAndHead,
    make_blocks,
    make_embeddings,
    make_mlm_head,
    make_self_attention,
)
from zoo.nn.heads import FirstTokenPooler, MLMHead, NormedHead
from zoo.nn.kernels.local_attention import local_attention
from zoo.nn.layers.init import init_weights
from zoo.nn.packed_attention import DocumentOffsets
from zoo.nn.positions import AttentionInputs, Positions, Rotary
from zoo.nn.transformer import AttentionDropoutBlock, GatedFeedForward
from zoo.overrides import override
from zoo_modernbert.config import FULL, ModernBertConfig


class ModernBertEncoder(Encoder):
    """The backbone.

    Args:
        config: the configuration.
        **head_args: pooler and head; see ``Encoder``.
    """

    def __init__(self, config: ModernBertConfig, **head_args: Any) -> None:
        blocks = make_blocks(
            config,
            AttentionDropoutBlock,
            attention=lambda _: make_self_attention(config, bias=False),
            ffn_type=partial(GatedFeedForward, dropout=config.dropout),
            dropout=config.attention_dropout,
            bias=False,
        )
        blocks[0].attention_norm = nn.Identity()
        embeddings = make_embeddings(config, positions=False)
        width = config.hidden_size
        eps = config.layer_norm_eps
        embeddings.norm = nn.LayerNorm(width, eps=eps, bias=False)
        norm = nn.LayerNorm(width, eps=eps, bias=False)
        super().__init__(embeddings, blocks, final_norm=norm, **head_args)
        self.global_rotary = Rotary(config.head_size, config.global_rope_theta)
        self.local_rotary = Rotary(config.head_size, config.local_rope_theta)
        self.layer_types = config.layer_types
        self.reach = config.reach

    @override
    def attention_inputs(
        self, x: Tensor, mask: Tensor | DocumentOffsets | None, positions: Positions
    ) -> Sequence[AttentionInputs]:
        window = local_attention(x, mask, positions, self.reach)
        if isinstance(window, DocumentOffsets):  # they also leave out padding
            mask = window._replace(reach=None)
        near = AttentionInputs(window, self.local_rotary(positions.queries))
        full = AttentionInputs(mask, self.global_rotary(positions.queries))
        return [full if layer_type == FULL else near for layer_type in self.layer_types]


class ModernBertLM(MaskedLM, ModernBertEncoder):
    """Masked language modelling."""


class ModernBertTokenClassifier(Classifier, ModernBertEncoder):
    """Token classification."""


class ModernBertQuestionAnswering(QuestionAnswering, ModernBertEncoder):
    """Extractive question answering."""


class ModernBertClassifier(Classifier, ModernBertEncoder):
    """Classification of texts, by the first token or by the mean of all."""

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Return the logits, (batch, labels)."""
        hidden = self.encode_batch(input_ids, attention_mask, token_type_ids)
        if self.pooler is not None:
            return self.outputs(hidden)
        real = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        weights = real[..., None].to(hidden.dtype)
        return self.outputs((hidden * weights).sum(1) / weights.sum(1).clamp(min=1))


class ModernBertMultipleChoice(MultipleChoice, ModernBertClassifier):
    """Multiple choice: one logit for each text."""


class ModernBertFactory(ModelFactory):
    """The models of the family, all on its own backbone."""

    model_classes: ClassVar[Mapping[str, type[Encoder]]] = {
        "none": ModernBertEncoder,
        "masked-lm": ModernBertLM,
        "sequence-classification": ModernBertClassifier,
        "multiple-choice": ModernBertMultipleChoice,
        "token-classification": ModernBertTokenClassifier,
        "question-answering": ModernBertQuestionAnswering,
    }

    @override
    def backbone_args(self) -> dict[str, Any]:
        return {"config": self.config}

    @override
    def masked_lm_head(self) -> MLMHead:
        return make_mlm_head(self.config, self.config.classifier_activation, dense_bias=False)

    @override
    def sequence_head(self, outputs: int) -> PoolerAndHead:
        pooler = FirstTokenPooler() if self.config.classifier_pooling == "cls" else None
        return pooler, self.token_head(outputs)

    @override
    def token_head(self, outputs: int) -> nn.Module:
        return NormedHead(
            self.width,
            outputs,
            act=self.config.classifier_activation,
            layer_norm_eps=self.config.layer_norm_eps,
            dropout=self.config.classifier_dropout,
        )

    @override
    def span_head(self) -> nn.Module:
        return self.token_head(2)


_OUTPUTS = ("attention.out", "ffn.down")  # linear maps of a block to the residual path


def build(config: ModernBertConfig, head: str) -> Encoder:
    """Return a model with randomly initialized weights, as transformers initializes it.

    What is added to the residual path begins smaller by the number of such sums.
    """
    model = ModernBertFactory(config).build(head)
    small = [f"layers.{i}.{part}" for i in range(config.num_layers) for part in _OUTPUTS]
    for name in small if head == "none" else [*small, "head.dense"]:
        module = model.get_submodule(name)
        init_weights(module, std=config.initializer_range * (2 * config.num_layers) ** -0.5)
    if isinstance(model.head, NormedHead):
        init_weights(model.head.out, std=config.hidden_size**-0.5)
    return model
