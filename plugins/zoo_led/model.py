"""LED: the encoder-decoder of Longformer.

Beltagy, Peters and Cohan 2020, "Longformer: The Long-Document Transformer", arXiv:2004.05150,
section 7. BART with another attention in its encoder: a token attends to a window around it, and to
a few global tokens, which attend to all tokens by projections of their own. By default, the first
token of a source is global, as in the paper's summaries. The decoder attends to all tokens of the
target and of the source. Positions begin with the first row of their tables, unlike BART's.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from zoo.families.global_tokens import reaches
from zoo.nn.attention_pattern import AttentionPattern
from zoo.nn.encoder import Encoder
from zoo.nn.encoder_decoder import (
    EncoderDecoder,
    Seq2SeqFactory,
    Seq2SeqLM,
    Seq2SeqQuestionAnswering,
)
from zoo.nn.encoder_factory import make_blocks
from zoo.nn.global_attention import GlobalSelfAttention
from zoo.nn.global_tokens import FIRST, QUESTION, GlobalTokenRule
from zoo.nn.transformer import Embeddings
from zoo.overrides import override
from zoo_led.config import LEDConfig


class LEDFactory(Seq2SeqFactory):
    """The default models of encoder-decoders, with windows in the encoder."""

    model_classes: ClassVar[Mapping[str, type[Encoder]]] = {
        "none": EncoderDecoder,
        "seq2seq-lm": Seq2SeqLM,
        "question-answering": Seq2SeqQuestionAnswering,
    }

    @override
    def backbone_args(self) -> dict[str, Any]:
        config = self.config
        layers = config.num_layers

        def make_attention(_: int) -> GlobalSelfAttention:
            return GlobalSelfAttention(
                hidden_size=config.hidden_size,
                num_heads=config.num_heads,
                dropout=config.attention_dropout,
            )

        return {
            **super().backbone_args(),
            "layers": make_blocks(config, attention=make_attention),
            "pattern": AttentionPattern([True] * layers, reaches(config.attention_window, layers)),
        }

    @override
    def embeddings(self, embeddings_type: type[Embeddings] = Embeddings, **changes: Any) -> Any:
        if embeddings_type is not Embeddings:  # The decoder's.
            changes["max_positions"] = self.config.max_decoder_positions
        return super().embeddings(embeddings_type, **changes)


def build(config: LEDConfig, head: str) -> Encoder:
    """Return a model with randomly initialized weights."""
    model = LEDFactory(config).build(head)
    choice = config.global_tokens
    rule = default_rule(head) if choice == "task" else choice
    model.global_tokens = GlobalTokenRule(rule, config.sep_token_id)
    return model


def default_rule(head: str) -> str:
    """Return the global tokens of a head: the question, or the first token of a source."""
    return QUESTION if head == "question-answering" else FIRST


def global_attention_mask(head: str, inputs: Mapping[str, Tensor], reference_config: Any) -> Tensor:
    """Return the argument of the Hub's classes for the global tokens of a head, int64."""
    rule = GlobalTokenRule(default_rule(head), getattr(reference_config, "sep_token_id", 2))
    return rule.mask(inputs["input_ids"])
