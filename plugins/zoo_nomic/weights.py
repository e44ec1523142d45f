"""Weight rules of Nomic's encoder: the names of the published code, which transformers writes."""

from zoo.weights import Concat, Rule, WeightMap
from zoo.weights.encoder_rules import module_rule, tokens_name, weight_rule
from zoo.weights.head_rules import HeadNames, MaskedNames, with_head
from zoo_nomic.config import NomicConfig

_PREFIX = "nomic_bert."
_LAYER = _PREFIX + "encoder.layers.{i}."
_OURS = "layers.{i}."
_HEADS = HeadNames(
    masked=MaskedNames(norm="cls.predictions.transform.layer_norm"),
    pooler=_PREFIX + "pooler.dense",
)


def weights(config: NomicConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    if config.model_type == "nomic_bert_moe":
        return with_head(_expert_rules(config), config, head, _HEADS)
    width = config.hidden_size
    inner = config.intermediate_size
    types = _PREFIX + "embeddings.token_type_embeddings.weight"
    # The second matrix is the gate's.
    up = (_LAYER + "mlp.fc12.weight", _LAYER + "mlp.fc11.weight")
    backbone = WeightMap(
        rules=[
            Rule(tokens_name(_PREFIX), "embeddings.tokens.weight", (config.vocab_size, width)),
            Rule(types, "embeddings.types.weight", (config.type_vocab_size, width)),
            module_rule(_PREFIX + "emb_ln", "embeddings.norm", width),
            weight_rule(_LAYER + "attn.Wqkv", _OURS + "attention.qkv", 3 * width, width),
            weight_rule(_LAYER + "attn.out_proj", _OURS + "attention.out", width, width),
            module_rule(_LAYER + "norm1", _OURS + "attention_norm", width),
            Rule(up, _OURS + "ffn.up.weight", (2 * inner, width), Concat(2)),
            weight_rule(_LAYER + "mlp.fc2", _OURS + "ffn.down", width, inner),
            module_rule(_LAYER + "norm2", _OURS + "ffn_norm", width),
        ],
        prefix=_PREFIX,
        counts={"i": config.num_layers},
    )
    return with_head(backbone, config, head, _HEADS)


def _expert_rules(config: NomicConfig) -> WeightMap:
    """Return the rules of a backbone with mixtures of experts."""
    width = config.hidden_size
    inner = config.intermediate_size
    types = _PREFIX + "embeddings.token_type_embeddings.weight"
    rules = [
        Rule(tokens_name(_PREFIX), "embeddings.tokens.weight", (config.vocab_size, width)),
        Rule(types, "embeddings.types.weight", (config.type_vocab_size, width)),
        module_rule(_PREFIX + "emb_ln", "embeddings.norm", width),
        module_rule(_LAYER + "attn.Wqkv", "layers.{i}.attention.qkv", 3 * width, width),
        module_rule(_LAYER + "attn.out_proj", "layers.{i}.attention.out", width, width),
        module_rule(_LAYER + "norm1", "layers.{i}.attention_norm", width),
        module_rule(_LAYER + "norm2", "layers.{i}.ffn_norm", width),
    ]
    for number in range(config.num_layers):
        source = f"{_PREFIX}encoder.layers.{number}.mlp."
        target = f"layers.{number}.ffn."
        if config.has_experts(number):
            all_rows = config.num_experts * inner
            router = (config.num_experts, width)
            rules += [
                Rule(f"{source}router.layer.weight", f"{target}router.weight", router),
                Rule(f"{source}experts.mlp.w1", f"{target}up", (all_rows, width)),
                Rule(f"{source}experts.mlp.w2", f"{target}down", (all_rows, width)),
                Rule(f"{source}experts.bias", f"{target}bias", (width,)),
            ]
        else:
            rules.append(module_rule(f"{source}fc1", f"{target}up", inner, width))
            rules.append(module_rule(f"{source}fc2", f"{target}down", width, inner))
    return WeightMap(rules=rules, prefix=_PREFIX, counts={"i": config.num_layers})
