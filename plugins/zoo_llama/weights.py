"""Weight rules of the family."""

from zoo.weights import Concat, Rule, WeightMap
from zoo.weights.buffers import frequencies_buffer
from zoo.weights.encoder_rules import module_rule
from zoo.weights.head_rules import causal_head_rules, with_mix
from zoo_llama.config import LlamaConfig

_OURS = "layers.{i}."
# Model types whose class with this head calls the backbone ``transformer``.
_TRANSFORMER_PREFIX = ("llama", "qwen2", "qwen3", "smollm3")


def weights(config: LlamaConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    prefix = "model."
    if head == "question-answering" and config.model_type in _TRANSFORMER_PREFIX:
        prefix = "transformer."
    backbone = _backbone(config, prefix)
    if head == "token-classification":
        classifier = module_rule("score", "head", len(config.labels), config.hidden_size)
        return with_mix(backbone, config).plus(classifier)
    tokens = f"{prefix}embed_tokens.weight"
    return causal_head_rules(backbone, config, head, tokens, tied=config.tie_embeddings)


def _backbone(config: LlamaConfig, prefix: str) -> WeightMap:
    width = config.hidden_size
    inner = config.intermediate_size
    queries = config.num_heads * config.head_size
    keys = config.kv_heads * config.head_size
    layer = f"{prefix}layers.{{i}}."
    architecture = config.architecture
    out_bias = config.attention_bias
    qkv_parameter = "{p}" if out_bias or architecture.qkv_bias else "weight"
    out_parameter = "{p}" if out_bias else "weight"
    mlp_parameter = "{p}" if config.mlp_bias else "weight"
    rows = config.vocab_size
    rules = [
        Rule(f"{prefix}embed_tokens.weight", "embeddings.tokens.weight", (rows, width)),
        Rule(
            tuple(f"{layer}self_attn.{name}_proj.{qkv_parameter}" for name in "qkv"),
            f"{_OURS}attention.qkv.{qkv_parameter}",
            (queries + 2 * keys, width),
            Concat(3, (queries, keys, keys)),
        ),
        Rule(
            f"{layer}self_attn.o_proj.{out_parameter}",
            f"{_OURS}attention.out.{out_parameter}",
            (width, queries),
        ),
        Rule(
            tuple(f"{layer}mlp.{name}_proj.{mlp_parameter}" for name in ("gate", "up")),
            f"{_OURS}ffn.up.{mlp_parameter}",
            (2 * inner, width),
            Concat(2),
        ),
        Rule(
            f"{layer}mlp.down_proj.{mlp_parameter}",
            f"{_OURS}ffn.down.{mlp_parameter}",
            (width, inner),
        ),
        Rule(f"{prefix}norm.weight", "final_norm.weight", (width,)),
    ]
    norms = {}
    if architecture.norm_before:
        norms["attention_norm"] = ("input_layernorm", width)
        norms["ffn_norm"] = ("post_attention_layernorm", width)
    if architecture.norm_after:
        # The name says after what it is. Where there are norms before, too, these have others.
        norms["attention_output_norm"] = ("post_attention_layernorm", width)
        norms["ffn_output_norm"] = ("post_feedforward_layernorm", width)
        if architecture.norm_before:
            norms["ffn_norm"] = ("pre_feedforward_layernorm", width)
    if architecture.qk_norm is not None:
        per_head = architecture.qk_norm == "heads"
        norms["attention.q_norm"] = ("self_attn.q_norm", config.head_size if per_head else queries)
        norms["attention.k_norm"] = ("self_attn.k_norm", config.head_size if per_head else keys)
    for ours, (theirs, size) in norms.items():
        rules.append(Rule(f"{layer}{theirs}.weight", f"{_OURS}{ours}.weight", (size,)))
    return WeightMap(
        rules=rules,
        drops=[frequencies_buffer(f"{layer}self_attn.")],
        prefix=prefix,
        counts={"i": config.num_layers},
    )
