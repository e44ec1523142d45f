"""Weight rules of Jina's encoders."""

from dataclasses import replace

from zoo.weights import Concat, Rule, WeightMap
from zoo.weights.encoder_rules import backbone_rules, module_rule, tokens_name
from zoo.weights.head_rules import HeadNames, MaskedNames, fairseq_head_names, with_head
from zoo_jina.config import JinaConfig

_V2 = HeadNames(MaskedNames(), pooler="bert.pooler.dense")
_V3 = fairseq_head_names("roberta.")


def weights(config: JinaConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    if config.model_type == "jina_bert":
        blocks = _linear_blocks(config, "bert.encoder.layer.{i}.")
        backbone = backbone_rules(config, "bert.", positions=False, blocks=blocks)
        return with_head(backbone, config, head, _V2)
    rules = with_head(_rotary_rules(config), config, head, _V3)
    return _with_updates(rules, config) if config.tasks else rules


def _with_updates(weights: WeightMap, config: JinaConfig) -> WeightMap:
    """Return the rules of a file with updates of all matrices and tables of the backbone.

    Its matrices are parametrized: ``weight`` is ``parametrizations.weight.original``, next to the
    factors of the updates of all tasks.
    """
    rules = list[Rule]()
    for rule in weights.rules:
        source = str(rule.source)
        in_backbone = source.startswith(weights.prefix)
        if not in_backbone or len(rule.shape) != 2:
            rules.append(rule)
            continue
        rows, columns = rule.shape
        module = source.removesuffix(".{p}").removesuffix(".weight")
        target = rule.target.removesuffix(".{p}").removesuffix(".weight")
        a_shape = (config.task_rank, columns)
        b_shape = (rows, config.task_rank)
        if target.startswith("embeddings."):
            a_shape = (rows, config.task_rank)
            b_shape = (config.task_rank, columns)
        else:
            bias = Rule(f"{module}.bias", f"{target}.bias", (rows,), optional=rule.optional)
            rules.append(bias)
        updates = f"{module}.parametrizations.weight.0.lora_"
        tasks = len(config.tasks)
        parametrized = {
            f"{module}.parametrizations.weight.original": ("weight", rule.shape),
            f"{updates}A": ("lora_A", (tasks, *a_shape)),
            f"{updates}B": ("lora_B", (tasks, *b_shape)),
        }
        for name, (parameter, shape) in parametrized.items():
            rules.append(Rule(name, f"{target}.{parameter}", shape, optional=rule.optional))
    return replace(weights, rules=rules)


def _linear_blocks(config: JinaConfig, source: str) -> list[Rule]:
    """Return the rules of the blocks of JinaBERT."""
    width = config.hidden_size
    inner = config.intermediate_size
    target = "layers.{i}."
    qkv = tuple(f"{source}attention.self.{name}.{{p}}" for name in ("query", "key", "value"))
    gated = f"{source}mlp.gated_layers.weight"
    return [
        Rule(qkv, f"{target}attention.qkv.{{p}}", (3 * width, width), Concat(3)),
        module_rule(f"{source}attention.output.dense", f"{target}attention.out", width, width),
        module_rule(f"{source}attention.output.LayerNorm", f"{target}attention_norm", width),
        Rule(gated, f"{target}ffn.up.weight", (2 * inner, width)),
        module_rule(f"{source}mlp.wo", f"{target}ffn.down", width, inner),
        module_rule(f"{source}mlp.layernorm", f"{target}ffn_norm", width),
    ]


def _rotary_rules(config: JinaConfig) -> WeightMap:
    """Return the rules of the backbone of version 3, with the names of its release."""
    width = config.hidden_size
    inner = config.intermediate_size
    prefix = "roberta."
    types = (1 if config.tasks else config.type_vocab_size, width)
    positions = []
    if config.positions == "absolute":
        shape = (config.max_positions, width)
        name = f"{prefix}embeddings.position_embeddings.weight"
        positions.append(Rule(name, "embeddings.positions.weight", shape))
    source = f"{prefix}encoder.layers.{{i}}."
    target = "layers.{i}."
    return WeightMap(
        rules=[
            Rule(tokens_name(prefix), "embeddings.tokens.weight", (config.vocab_size, width)),
            Rule(
                f"{prefix}embeddings.token_type_embeddings.weight", "embeddings.types.weight", types
            ),
            *positions,
            module_rule(f"{prefix}emb_ln", "embeddings.norm", width),
            module_rule(f"{source}mixer.Wqkv", f"{target}attention.qkv", 3 * width, width),
            module_rule(f"{source}mixer.out_proj", f"{target}attention.out", width, width),
            module_rule(f"{source}norm1", f"{target}attention_norm", width),
            module_rule(f"{source}mlp.fc1", f"{target}ffn.up", inner, width),
            module_rule(f"{source}mlp.fc2", f"{target}ffn.down", width, inner),
            module_rule(f"{source}norm2", f"{target}ffn_norm", width),
        ],
        prefix=prefix,
        counts={"i": config.num_layers},
    )
