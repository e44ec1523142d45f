"""The configuration of GPT and GPT-2 and the keys of their Hub configurations."""

from dataclasses import replace
from typing import Any, Literal

from zoo.families.config import Activation, Config, ConfigMap, same_names


class GptConfig(Config, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of a GPT; with the defaults of GPT-2 ``small`` and of the Hub."""

    vocab_size: int = 50257  # number of tokens in the vocabulary
    hidden_size: int = 768  # width of the hidden state
    num_layers: int = 12  # number of blocks
    num_heads: int = 12  # number of attention heads per block
    # inner width of the feed-forward networks; ``None`` for four times ``hidden_size``
    intermediate_size: int | None = None
    # number of position embeddings, the longest row with generated tokens
    max_positions: int = 1024
    # ``pre`` for layer norms before attention and feed-forward network and after the last block, as
    # in GPT-2; ``post`` for layer norms after each residual sum, as in GPT
    norm: Literal["pre", "post"] = "pre"
    activation: Activation = "gelu_new"  # activation function of the feed-forward networks
    dropout: float = 0.1  # dropout probability of what is added to the residual path
    embedding_dropout: float = 0.1  # dropout probability of the embeddings
    attention_dropout: float = 0.1  # dropout probability of the attention weights
    choice_dropout: float = 0.1  # dropout probability before the multiple-choice head
    scale_attention: bool = True  # divide attention scores by the root of a head's width
    scale_by_layer: bool = False  # also divide them by the index of the layer, from 1
    layer_norm_eps: float = 1e-5  # epsilon of the layer norms
    initializer_range: float = 0.02  # standard deviation of initial weights
    pad_token_id: int | None = None  # the padding token, or ``None``
    tie_embeddings: bool = True  # use the token embeddings as output embeddings
    mix: bool = False  # see ``EncoderConfig``

    @property
    def inner_size(self) -> int:
        """Inner width of the feed-forward networks."""
        return self.intermediate_size or 4 * self.hidden_size

    def attention_scale(self, layer: int) -> float:
        """Return the factor of a layer's attention scores; layers are counted from 0."""
        width = self.hidden_size // self.num_heads
        scale = width**-0.5 if self.scale_attention else 1.0
        return scale / (layer + 1) if self.scale_by_layer else scale

    def __post_init__(self) -> None:
        super().__post_init__()
        as_in_gpt = self.inner_size == 4 * self.hidden_size and self.scale_attention
        if self.norm == "post" and (not as_in_gpt or self.scale_by_layer):
            raise ValueError(
                "norm post goes with an intermediate_size of four times hidden_size, with "
                "scale_attention and without scale_by_layer: the first GPT has nothing else"
            )


_KEYS = {
    **same_names("vocab_size", "initializer_range", "pad_token_id"),
    "n_positions": "max_positions",
    "n_embd": "hidden_size",
    "n_layer": "num_layers",
    "n_head": "num_heads",
    "resid_pdrop": "dropout",
    "embd_pdrop": "embedding_dropout",
    "attn_pdrop": "attention_dropout",
    "summary_first_dropout": "choice_dropout",
    "layer_norm_epsilon": "layer_norm_eps",
    "tie_word_embeddings": "tie_embeddings",
}
_IGNORED = {
    "is_decoder": "attention is always causal",
    "n_ctx": "an old name of n_positions; no implementation reads it",
    "n_special": "the number of special tokens, included in vocab_size",
    "predict_special_tokens": "read by no implementation",
}
_SECOND = ConfigMap(
    keys={
        **_KEYS,
        "n_inner": "intermediate_size",
        "activation_function": "activation",
        "scale_attn_weights": "scale_attention",
        "scale_attn_by_inverse_layer_idx": "scale_by_layer",
    },
    fixed={
        "is_encoder_decoder": (False, None),
        "classifier_dropout": (None, 0.1),
        "hidden_dropout": (None, 0.1),
        # the multiple-choice head: one number, of one token, as it is
        "summary_type": ("cls_index",),
        "summary_use_proj": (True,),
        "summary_activation": (None,),
        "summary_last_dropout": (None, 0, 0.0),
        "summary_proj_to_labels": (True,),
    },
    ignored={
        **_IGNORED,
        "reorder_and_upcast_attn": "computes scores in float32; results are equal",
    },
)
_FIRST = replace(
    _SECOND,
    keys={**_KEYS, "afn": "activation"},
    ignored=_IGNORED,
    # its class knows three activations, by names of its own: its "gelu" is the approximation
    values={"afn": {"gelu": "gelu_new", "relu": "relu", "silu": "silu", "swish": "silu"}},
    implied={"norm": "post", "vocab_size": 40478, "max_positions": 512},
)
CONFIG_MAPS = {"gpt2": _SECOND, "openai-gpt": _FIRST}


def _gpt2(layers: int, width: int, heads: int, **changes: Any) -> GptConfig:
    return GptConfig(num_layers=layers, hidden_size=width, num_heads=heads, **changes)


SIZES = {
    "tiny": _gpt2(2, 128, 2, vocab_size=1000, max_positions=128),
    "gpt": GptConfig(norm="post", vocab_size=40478, max_positions=512),
    "distil": _gpt2(6, 768, 12),
    "small": _gpt2(12, 768, 12),
    "medium": _gpt2(24, 1024, 16),
    "large": _gpt2(36, 1280, 20),
    "xl": _gpt2(48, 1600, 25),
}
