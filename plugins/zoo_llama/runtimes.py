"""The family in the formats of other runtimes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zoo.families.alternating import SLIDING
from zoo.families.decoder_runtimes import (
    CT2_LOGITS_ONLY,
    GGUF_LOGITS_ONLY,
    ct2_problem,
    decoder_ctranslate2,
    decoder_gguf,
)
from zoo.families.runtimes import RuntimeHeader, RuntimeModel, layered
from zoo.overrides import override
from zoo.weights import Concat
from zoo_llama.config import LlamaConfig
from zoo_llama.weights import weights

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic[Any]]

# Model type -> name of the architecture in GGUF, and whether queries and keys are rotated in pairs
# of neighbours there.
_GGUF: dict[str, tuple[str, bool]] = {
    "llama": ("llama", True),
    "mistral": ("llama", True),
    "qwen2": ("qwen2", False),
    "qwen3": ("qwen3", False),
}


@dataclass(frozen=True)
class RotatedQKV(Concat):
    """Queries, keys and values whose rotated pairs are neighbours in the format.

    Here, a pair has one component of the first half of a head and one of the second. The rows of
    queries and keys are in another order in the format, and those of values are not.

    Attributes:
        head_size: width of a head.
    """

    head_size: int = 0

    @override
    def chunks(self, arrays: "Sequence[Array]") -> "Sequence[Array]":
        queries, keys, values = arrays
        return [self._reordered(queries, -1, 2), self._reordered(keys, -1, 2), values]

    @override
    def to_hub(self, array: "Array") -> "tuple[Array, ...]":
        queries, keys, values = super().to_hub(array)
        half = self.head_size // 2
        return self._reordered(queries, 2, half), self._reordered(keys, 2, half), values

    def _reordered(self, rows: "Array", outer: int, inner: int) -> "Array":
        """Return the rows with the two axes that make up a head swapped."""
        row_shape = rows.shape[1:]
        by_head = rows.reshape(-1, self.head_size, *row_shape)
        pairs = by_head.reshape(len(by_head), outer, inner, *row_shape)
        return pairs.swapaxes(1, 2).reshape(rows.shape)


def ctranslate2(config: LlamaConfig, head: str) -> RuntimeModel | str:
    """Return a model as CTranslate2 describes it, or why it cannot."""
    if head != "causal-lm":
        return CT2_LOGITS_ONLY
    if reason := _not_plain(config):
        return reason
    if config.rope_type != "default":
        return f"its frequencies are not scaled by {config.rope_type}"
    if problem := ct2_problem(config, head):
        return problem
    has_qkv_bias = config.attention_bias or config.architecture.qkv_bias
    qkv = "{p}" if has_qkv_bias else "weight"
    out = "{p}" if config.attention_bias else "weight"
    mlp = "{p}" if config.mlp_bias else "weight"
    gate_and_linear = f"ffn/linear_0/{mlp}", f"ffn/linear_0_noact/{mlp}"
    block: dict[Any, Any] = {
        f"self_attention/linear_0/{qkv}": f"attention.qkv.{qkv}",
        f"self_attention/linear_1/{out}": f"attention.out.{out}",
        "self_attention/layer_norm/gamma": "attention_norm.weight",
        gate_and_linear: (f"ffn.up.{mlp}", Concat(2)),
        f"ffn/linear_1/{mlp}": f"ffn.down.{mlp}",
        "ffn/layer_norm/gamma": "ffn_norm.weight",
    }
    has_qk_norm = config.architecture.qk_norm is not None
    if has_qk_norm:
        block["self_attention/q_norm/gamma"] = "attention.q_norm.weight"
        block["self_attention/k_norm/gamma"] = "attention.k_norm.weight"
    names: dict[Any, Any] = {
        "decoder/layer_norm/gamma": "final_norm.weight",
        **layered("decoder/layer_{i}/", block),
    }
    settings: dict[str, Any] = {
        "rms_norm": True,
        "ffn_glu": True,
        "rotary_dim": config.head_size,
        "rotary_interleave": False,
        "rotary_base": config.rope_theta,
        "head_dim": config.head_size,
        "qk_norm": has_qk_norm,
    }
    if config.kv_heads != config.num_heads:
        settings["num_heads_kv"] = config.kv_heads
    return decoder_ctranslate2(config, weights(config, head), names, settings)


def _not_plain(config: LlamaConfig) -> str | None:
    """Return what a decoder has that runtimes with one kind of block do not have."""
    if config.bidirectional:
        return "a token attends to earlier tokens only"
    if SLIDING in config.layer_types:
        return "it has no attention that is limited to a window"
    if 0 in config.no_rope_layers:
        return "it rotates queries and keys in all layers"
    architecture = config.architecture
    if architecture.norm_after or architecture.norm_offset:
        return "its norms precede attention and feed-forward network"
    return None


def gguf(config: LlamaConfig, head: str) -> RuntimeModel | str:
    """Return a model as llama.cpp describes it, or why it cannot."""
    if head != "causal-lm":
        return GGUF_LOGITS_ONLY
    if reason := _not_plain(config):
        return reason
    if config.model_type not in _GGUF:
        return f"zoo does not describe its blocks to it: {config.model_type}"
    if config.rope_type not in ("default", "linear"):
        return f"its frequencies are not scaled by {config.rope_type} here"
    if config.activation not in ("silu", "swish"):
        return f"its activation function is silu, not {config.activation}"
    architecture, has_neighbours = _GGUF[config.model_type]
    if config.mlp_bias or (config.attention_bias and architecture != "llama"):
        return "its linear maps have no such biases"
    size = config.head_size
    sizes = (config.num_heads * size, config.kv_heads * size, config.kv_heads * size)
    joint = RotatedQKV(3, sizes, size) if has_neighbours else Concat(3, sizes)
    has_qkv_bias = config.attention_bias or config.architecture.qkv_bias
    qkv = "{p}" if has_qkv_bias else "weight"
    out = "{p}" if config.attention_bias else "weight"
    block: dict[Any, Any] = {
        "attn_norm.weight": "attention_norm.weight",
        (f"attn_q.{qkv}", f"attn_k.{qkv}", f"attn_v.{qkv}"): (f"attention.qkv.{qkv}", joint),
        f"attn_output.{out}": f"attention.out.{out}",
        "ffn_norm.weight": "ffn_norm.weight",
        ("ffn_gate.weight", "ffn_up.weight"): ("ffn.up.weight", Concat(2)),
        "ffn_down.weight": "ffn.down.weight",
    }
    if config.architecture.qk_norm is not None:
        block["attn_q_norm.weight"] = "attention.q_norm.weight"
        block["attn_k_norm.weight"] = "attention.k_norm.weight"
    names: dict[Any, Any] = {
        "output_norm.weight": "final_norm.weight",
        **layered("blk.{i}.", block),
    }
    settings: dict[str, Any] = {
        "vocab_size": config.vocab_size,
        "attention.head_count_kv": config.kv_heads,
        "attention.key_length": size,
        "attention.value_length": size,
        "attention.layer_norm_rms_epsilon": config.layer_norm_eps,
        "rope.dimension_count": size,
        "rope.freq_base": config.rope_theta,
    }
    if config.rope_type == "linear":
        settings["rope.scaling.type"] = "linear"
        settings["rope.scaling.factor"] = config.rope_factor
    return decoder_gguf(config, weights(config, head), architecture, names, settings)


def from_gguf(header: RuntimeHeader) -> dict[str, Any] | None:
    """Return the Hub's keys of a model."""
    classes = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}
    if header.architecture not in classes:
        return None
    heads = header.count("attention.head_count")
    width = header.count("embedding_length")
    hub: dict[str, Any] = {
        "model_type": header.architecture,
        "architectures": [f"{classes[header.architecture]}ForCausalLM"],
        **header.common_keys(),
        "num_key_value_heads": header.count("attention.head_count_kv", heads),
        "head_dim": header.count("attention.key_length", width // max(heads, 1)),
        "rms_norm_eps": header.number("attention.layer_norm_rms_epsilon"),
        "rope_theta": header.number("rope.freq_base", 10_000.0),
        "tie_word_embeddings": "output.weight" not in header.shapes,
    }
    scaling = header.text("rope.scaling.type", "none")
    if scaling != "none":
        factor = header.number("rope.scaling.factor", 1.0)
        hub["rope_scaling"] = {"rope_type": scaling, "factor": factor}
    if header.architecture != "qwen2" and "blk.0.attn_output.bias" in header.shapes:
        hub["attention_bias"] = True
    return hub
