"""Weight rules of GPT: the Hub's names and ours."""

from collections.abc import Collection

from zoo.weights import Ignore, Rule, Transpose, WeightMap, is_arange
from zoo.weights.buffers import causal_buffers
from zoo.weights.encoder_rules import module_rule
from zoo.weights.head_rules import causal_head_rules, lm_head_rules
from zoo.weights.releases import ReleaseTensor
from zoo_gpt.config import GptConfig

_PREFIX = "transformer."
_LAYER = _PREFIX + "h.{i}."
# OpenAI's release of the first GPT has two embeddings, then kernel and bias of these modules of
# each block.
_EMBEDDINGS = ("positions_embed.weight", "tokens_embed.weight")
_BLOCK_MODULES = ("attn.c_attn", "attn.c_proj", "ln_1", "mlp.c_fc", "mlp.c_proj", "ln_2")


def weights(config: GptConfig, head: str) -> WeightMap:
    """Return the rules for a configuration and head."""
    tied = config.tie_embeddings
    backbone = _backbone(config)
    if head == "multiple-choice":
        choice = module_rule("multiple_choice_head.summary", "choice", 1, config.hidden_size)
        return lm_head_rules(backbone, config, _tokens(config), tied=tied).plus(choice)
    return causal_head_rules(backbone, config, head, _tokens(config), tied=tied)


def _tokens(config: GptConfig) -> str:
    return _PREFIX + ("wte.weight" if config.norm == "pre" else "tokens_embed.weight")


def _backbone(config: GptConfig) -> WeightMap:
    width = config.hidden_size
    inner = config.inner_size
    pre = config.norm == "pre"
    positions = _PREFIX + ("wpe.weight" if pre else "positions_embed.weight")
    final = [Rule(_PREFIX + "ln_f.{p}", "final_norm.{p}", (width,))] if pre else []
    return WeightMap(
        rules=[
            Rule(_tokens(config), "embeddings.tokens.weight", (config.vocab_size, width)),
            Rule(positions, "embeddings.positions.weight", (config.max_positions, width)),
            _in_layer("attn.c_attn", "attention.qkv", (3 * width, width)),
            _in_layer("attn.c_proj", "attention.out", (width, width)),
            _in_layer("ln_1", "attention_norm", (width,)),
            _in_layer("mlp.c_fc", "ffn.up", (inner, width)),
            _in_layer("mlp.c_proj", "ffn.down", (width, inner)),
            _in_layer("ln_2", "ffn_norm", (width,)),
            *final,
        ],
        drops=[
            *causal_buffers(_LAYER + "attn."),
            Ignore(_PREFIX + "position_ids", "a buffer: 0, 1, 2, ...", is_arange),
        ],
        legacy={"g": "weight", "b": "bias", "w": "weight"},  # of the first release
        prefix=_PREFIX,
        counts={"i": config.num_layers},
    )


def _in_layer(source: str, target: str, shape: tuple[int, ...]) -> Rule:
    """Return the rule of a module of a block, whose matrices are (in, out) on the Hub."""
    return Rule(f"{_LAYER}{source}.{{p}}", f"layers.{{i}}.{target}.{{p}}", shape, Transpose())


def from_npy(names: Collection[str], head: str) -> dict[str, ReleaseTensor]:
    """Return the Hub names of OpenAI's release of the first GPT, whose arrays are numbered."""
    return {name: _numbered(int(name)) for name in names}


def _numbered(number: int) -> ReleaseTensor:
    """Return the Hub's counterpart of an array (finetune-transformer-lm, train.py)."""
    # Kernels are stored as convolutions of width 1, with a first axis of that size.
    if number < len(_EMBEDDINGS):
        return ReleaseTensor(_PREFIX + _EMBEDDINGS[number])
    layer, index = divmod(number - len(_EMBEDDINGS), 2 * len(_BLOCK_MODULES))
    module, is_bias = divmod(index, 2)
    parameter = "bias" if is_bias else "weight"
    return ReleaseTensor(f"{_PREFIX}h.{layer}.{_BLOCK_MODULES[module]}.{parameter}", squeezed=True)
