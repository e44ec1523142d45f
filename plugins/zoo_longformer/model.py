"""Longformer: The Long-Document Transformer.

Beltagy, Peters and Cohan 2020, arXiv:2004.05150. RoBERTa with another attention (section 3): a
token attends to a window around it, and to a few global tokens, which attend to all tokens. Global
tokens have projections of their own (section 3.1, "Linear Projections for Global Attention"): their
queries, and the keys and values of all tokens for them, while all other queries read the keys and
values that they have in windows as well.

Which tokens are global depends on the task (section 3.1): the first one for a text that is
classified or embedded, the question for answers, the choice in multiple choice. Masked words and
the classes of tokens are predicted from windows only, as in the classes of transformers.

The released code has dilated windows (section 3.1) for its character-level decoder, which was not
published, and they are not implemented.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from zoo.families.global_tokens import reaches
from zoo.nn.attention_pattern import AttentionPattern
from zoo.nn.encoder import Encoder
from zoo.nn.encoder_factory import FairseqFactory, make_blocks, make_embeddings
from zoo.nn.global_attention import GlobalSelfAttention
from zoo.nn.global_tokens import GlobalTokenRule
from zoo.nn.transformer import CountedEmbeddings
from zoo.overrides import override
from zoo_longformer.config import DEFAULT_RULES, LongformerConfig


class LongformerFactory(FairseqFactory):
    """The models of fairseq, with positions that do not count padding, and with windows."""

    @override
    def backbone_args(self) -> dict[str, Any]:
        config = self.config

        def make_attention(_: int) -> GlobalSelfAttention:
            return GlobalSelfAttention(
                hidden_size=config.hidden_size,
                num_heads=config.num_heads,
                dropout=config.attention_dropout,
            )

        padding = config.pad_token_id
        layers = config.num_layers
        windows = reaches(config.attention_window, layers)
        return {
            "embeddings": make_embeddings(config, CountedEmbeddings, padding=padding),
            "layers": make_blocks(config, attention=make_attention),
            "pattern": AttentionPattern([True] * layers, windows),
        }


def build(config: LongformerConfig, head: str) -> Encoder:
    """Return a model with randomly initialized weights."""
    model = LongformerFactory(config).build(head)
    choice = config.global_tokens
    rule = DEFAULT_RULES.get(head, "none") if choice == "task" else choice
    model.global_tokens = GlobalTokenRule(rule, config.sep_token_id)
    return model


def global_attention_mask(head: str, inputs: Mapping[str, Tensor], reference_config: Any) -> Tensor:
    """Return the argument of the Hub's classes for the global tokens of a head, int64."""
    rule = GlobalTokenRule(DEFAULT_RULES[head], reference_config.sep_token_id)
    return rule.mask(inputs["input_ids"])
