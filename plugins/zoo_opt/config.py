"""The configuration of OPT and XGLM and the keys of their Hub configurations."""

from typing import Any, Literal

from zoo.families.config import Activation, ConfigMap, TransformerConfig, same_names

POSITION_OFFSET = 2  # rows of the tables of positions before the first position


class OptConfig(TransformerConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of an OPT or XGLM; the defaults are those of OPT 125M and of the Hub."""

    # the Hub's ``model_type``: positions are learned in ``opt`` and sinusoidal in ``xglm``
    model_type: Literal["opt", "xglm"] = "opt"
    vocab_size: int = 50272
    hidden_size: int = 768
    num_layers: int = 12
    num_heads: int = 12
    intermediate_size: int = 3072
    max_positions: int = 2048
    activation: Activation = "relu"
    # dropout probability of what is added to the residual path, in XGLM also of the embeddings
    dropout: float = 0.1
    layer_norm_eps: float = 1e-5  # epsilon of the layer norms, which no file of the Hub has
    scale_embedding: bool = False  # multiply token embeddings by the root of ``hidden_size``
    pad_token_id: int = 1

    @property
    def embedding_dropout(self) -> float:
        """Dropout probability of the embeddings."""
        return self.dropout if self.model_type == "xglm" else 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model_type == "xglm" and self.hidden_size < 4:
            raise ValueError(f"hidden_size is {self.hidden_size}, and sinusoidal positions need 4")


_SHARED: dict[str, str] = {
    **same_names("vocab_size", "dropout", "attention_dropout", "pad_token_id"),
    "max_position_embeddings": "max_positions",
    "activation_function": "activation",
    "ffn_dim": "intermediate_size",
    "init_std": "initializer_range",
    "tie_word_embeddings": "tie_embeddings",
}
_IGNORED = {"layerdrop": "a training setting; all layers run"}
_XGLM: dict[str, Any] = {
    "model_type": "xglm",
    "vocab_size": 256008,
    "activation": "gelu",
    "attention_dropout": 0.1,
    "scale_embedding": True,
}
CONFIG_MAPS = {
    "opt": ConfigMap(
        keys={
            **_SHARED,
            "hidden_size": "hidden_size",
            "num_hidden_layers": "num_layers",
            "num_attention_heads": "num_heads",
        },
        # OPT 350M has norms after the sums and projected embeddings
        fixed={
            "do_layer_norm_before": (True,),
            "_remove_final_layer_norm": (False,),
            "enable_bias": (True,),
            "layer_norm_elementwise_affine": (True,),
        },
        ignored={
            **_IGNORED,
            "activation_dropout": "the released code has it, and the Hub's class does not",
            "prefix": "text that the Hub's examples put before a prompt",
        },
        follows={"word_embed_proj_dim": "hidden_size"},
    ),
    "xglm": ConfigMap(
        keys={
            **_SHARED,
            **same_names("scale_embedding"),
            "d_model": "hidden_size",
            "num_layers": "num_layers",
            "attention_heads": "num_heads",
        },
        fixed={"add_cross_attention": (False, None), "activation_dropout": (0.0, None)},
        ignored={
            **_IGNORED,
            "decoder_start_token_id": "a text begins with the token that its tokenizer puts there",
        },
        implied={
            **_XGLM,
            "hidden_size": 1024,
            "num_layers": 24,
            "num_heads": 16,
            "intermediate_size": 4096,
        },
    ),
}


def _sized(layers: int, width: int, heads: int, **changes: Any) -> OptConfig:
    shape = {"num_layers": layers, "hidden_size": width, "num_heads": heads}
    return OptConfig(**{**shape, "intermediate_size": 4 * width, **changes})


SIZES = {
    "tiny": _sized(2, 128, 4, vocab_size=1000, max_positions=128),
    # arXiv:2205.01068, table 1
    "125m": OptConfig(),
    "1.3b": _sized(24, 2048, 32),
    "2.7b": _sized(32, 2560, 32),
    "6.7b": _sized(32, 4096, 32),
    "13b": _sized(40, 5120, 40),
    "30b": _sized(48, 7168, 56),
    "66b": _sized(64, 9216, 72),
    # arXiv:2112.10668, table 1
    "xglm-564m": _sized(24, 1024, 16, **_XGLM),
    "xglm-1.7b": _sized(24, 2048, 16, **_XGLM),
    "xglm-2.9b": _sized(48, 2048, 16, **_XGLM),
    "xglm-7.5b": _sized(32, 4096, 32, **_XGLM),
}
