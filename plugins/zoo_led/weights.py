"""Weight rules of LED: names of the Hub's checkpoints and names of the zoo's modules."""

from dataclasses import replace

from zoo.weights import Rule, WeightMap
from zoo.weights.encoder_rules import FAIRSEQ_NAMES, block_rules
from zoo.weights.head_rules import HeadNames, with_head
from zoo.weights.ops import Concat
from zoo.weights.seq2seq_rules import cross_attention_rules, language_model_rules, seq2seq_rules
from zoo_led.config import LEDConfig

_PREFIX = "led."
_ATTENTION = "self_attn.longformer_self_attn."
_ENCODER_NAMES = replace(
    FAIRSEQ_NAMES,
    query=f"{_ATTENTION}query",
    key=f"{_ATTENTION}key",
    value=f"{_ATTENTION}value",
    out="self_attn.output",
)


def weights(config: LEDConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    width = config.hidden_size
    source = f"{_PREFIX}encoder.layers.{{i}}."
    target = f"{_PREFIX}decoder.layers.{{j}}."
    inner = config.decoder_ffn_dim
    projections = tuple(
        f"{source}{_ATTENTION}{name}_global.{{p}}" for name in ("query", "key", "value")
    )
    blocks = [
        *block_rules(config, _ENCODER_NAMES, source),
        Rule(projections, "layers.{i}.attention.global_qkv.{p}", (3 * width, width), Concat(3)),
        *block_rules(config, FAIRSEQ_NAMES, target, "decoder.layers.{j}.", inner=inner),
        *cross_attention_rules(config, target),
    ]
    backbone = seq2seq_rules(
        config, decoder_positions=config.max_decoder_positions, blocks=blocks, prefix=_PREFIX
    )
    if head == "seq2seq-lm":
        return language_model_rules(backbone, config, tokens=f"{_PREFIX}shared.weight")
    return with_head(backbone, config, head, HeadNames())
