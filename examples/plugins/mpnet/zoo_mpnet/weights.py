"""Weight rules of MPNet."""

from zoo.weights import Concat, Ignore, Rule, TiedAlias, WeightMap, is_arange
from zoo_mpnet.config import BUCKETS, MPNetConfig

_LAYER = "mpnet.encoder.layer.{i}."
_QKV = tuple(f"{_LAYER}attention.attn.{part}.{{p}}" for part in "qkv")
_TOKENS = "mpnet.embeddings.word_embeddings.weight"
_POSITIONS = "mpnet.embeddings.position_embeddings.weight"
_BUCKETS = "mpnet.encoder.relative_attention_bias.weight"


def weights(config: MPNetConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    vocabulary = config.vocab_size
    width = config.hidden_size
    inner = config.intermediate_size
    backbone = WeightMap(
        rules=[
            Rule(_TOKENS, "embeddings.tokens.weight", (vocabulary, width)),
            Rule(_POSITIONS, "embeddings.positions.weight", (config.max_positions, width)),
            Rule("mpnet.embeddings.LayerNorm.{p}", "embeddings.norm.{p}", (width,)),
            Rule(_BUCKETS, "relative_bias.weight", (BUCKETS, config.num_heads)),
            Rule(_QKV, "layers.{i}.attention.qkv.{p}", (3 * width, width), Concat(3)),
            _in_layer("attention.attn.o", "attention.out", (width, width)),
            _in_layer("attention.LayerNorm", "attention_norm", (width,)),
            _in_layer("intermediate.dense", "ffn.up", (inner, width)),
            _in_layer("output.dense", "ffn.down", (width, inner)),
            _in_layer("output.LayerNorm", "ffn_norm", (width,)),
        ],
        drops=[Ignore("mpnet.embeddings.position_ids", "a buffer: 0, 1, 2, ...", is_arange)],
        prefix="mpnet.",
        counts={"i": config.num_layers},
    )
    if head == "masked-lm":
        return backbone.plus(
            Rule("lm_head.dense.{p}", "head.dense.{p}", (width, width)),
            Rule("lm_head.layer_norm.{p}", "head.norm.{p}", (width,)),
            Rule("lm_head.bias", "head.bias", (vocabulary,)),
            ties=[
                TiedAlias("lm_head.decoder.weight", to=_TOKENS),
                TiedAlias("lm_head.decoder.bias", to="lm_head.bias"),
            ],
        )
    pooler = Rule("mpnet.pooler.dense.{p}", "pooler.{p}", (width, width), optional="pooler")
    return backbone.plus(pooler) if config.pooler else backbone


def _in_layer(source: str, target: str, shape: tuple[int, ...]) -> Rule:
    return Rule(f"{_LAYER}{source}.{{p}}", f"layers.{{i}}.{target}.{{p}}", shape)
