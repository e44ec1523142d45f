"""GPT: a Transformer that reads a text from left to right, and says what comes next.

Radford, Narasimhan, Salimans and Sutskever 2018, "Improving Language Understanding by Generative
Pre-Training"; Radford, Wu, Child, Luan, Amodei and Sutskever 2019, "Language Models are
Unsupervised Multitask Learners" (GPT-2).

The papers in short. Each token's vector is the sum of two learned embeddings: which token it is,
and where it stands. A stack of Transformer blocks follows in which a token sees those before it
and itself, and none behind it. The vector at each place, compared with all token embeddings,
scores which token comes next; that is the one objective. GPT-2 differs from its predecessor in
where it normalises (section 2.3): what enters attention and feed-forward network instead of what
leaves them, with one more norm after the last block, and in the depth-scaled start of the weights
that feed the residual path. A text is classified by its last token's vector (Radford et al. 2018,
section 3.2).

What a batch is and how a text is written, ``zoo.nn.decoder`` says. No segments are told apart.
"""

from typing import Any, ClassVar

from torch import Tensor, nn

from zoo.nn.blocks import PostNormBlock, PreNormBlock
from zoo.nn.decoder import CausalBackbone, CausalLM, CausalSequenceClassifier, last_token_index
from zoo.nn.encoder import Encoder, make_blocks, make_embeddings, make_self_attention
from zoo.nn.factory import ModelFactory, ModelParts
from zoo.nn.heads import LinearHead, gather_rows
from zoo_gpt.config import GptConfig


class Gpt(CausalBackbone):
    """The trunk, which all heads share.

    Args:
        config: the shape.
        **top: the head, see ``Encoder``.
    """

    def __init__(self, config: GptConfig, **top: Any) -> None:
        kind = PreNormBlock if config.norm == "pre" else PostNormBlock
        norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

        def attention(number: int) -> nn.Module:
            scale = config.attention_scale(number)
            return make_self_attention(config, causal=True, scale=scale)

        layers = make_blocks(config, kind, attention=attention, intermediate_size=config.inner_size)
        top["final_norm"] = norm if config.norm == "pre" else None
        super().__init__(make_embeddings(config, norm=False), layers, **top)
        self.pad_token_id = config.pad_token_id


class MultipleChoice(CausalLM, Gpt):
    """Which of several texts is it? One number for each, read off its last token, beside the
    scores of what comes next: the first GPT was tuned on both at once (section 3.2).
    """

    def __init__(self, config: GptConfig, **top: Any) -> None:
        super().__init__(config, **top)
        self.choice = LinearHead(config.hidden_size, 1, config.choice_dropout)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        mc_token_ids: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Read each text by itself, as one of a larger batch.

        Args:
            input_ids: (batch, choices, tokens), int64.
            attention_mask: the same, or ``None``.
            mc_token_ids: (batch, choices), int64: where the token is that a text is judged by,
                if it is not the last one.
        """
        mask = None if attention_mask is None else attention_mask.flatten(0, 1)
        ids, shape = input_ids.flatten(0, 1), input_ids.shape
        if mc_token_ids is None:
            places = last_token_index(ids, mask, self.pad_token_id)
        else:
            places = mc_token_ids.flatten()
        hidden = self.encode(ids, mask)
        return {
            "logits": self.scores(hidden).view(*shape, -1),  # (batch, choices, tokens, vocabulary)
            "mc_logits": self.choice(gather_rows(hidden, places)).view(
                shape[:2]
            ),  # (batch, choices)
        }


class GptFactory(ModelFactory):
    """The family's trunk under the usual heads and its own."""

    backbone_type: ClassVar[type[Encoder]] = Gpt

    def build_head(self, head: str) -> ModelParts:
        """See ``ModelFactory``."""
        labels, vocabulary = len(self.config.labels), self.config.vocab_size
        if head == "sequence-classification":
            return CausalSequenceClassifier, None, nn.Linear(self.width, labels, bias=False)
        if head in ("causal-lm", "multiple-choice"):
            tied = self.config.tie_embeddings
            table = None if tied else nn.Linear(self.width, vocabulary, bias=False)
            return CausalLM if head == "causal-lm" else MultipleChoice, None, table
        return super().build_head(head)

    def token_head(self, outputs: int) -> nn.Module:
        """See ``ModelFactory``; the published models say no other dropout."""
        return LinearHead(self.width, outputs, dropout=0.1)


def build(config: GptConfig, head: str) -> Encoder:
    """Return a model with fresh weights, those on GPT-2's residual path smaller with depth."""
    model = GptFactory(config).build(head)
    if config.norm == "pre":
        std = config.initializer_range / (2 * config.num_layers) ** 0.5
        for name, parameter in model.layers.named_parameters():
            if name.endswith(("attention.out.weight", "ffn.down.weight")):
                nn.init.trunc_normal_(parameter, std=std, a=-2 * std, b=2 * std)
    return model
