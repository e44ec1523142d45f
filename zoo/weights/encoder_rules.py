"""Weight rules of text encoders, with a family's Hub names as data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zoo.weights.buffers import is_arange
from zoo.weights.ops import Concat
from zoo.weights.rules import Ignore, Rule, WeightMap

LEGACY = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}


@dataclass(frozen=True)
class BlockNames:
    """Hub names of the modules of a block; the defaults are the most common ones."""

    query: str = "attention.self.query"
    key: str = "attention.self.key"
    value: str = "attention.self.value"
    out: str = "attention.output.dense"
    attention_norm: str = "attention.output.LayerNorm"
    up: str = "intermediate.dense"
    down: str = "output.dense"
    ffn_norm: str = "output.LayerNorm"


# of fairseq, and of classes of the Hub whose weights come from it
FAIRSEQ_NAMES = BlockNames(
    query="self_attn.q_proj",
    key="self_attn.k_proj",
    value="self_attn.v_proj",
    out="self_attn.out_proj",
    attention_norm="self_attn_layer_norm",
    up="fc1",
    down="fc2",
    ffn_norm="final_layer_norm",
)


def module_rule(source: str, target: str, *shape: int) -> Rule:
    """Return the rule for the weight and the bias of a module.

    Args:
        source: Hub name of the module.
        target: our name of the module.
        *shape: shape of the weight.
    """
    return Rule(f"{source}.{{p}}", f"{target}.{{p}}", shape)


def weight_rule(source: str, target: str, *shape: int) -> Rule:
    """Return the rule for the weight of a module without a bias; see ``module_rule``."""
    return Rule(f"{source}.weight", f"{target}.weight", shape)


def block_rules(
    config: Any,
    names: BlockNames,
    source: str,
    target: str = "layers.{i}.",
    *,
    inner: int | None = None,
    qkv_bias: bool = True,
    out_bias: bool = True,
) -> list[Rule]:
    """Return the rules for a ``PostNormBlock``.

    Args:
        config: a configuration with ``hidden_size`` and ``intermediate_size``.
        names: Hub names of the block's modules.
        source: template of the prefix of these names.
        target: template of the prefix of our names.
        inner: inner width of the feed-forward network; ``None`` for ``intermediate_size``.
        qkv_bias: whether queries, keys and values have biases.
        out_bias: whether the output projection of attention has a bias.
    """
    width = config.hidden_size
    inner = inner or config.intermediate_size

    def rule(hub_name: str, name: str, *shape: int) -> Rule:
        return module_rule(source + hub_name, target + name, *shape)

    parameter = "{p}" if qkv_bias else "weight"
    out_rule = module_rule if out_bias else weight_rule
    qkv = tuple(f"{source}{part}.{parameter}" for part in (names.query, names.key, names.value))
    return [
        Rule(qkv, f"{target}attention.qkv.{parameter}", (3 * width, width), Concat(3)),
        out_rule(source + names.out, f"{target}attention.out", width, width),
        rule(names.attention_norm, "attention_norm", width),
        rule(names.up, "ffn.up", inner, width),
        rule(names.down, "ffn.down", width, inner),
        rule(names.ffn_norm, "ffn_norm", width),
    ]


def gated_block_rules(
    config: Any, source: str = "model.layers.{i}.", target: str = "layers.{i}."
) -> list[Rule]:
    """Return the rules for a ``PreNormBlock`` with a gate, with the Hub's names of decoders.

    Norms and linear maps have no bias. Queries, keys and values are three matrices on the Hub, and
    gate and input of the feed-forward network two.

    Args:
        config: a configuration with ``hidden_size``, ``intermediate_size``, ``num_heads``,
            ``head_size`` and, for grouped heads, ``num_kv_heads``.
        source: template of the prefix of the Hub's names.
        target: template of the prefix of our names.
    """
    width = config.hidden_size
    inner = config.intermediate_size
    queries = config.num_heads * config.head_size
    keys = (config.num_kv_heads or config.num_heads) * config.head_size
    projections = tuple(f"{source}self_attn.{name}_proj.weight" for name in "qkv")
    up = (f"{source}mlp.gate_proj.weight", f"{source}mlp.up_proj.weight")

    def rule(hub_name: str, name: str, *shape: int) -> Rule:
        return weight_rule(source + hub_name, target + name, *shape)

    return [
        Rule(
            projections,
            f"{target}attention.qkv.weight",
            (queries + 2 * keys, width),
            Concat(3, (queries, keys, keys)),
        ),
        rule("self_attn.o_proj", "attention.out", width, queries),
        rule("input_layernorm", "attention_norm", width),
        Rule(up, f"{target}ffn.up.weight", (2 * inner, width), Concat(2)),
        rule("mlp.down_proj", "ffn.down", width, inner),
        rule("post_attention_layernorm", "ffn_norm", width),
    ]


def alternating_rules(config: Any, qkv: Rule, prefix: str = "model.") -> list[Rule]:
    """Return the rules for the backbone of ``zoo.nn.alternating``.

    Args:
        config: a ``zoo.families.alternating.AlternatingConfig``.
        qkv: the rule for queries, keys and values.
        prefix: prefix of the backbone's tensors.
    """
    width = config.hidden_size
    inner = config.intermediate_size
    layer = f"{prefix}layers.{{i}}."
    ours = "layers.{i}."
    tokens = f"{prefix}embeddings.tok_embeddings"
    rules = [
        weight_rule(tokens, "embeddings.tokens", config.vocab_size, width),
        weight_rule(f"{prefix}embeddings.norm", "embeddings.norm", width),
        qkv,
        weight_rule(f"{layer}attn.Wo", f"{ours}attention.out", width, width),
        weight_rule(f"{layer}mlp_norm", f"{ours}ffn_norm", width),
        weight_rule(f"{layer}mlp.Wi", f"{ours}ffn.up", 2 * inner, width),
        weight_rule(f"{layer}mlp.Wo", f"{ours}ffn.down", width, inner),
        weight_rule(f"{prefix}final_norm", "final_norm", width),
    ]
    # The first block has no norm before its attention.
    for index in range(1, config.num_layers):
        source = f"{prefix}layers.{index}.attn_norm"
        rules.append(weight_rule(source, f"layers.{index}.attention_norm", width))
    return rules


def tokens_name(prefix: str) -> str:
    """Return the Hub name of the token embeddings."""
    return f"{prefix}embeddings.word_embeddings.weight"


def backbone_rules(
    config: Any,
    prefix: str,
    *,
    positions: bool = True,
    embedding_norm: bool = True,
    blocks: Sequence[Rule] | None = None,
    project: str = "embeddings_project",
    always_projected: bool = False,
    counts: Mapping[str, int] | None = None,
) -> WeightMap:
    """Return the rules for embeddings and blocks.

    Args:
        config: an ``EncoderConfig``; with ``type_vocab_size`` and ``embedding_size`` if the family
            has them.
        prefix: prefix of the backbone's tensors in models with a head.
        positions: whether there are position embeddings.
        embedding_norm: whether a norm follows the embeddings.
        blocks: rules of the blocks; ``None`` for the most common names.
        project: Hub name of the projection of embeddings to the width of the blocks.
        always_projected: whether there is a projection even for equal widths.
        counts: see ``WeightMap``; ``None`` for ``i`` up to ``num_layers``.
    """
    width = config.hidden_size
    embedding_size = getattr(config, "embedding_size", width)
    types = getattr(config, "type_vocab_size", 0)
    table = (prefix + "embeddings.{}_embeddings.weight").format
    rules = [
        Rule(tokens_name(prefix), "embeddings.tokens.weight", (config.vocab_size, embedding_size))
    ]
    if positions:
        shape = (config.max_positions, embedding_size)
        rules.append(Rule(table("position"), "embeddings.positions.weight", shape))
    if types:
        rules.append(Rule(table("token_type"), "embeddings.types.weight", (types, embedding_size)))
    if embedding_norm:
        rules.append(
            Rule(f"{prefix}embeddings.LayerNorm.{{p}}", "embeddings.norm.{p}", (embedding_size,))
        )
    if always_projected or embedding_size != width:
        rules.append(
            Rule(f"{prefix}{project}.{{p}}", "embeddings.project.{p}", (width, embedding_size))
        )
    if blocks is None:
        blocks = block_rules(config, BlockNames(), f"{prefix}encoder.layer.{{i}}.")
    return WeightMap(
        rules=[*rules, *blocks],
        drops=[Ignore(f"{prefix}embeddings.position_ids", "a buffer: 0, 1, 2, ...", is_arange)],
        legacy=LEGACY,
        prefix=prefix,
        counts={"i": config.num_layers} if counts is None else counts,
    )
