"""Configurations of the family, and the keys of their Hub configurations by model type."""

import math
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import msgspec

from zoo.families.alternating import FULL, SLIDING
from zoo.families.config import Activation, ConfigMap, TransformerConfig, same_names
from zoo.families.config.keys import COMMON
from zoo.overrides import override

ModelType = Literal[
    "llama", "mistral", "qwen2", "qwen3", "smollm3", "gemma2", "olmo2", "gemma3_text"
]
RopeType = Literal["default", "linear", "dynamic", "llama3", "yarn"]


@dataclass(frozen=True)
class Architecture:
    """What all models of a model type have in common, whatever their configurations say."""

    norm_before: bool = True  # Attention and feed-forward networks read normalized states.
    norm_after: bool = False  # Their outputs are normalized before they are added.
    norm_offset: float = 0.0  # Number that is added to the weights of norms.
    # Queries and keys are normalized: each head for itself, or all as one vector.
    qk_norm: Literal["heads", "all"] | None = None
    qkv_bias: bool = False  # Queries, keys and values have biases, and attention's output has none.
    scaled_embeddings: bool = False  # Token embeddings are multiplied by the root of their width.
    # Fields of the configuration that the model type has, of those that not all have.
    fields: tuple[str, ...] = ()
    # Fields that have to be set, because the Hub's default does not follow from other fields.
    required: tuple[str, ...] = ()


_WINDOWS = ("sliding_window", "use_sliding_window", "max_window_layers")
_GEMMA_REQUIRED = (
    "num_kv_heads",
    "head_dim",
    "query_pre_attn_scalar",
    "sliding_window",
    "sliding_window_pattern",
)
_GEMMA = ("attention_bias", "sliding_window", "sliding_window_pattern", "query_pre_attn_scalar")
ARCHITECTURES: Mapping[ModelType, Architecture] = {
    # Touvron et al. 2023, arXiv:2302.13971 and 2307.09288; Grattafiori et al. 2024, 2407.21783.
    "llama": Architecture(fields=("attention_bias", "mlp_bias")),
    # Jiang et al. 2023, arXiv:2310.06825.
    "mistral": Architecture(fields=("sliding_window",), required=("num_kv_heads",)),
    # Yang et al. 2024, arXiv:2407.10671 and 2412.15115.
    "qwen2": Architecture(qkv_bias=True, fields=_WINDOWS),
    # Yang et al. 2025, arXiv:2505.09388.
    "qwen3": Architecture(
        qk_norm="heads", fields=("attention_bias", *_WINDOWS), required=("head_dim",)
    ),
    # Bakouch et al. 2025, "SmolLM3"; layers without rotation: Yang et al. 2025, arXiv:2501.18795.
    "smollm3": Architecture(
        fields=(
            "attention_bias",
            "mlp_bias",
            "sliding_window",
            "use_sliding_window",
            "no_rope_layer_interval",
        )
    ),
    # Gemma Team 2024, arXiv:2408.00118.
    "gemma2": Architecture(
        norm_after=True,
        norm_offset=1.0,
        scaled_embeddings=True,
        fields=(*_GEMMA, "attn_logit_softcapping", "final_logit_softcapping"),
        required=_GEMMA_REQUIRED,
    ),
    # OLMo Team 2025, arXiv:2501.00656.
    "olmo2": Architecture(
        norm_before=False, norm_after=True, qk_norm="all", fields=("attention_bias",)
    ),
    # Gemma Team 2025, arXiv:2503.19786; bidirectional: Vera et al. 2025, arXiv:2509.20354.
    "gemma3_text": Architecture(
        norm_after=True,
        norm_offset=1.0,
        qk_norm="heads",
        scaled_embeddings=True,
        fields=(*_GEMMA, "final_logit_softcapping", "bidirectional", "local_rope_theta"),
        required=(*_GEMMA_REQUIRED, "local_rope_theta"),
    ),
}
MODEL_TYPES: tuple[ModelType, ...] = tuple(ARCHITECTURES)


class LlamaConfig(TransformerConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of a decoder of the family; the defaults are those of ``llama`` on the Hub.

    Attributes:
        model_type: the Hub's ``model_type``, which selects an entry of ``ARCHITECTURES``.
        num_kv_heads: number of heads of keys and values; ``None`` for ``num_heads``.
        head_dim: width of a head; ``None`` for ``hidden_size // num_heads``.
        attention_bias: whether the linear maps of attention have biases.
        mlp_bias: whether the linear maps of feed-forward networks have biases.
        sliding_window: number of tokens that a token attends to in local attention, itself
            included; ``None`` for no local attention. In bidirectional attention, half of them are
            on each side.
        use_sliding_window: whether there is local attention if ``sliding_window`` is a number.
        max_window_layers: number of the first blocks, which attend to all tokens.
        sliding_window_pattern: every so many blocks, one attends to all tokens; 0 for none.
        no_rope_layer_interval: every so many blocks, one does not rotate queries and keys; 0 for
            none. Only such blocks have local attention.
        rope_theta: base of the rotary frequencies.
        local_rope_theta: base in blocks with local attention; ``None`` for ``rope_theta``.
        rope_type: scaling of the frequencies, not of ``local_rope_theta``; see
            ``zoo.nn.positions``.
        rope_factor: by how much positions are stretched; required unless ``rope_type`` is
            ``default``.
        rope_original_max_positions: number of positions before they were stretched; ``None`` for
            ``max_positions``.
        rope_low_freq_factor: of ``llama3``.
        rope_high_freq_factor: of ``llama3``.
        rope_beta_fast: of ``yarn``; ``None`` for 32.
        rope_beta_slow: of ``yarn``; ``None`` for 1.
        rope_attention_factor: factor of cosines and sines of ``yarn``; ``None`` for the paper's.
        query_pre_attn_scalar: attention scores are divided by its root; ``None`` for the width of
            a head.
        attn_logit_softcapping: bound of the attention scores; ``None`` for no bound.
        final_logit_softcapping: bound of the logits; ``None`` for no bound.
        bidirectional: whether tokens attend to later tokens, too. Such a model encodes texts.
        classifier_dropout: dropout probability before a classifier of tokens.
        layer_norm_eps: epsilon of the norms.
        dropout: dropout probability of what is added to the residual path: none.
    """

    dropout: ClassVar[float] = 0.0

    model_type: ModelType = "llama"
    vocab_size: int = 32000
    hidden_size: int = 4096
    num_layers: int = 32
    num_heads: int = 32
    num_kv_heads: int | None = None
    head_dim: int | None = None
    intermediate_size: int = 11008
    max_positions: int = 2048
    activation: Activation = "silu"
    attention_bias: bool = False
    mlp_bias: bool = False
    sliding_window: int | None = None
    use_sliding_window: bool = True
    max_window_layers: int = 0
    sliding_window_pattern: int = 0
    no_rope_layer_interval: int = 0
    rope_theta: float = 10_000.0
    local_rope_theta: float | None = None
    rope_type: RopeType = "default"
    rope_factor: float | None = None
    rope_original_max_positions: int | None = None
    rope_low_freq_factor: float | None = None
    rope_high_freq_factor: float | None = None
    rope_beta_fast: float | None = None
    rope_beta_slow: float | None = None
    rope_attention_factor: float | None = None
    query_pre_attn_scalar: int | None = None
    attn_logit_softcapping: float | None = None
    final_logit_softcapping: float | None = None
    bidirectional: bool = False
    classifier_dropout: float = 0.1
    layer_norm_eps: float = 1e-6
    tie_embeddings: bool = False

    def __post_init__(self) -> None:
        """Check that the model type has the fields that are set, and that a rotation is whole."""
        super().__post_init__()
        for name, default in _OPTIONAL.items():
            value = getattr(self, name)
            if name not in self.architecture.fields and value != default:
                raise ValueError(f"{name} is {value}, and {self.model_type} has no such setting")
        missing = [name for name in self.architecture.required if not getattr(self, name)]
        if missing:
            raise ValueError(f"{self.model_type} needs {', '.join(missing)}")
        low = self.rope_low_freq_factor
        high = self.rope_high_freq_factor
        self.refuse(
            {
                f"head_dim {self.head_size} is not even": self.head_size % 2 == 1,
                f"the rope_type {self.rope_type} needs a rope_factor": (
                    self.rope_type != "default" and self.rope_factor is None
                ),
                "the rope_type llama3 needs rope_low_freq_factor < rope_high_freq_factor": (
                    self.rope_type == "llama3" and (low is None or high is None or low >= high)
                ),
            }
        )

    @property
    def max_seq_len(self) -> int:
        """Largest number of tokens in a row; dynamic scaling has the positions of training."""
        if self.rope_type == "dynamic" and self.rope_factor is not None:
            return round(self.max_positions * self.rope_factor)
        return self.max_positions

    @property
    def architecture(self) -> Architecture:
        """What the model type has."""
        return ARCHITECTURES[self.model_type]

    @property
    @override
    def head_size(self) -> int:
        return self.head_dim or self.hidden_size // self.num_heads

    @property
    def kv_heads(self) -> int:
        """Number of heads of keys and values."""
        return self.num_kv_heads or self.num_heads

    @property
    def attention_scale(self) -> float:
        """Factor of the attention scores."""
        return 1.0 / math.sqrt(self.query_pre_attn_scalar or self.head_size)

    @property
    def window(self) -> int | None:
        """Number of tokens of local attention, or ``None`` if there is none."""
        return self.sliding_window if self.use_sliding_window else None

    @property
    def layer_types(self) -> list[str]:
        """Kind of the attention of each block, in the Hub's words."""
        return [SLIDING if self._is_local(layer) else FULL for layer in range(self.num_layers)]

    @property
    def no_rope_layers(self) -> list[int]:
        """For each block, 1 if queries and keys are rotated, and 0 if not, as on the Hub."""
        interval = self.no_rope_layer_interval
        return [
            0 if interval and (layer + 1) % interval == 0 else 1 for layer in range(self.num_layers)
        ]

    def _is_local(self, layer: int) -> bool:
        if self.window is None:
            return False
        if self.no_rope_layer_interval:
            return self.no_rope_layers[layer] == 0
        if self.sliding_window_pattern:
            return (layer + 1) % self.sliding_window_pattern != 0
        return layer >= self.max_window_layers


def _optional_fields() -> dict[str, Any]:
    """Return the fields that not all model types have -> the value in those that do not."""
    names = set[str]()
    for architecture in ARCHITECTURES.values():
        names.update(architecture.fields)
    defaults = {}
    for field in msgspec.structs.fields(LlamaConfig):
        if field.name in names:
            defaults[field.name] = field.default
    return defaults


_OPTIONAL = _optional_fields()
# Keys of a scaled rotation -> fields. Versions of transformers before 5 have them in
# ``rope_scaling``, and later ones in ``rope_parameters``, with the base.
_SCALING = {
    "factor": "rope_factor",
    "original_max_position_embeddings": "rope_original_max_positions",
    "low_freq_factor": "rope_low_freq_factor",
    "high_freq_factor": "rope_high_freq_factor",
    "beta_fast": "rope_beta_fast",
    "beta_slow": "rope_beta_slow",
    "attention_factor": "rope_attention_factor",
}
# What no model of the family computes: other frequencies, experts, and quantized weights.
_REFUSED: dict[str, tuple[Any, ...]] = {
    "partial_rotary_factor": (None, 1.0),
    "rope_interleaved": (None, False),
    "num_experts": (None, 0),
    "num_local_experts": (None, 0),
    "vision_config": (None,),
}
_IGNORED = {
    "pretraining_tp": "splits products in training, results are equal up to rounding",
    "cache_implementation": "an implementation choice",
    "is_llama_config": "a mark of the code that trained the model",
}
# Keys of all model types -> fields.
_KEYS = {
    **COMMON,
    **same_names("vocab_size", "intermediate_size", "head_dim", "attention_dropout"),
    **same_names("classifier_dropout", "initializer_range", "pad_token_id", "rope_theta"),
    "num_key_value_heads": "num_kv_heads",
    "rms_norm_eps": "layer_norm_eps",
    "tie_word_embeddings": "tie_embeddings",
}
# Keys of some model types with another name than the field.
_RENAMED = {
    "bidirectional": "use_bidirectional_attention",
    "local_rope_theta": "rope_local_base_freq",
}


def _table(
    model_type: ModelType,
    *,
    act: str = "hidden_act",
    rotation: str = "rope_parameters",
    fixed: Mapping[str, tuple[Any, ...]] | None = None,
    ignored: Mapping[str, str] | None = None,
    follows: tuple[str, ...] = (),
    aliases: Mapping[str, str] | None = None,
    **implied: Any,
) -> ConfigMap:
    """Return the table of a model type.

    Args:
        model_type: the model type.
        act: key of the activation function.
        rotation: group of the keys of the rotation.
        fixed: see ``ConfigMap``, in addition to what no model type computes.
        ignored: see ``ConfigMap``, in addition to what no model type reads.
        follows: keys with the name of a property that determines them.
        aliases: see ``ConfigMap``.
        **implied: defaults of the class on the Hub that differ from ``llama``'s.
    """
    keys = {**_KEYS, act: "activation"}
    for name in ARCHITECTURES[model_type].fields:
        keys[_RENAMED.get(name, name)] = name
    bases = {f"{rotation}.rope_theta": "rope_theta"}
    if "local_rope_theta" in ARCHITECTURES[model_type].fields:
        bases[f"rope_parameters.{SLIDING}.rope_theta"] = _RENAMED["local_rope_theta"]
    spellings = {**bases, **(aliases or {})}
    for key in ("rope_type", *_SCALING):
        spellings[f"rope_scaling.{key}"] = f"{rotation}.{key}"
    for group in ("rope_scaling", rotation):
        spellings[f"{group}.type"] = f"{rotation}.rope_type"
    not_computed = dict(_REFUSED)
    for group in ("rope_scaling", rotation):
        not_computed[f"{group}.partial_rotary_factor"] = (None, 1.0)
        not_computed[f"{group}.mscale"] = (None,)
        not_computed[f"{group}.mscale_all_dim"] = (None,)
        not_computed[f"{group}.truncate"] = (None, True)
    for key, name in _SCALING.items():
        keys[f"{rotation}.{key}"] = name
    keys[f"{rotation}.rope_type"] = "rope_type"
    # Where the Hub's default follows from other keys, so does ours.
    sizes = {"head_dim": "head_dim", "num_kv_heads": "num_key_value_heads"}
    unsaid = [key for name, key in sizes.items() if name not in implied]
    values: dict[str, dict[Any, Any]] = {
        f"{rotation}.rope_type": {name: name for name in typing.get_args(RopeType)}
    }
    if "bidirectional" in ARCHITECTURES[model_type].fields:
        values[_RENAMED["bidirectional"]] = {False: False, None: False, True: True}
    return ConfigMap(
        keys=keys,
        fixed={**not_computed, **(fixed or {})},
        ignored={**_IGNORED, **(ignored or {})},
        follows={key: key for key in follows},
        aliases=spellings,
        values=values,
        implied={"model_type": model_type, **implied},
        unsaid=(*unsaid, "classifier_dropout", *(f"{rotation}.{key}" for key in _SCALING)),
        both=bases,  # Versions of transformers before 5 read the keys, later ones write these.
    )


_QWEN: dict[str, Any] = {
    "vocab_size": 151936,
    "intermediate_size": 22016,
    "max_positions": 32768,
    "num_kv_heads": 32,
    "sliding_window": 4096,
    "use_sliding_window": False,
    "max_window_layers": 28,
}
_GEMMA_DEFAULTS: dict[str, Any] = {
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_layers": 26,
    "num_heads": 8,
    "num_kv_heads": 4,
    "head_dim": 256,
    "activation": "gelu_pytorch_tanh",
    "pad_token_id": 0,
    "tie_embeddings": True,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
}
_GEMMA_IGNORED = {"hidden_act": "read by no implementation: hidden_activation is"}
CONFIG_MAPS: dict[str, ConfigMap] = {
    "llama": _table("llama"),
    "mistral": _table(
        "mistral",
        fixed={"layer_types": (None,)},
        intermediate_size=14336,
        max_positions=131072,
        num_kv_heads=8,
        sliding_window=4096,
    ),
    "qwen2": _table("qwen2", follows=("layer_types",), fixed={"use_mrope": (None, False)}, **_QWEN),
    "qwen3": _table("qwen3", follows=("layer_types",), head_dim=128, **_QWEN),
    "smollm3": _table(
        "smollm3",
        follows=("layer_types", "no_rope_layers"),
        ignored={"max_window_layers": "read by no implementation"},
        vocab_size=128256,
        hidden_size=2048,
        num_layers=36,
        num_heads=16,
        num_kv_heads=4,
        max_positions=32768,
        rope_theta=2_000_000.0,
        use_sliding_window=False,
        no_rope_layer_interval=4,
        pad_token_id=128004,
        tie_embeddings=True,
    ),
    "gemma2": _table(
        "gemma2",
        act="hidden_activation",
        follows=("layer_types",),
        fixed={"use_bidirectional_attention": (None, False)},
        ignored=_GEMMA_IGNORED,
        vocab_size=256000,
        max_positions=8192,
        sliding_window_pattern=2,
        attn_logit_softcapping=50.0,
        final_logit_softcapping=30.0,
        **_GEMMA_DEFAULTS,
    ),
    "olmo2": _table("olmo2", vocab_size=50304, layer_norm_eps=1e-5, pad_token_id=1),
    "gemma3_text": _table(
        "gemma3_text",
        act="hidden_activation",
        rotation=f"rope_parameters.{FULL}",
        follows=("layer_types",),
        fixed={
            "attn_logit_softcapping": (None,),
            "text_config": (None,),
            "image_token_id": (None,),
            "mm_tokens_per_image": (None,),
            f"rope_parameters.{SLIDING}.rope_type": (None, "default"),
        },
        ignored=_GEMMA_IGNORED,
        aliases={
            "_sliding_window_pattern": "sliding_window_pattern",
        },
        vocab_size=262208,
        max_positions=131072,
        rope_theta=1_000_000.0,
        local_rope_theta=10_000.0,
        sliding_window_pattern=6,
        **_GEMMA_DEFAULTS,
    ),
}

SIZES = {
    "tiny": LlamaConfig(
        vocab_size=1000,
        hidden_size=128,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        intermediate_size=256,
        max_positions=512,
        tie_embeddings=True,
    ),
    # Allal et al. 2025, arXiv:2502.02737.
    "smollm2-135m": LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        num_layers=30,
        num_heads=9,
        num_kv_heads=3,
        intermediate_size=1536,
        max_positions=8192,
        rope_theta=100_000.0,
        layer_norm_eps=1e-5,
        initializer_range=1 / 24,
        tie_embeddings=True,
    ),
    # Zhang et al. 2024, arXiv:2401.02385.
    "tinyllama-1.1b": LlamaConfig(
        hidden_size=2048,
        num_layers=22,
        num_kv_heads=4,
        intermediate_size=5632,
        layer_norm_eps=1e-5,
    ),
    "mistral-7b": LlamaConfig(
        model_type="mistral",
        num_kv_heads=8,
        intermediate_size=14336,
        max_positions=32768,
        sliding_window=4096,
        layer_norm_eps=1e-5,
    ),
    "qwen2.5-0.5b": LlamaConfig(
        model_type="qwen2",
        vocab_size=151936,
        hidden_size=896,
        num_layers=24,
        num_heads=14,
        num_kv_heads=2,
        intermediate_size=4864,
        max_positions=32768,
        sliding_window=32768,
        use_sliding_window=False,
        max_window_layers=24,
        rope_theta=1_000_000.0,
        tie_embeddings=True,
    ),
    "qwen3-0.6b": LlamaConfig(
        model_type="qwen3",
        vocab_size=151936,
        hidden_size=1024,
        num_layers=28,
        num_heads=16,
        num_kv_heads=8,
        head_dim=128,
        intermediate_size=3072,
        max_positions=40960,
        use_sliding_window=False,
        max_window_layers=28,
        rope_theta=1_000_000.0,
        tie_embeddings=True,
    ),
    "smollm3-3b": LlamaConfig(
        model_type="smollm3",
        vocab_size=128256,
        hidden_size=2048,
        num_layers=36,
        num_heads=16,
        num_kv_heads=4,
        max_positions=65536,
        use_sliding_window=False,
        no_rope_layer_interval=4,
        rope_theta=5_000_000.0,
        pad_token_id=128004,
        tie_embeddings=True,
    ),
    "olmo2-1b": LlamaConfig(
        model_type="olmo2",
        vocab_size=100352,
        hidden_size=2048,
        num_layers=16,
        num_heads=16,
        num_kv_heads=16,
        intermediate_size=8192,
        max_positions=4096,
        rope_theta=500_000.0,
        pad_token_id=100277,
    ),
    "gemma3-270m": LlamaConfig(
        model_type="gemma3_text",
        vocab_size=262144,
        hidden_size=640,
        num_layers=18,
        num_heads=4,
        num_kv_heads=1,
        head_dim=256,
        intermediate_size=2048,
        max_positions=32768,
        activation="gelu_pytorch_tanh",
        sliding_window=512,
        sliding_window_pattern=6,
        rope_theta=1_000_000.0,
        local_rope_theta=10_000.0,
        query_pre_attn_scalar=256,
        pad_token_id=0,
        tie_embeddings=True,
    ),
}
