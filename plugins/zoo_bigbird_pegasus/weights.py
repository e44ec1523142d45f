"""Names and shapes of the tensors of BigBird-Pegasus, in published files and in the model."""

from dataclasses import replace

from zoo.weights import WeightMap
from zoo.weights.encoder_rules import FAIRSEQ_NAMES, block_rules
from zoo.weights.head_rules import HeadNames, dense_rules, with_head
from zoo.weights.seq2seq_rules import (
    PREFIX,
    cross_attention_rules,
    language_model_rules,
    seq2seq_rules,
)
from zoo_bigbird_pegasus.config import BigBirdPegasusConfig

_ENCODER_NAMES = replace(
    FAIRSEQ_NAMES,
    query="self_attn.self.query",
    key="self_attn.self.key",
    value="self_attn.self.value",
    out="self_attn.output",
)
_TEXT_HEAD = ("classification_head.dense", "classification_head.out_proj")


def weights(config: BigBirdPegasusConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    bias = config.use_bias
    source = f"{PREFIX}encoder.layers.{{i}}."
    target = f"{PREFIX}decoder.layers.{{j}}."
    blocks = [
        *block_rules(config, _ENCODER_NAMES, source, qkv_bias=bias, out_bias=bias),
        *block_rules(
            config,
            FAIRSEQ_NAMES,
            target,
            "decoder.layers.{j}.",
            inner=config.decoder_ffn_dim,
            qkv_bias=bias,
            out_bias=bias,
        ),
        *cross_attention_rules(config, target, bias=bias),
    ]
    backbone = seq2seq_rules(
        config,
        embedding_norm=False,
        final_norm=True,
        # The norm after the last block has the name of a norm that this model does not have.
        final_norm_name="layernorm_embedding",
        blocks=blocks,
    )
    if head == "seq2seq-lm":
        return language_model_rules(backbone, config)
    if head == "sequence-classification":
        return backbone.plus(*dense_rules(config, *_TEXT_HEAD, len(config.labels)))
    return with_head(backbone, config, head, HeadNames())
