"""Weight rules of RemBERT."""

from zoo.weights import Concat, Ignore, Rule, WeightMap, is_arange
from zoo_rembert.config import RemBertConfig

_EMBEDDINGS = "rembert.embeddings."
_LAYER = "rembert.encoder.layer.{i}."
_QKV = tuple(f"{_LAYER}attention.self.{part}.{{p}}" for part in ("query", "key", "value"))


def weights(config: RemBertConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    width = config.hidden_size
    inner = config.intermediate_size
    narrow = config.embedding_size
    widen = "rembert.encoder.embedding_hidden_mapping_in.{p}"
    backbone = WeightMap(
        rules=[
            _table("word", "tokens", config.vocab_size, narrow),
            _table("position", "positions", config.max_positions, narrow),
            _table("token_type", "types", config.type_vocab_size, narrow),
            Rule(f"{_EMBEDDINGS}LayerNorm.{{p}}", "embeddings.norm.{p}", (narrow,)),
            Rule(widen, "embeddings.project.{p}", (width, narrow)),
            Rule(_QKV, "layers.{i}.attention.qkv.{p}", (3 * width, width), Concat(3)),
            _in_layer("attention.output.dense", "attention.out", (width, width)),
            _in_layer("attention.output.LayerNorm", "attention_norm", (width,)),
            _in_layer("intermediate.dense", "ffn.up", (inner, width)),
            _in_layer("output.dense", "ffn.down", (width, inner)),
            _in_layer("output.LayerNorm", "ffn_norm", (width,)),
        ],
        drops=[Ignore(f"{_EMBEDDINGS}position_ids", "a buffer: 0, 1, 2, ...", is_arange)],
        prefix="rembert.",
        counts={"i": config.num_layers},
    )
    pooler = "rembert.pooler.dense.{p}"
    if head == "masked-lm":
        wide = config.output_embedding_size
        vocabulary = config.vocab_size
        return backbone.plus(
            Rule("cls.predictions.dense.{p}", "head.dense.{p}", (wide, width)),
            Rule("cls.predictions.LayerNorm.{p}", "head.norm.{p}", (wide,)),
            Rule("cls.predictions.decoder.weight", "head.decoder.weight", (vocabulary, wide)),
            Rule("cls.predictions.decoder.bias", "head.bias", (vocabulary,)),
            drops=[Ignore(pooler, "the Hub's class for this head has no pooler")],
        )
    if not config.pooler:
        return backbone
    return backbone.plus(Rule(pooler, "pooler.{p}", (width, width), optional="pooler"))


def _table(source: str, target: str, rows: int, width: int) -> Rule:
    name = f"{_EMBEDDINGS}{source}_embeddings.weight"
    return Rule(name, f"embeddings.{target}.weight", (rows, width))


def _in_layer(source: str, target: str, shape: tuple[int, ...]) -> Rule:
    return Rule(f"{_LAYER}{source}.{{p}}", f"layers.{{i}}.{target}.{{p}}", shape)
