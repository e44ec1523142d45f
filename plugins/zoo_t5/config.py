"""The configuration of T5, mT5 and UMT5 and the keys of their Hub configurations."""

from dataclasses import replace
from typing import Any, Literal

from zoo.errors import UsageError
from zoo.families.config import Config, ConfigMap, same_names

# arXiv:2002.05202 calls those with a gate GLU, Bilinear, ReGLU, GEGLU and SwiGLU, in this order
FeedForward = Literal[
    "relu",
    "gelu",
    "silu",
    "gated-sigmoid",
    "gated-linear",
    "gated-relu",
    "gated-gelu",
    "gated-silu",
]
SingleStack = Literal["prefix", "causal"]


class T5Config(Config, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of a T5; with the defaults of ``small`` and of the Hub."""

    # ``mt5`` only differs from ``t5`` in the Hub's keys and names; ``umt5`` also has a table of
    # relative positions in each block
    series: Literal["t5", "mt5", "umt5"] = "t5"
    vocab_size: int = 32128  # number of tokens in the vocabulary
    hidden_size: int = 512  # width of the hidden state
    head_size: int = 64  # width of an attention head, independent of ``hidden_size``
    intermediate_size: int = 2048  # inner width of the feed-forward networks
    num_layers: int = 6  # number of encoder blocks
    num_decoder_layers: int | None = None  # number of decoder blocks; ``None`` for ``num_layers``
    # whether the decoder's blocks have the weights of the encoder's, except for cross-attention
    # (arXiv:1910.10683, table 2, "Enc-dec, shared")
    tie_encoder_decoder: bool = False
    # one stack in place of encoder and decoder, which reads source and target as one text; all
    # tokens see the whole source (``prefix``), or only what is before them (``causal``): "Prefix
    # LM" and "LM" of table 2. ``None`` for an encoder-decoder
    single_stack: SingleStack | None = None
    num_heads: int = 8  # number of attention heads per block
    num_buckets: int = 32  # number of buckets of relative positions
    max_distance: int = 128  # the distance from which on all are in one bucket
    # activation function of the feed-forward networks, and whether it is a gate; ``gated-gelu`` is
    # the approximation by tanh
    feed_forward: FeedForward = "relu"
    dropout: float = 0.1  # dropout probability, also of attention weights
    classifier_dropout: float = 0.0  # dropout probability in the classifiers' heads
    layer_norm_eps: float = 1e-6  # epsilon of the norms
    initializer_factor: float = 1.0  # factor of the initial weights
    # the initial query weights of cross-attention are its key weights times this, so that hidden
    # states of source and target attend to each other where they are equal; ``None`` for
    # independent weights. See ``zoo_t5.model.build``
    mimetic_init_scale: float | None = None
    pad_token_id: int = 0  # the padding token
    eos_token_id: int = 1  # the token that ends a text, at which a text is classified
    decoder_start_token_id: int = 0  # the first input token of the decoder
    output_table: bool = False  # whether the output embeddings are not the token embeddings
    # scale the hidden state by ``hidden_size ** -0.5`` before the logits
    scale_outputs: bool = True
    # whether classifiers read a learned mix of all layers, see ``zoo.nn.layers.scalar_mix``, in
    # place of the last one: the encoder's for tokens, the decoder's for texts
    mix: bool = False

    @property
    def shares_positions(self) -> bool:
        """Whether the blocks of a stack share one table of relative positions."""
        return self.series != "umt5"

    @property
    def inner_size(self) -> int:
        """Width of all attention heads together."""
        return self.num_heads * self.head_size

    @property
    def decoder_layers(self) -> int:
        """Number of decoder blocks."""
        return self.num_layers if self.num_decoder_layers is None else self.num_decoder_layers

    @property
    def predicts_source(self) -> bool:
        """Whether the hidden states of a source's token do not depend on the tokens after it."""
        return self.single_stack == "causal"

    @property
    def gated(self) -> bool:
        """``True`` if the feed-forward networks have a gate."""
        return self.feed_forward.startswith("gated-")

    @property
    def activation(self) -> str:
        """Name of the activation function of the feed-forward networks."""
        name = self.feed_forward.removeprefix("gated-")
        return "gelu_new" if name == "gelu" and self.gated else name

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_buckets < 4:
            raise ValueError(f"num_buckets is {self.num_buckets}, which is less than 4")
        if self.max_distance <= self.num_buckets // 2:
            raise ValueError(
                f"max_distance {self.max_distance} is not over half of num_buckets "
                f"{self.num_buckets}, up to where each distance has a bucket of its own"
            )
        if self.tie_encoder_decoder and self.decoder_layers != self.num_layers:
            raise ValueError(
                f"tie_encoder_decoder needs {self.num_layers} blocks in the decoder, as in the "
                f"encoder, and num_decoder_layers is {self.decoder_layers}"
            )
        if self.single_stack is not None:
            no_decoder = f"single_stack {self.single_stack} has no decoder"
            self.refuse(
                {
                    f"{no_decoder}, and tie_encoder_decoder is true": self.tie_encoder_decoder,
                    f"{no_decoder}, and num_decoder_layers is {self.num_decoder_layers}": (
                        self.num_decoder_layers is not None
                    ),
                }
            )


def require_head(config: T5Config, head: str) -> None:
    """Raise an error for a head that a single stack does not have.

    Raises:
        UsageError: it is such a head.
    """
    if config.single_stack is None:
        return
    heads = ["seq2seq-lm"]
    if config.single_stack == "causal":  # A text without a source is read in the same way.
        heads.append("causal-lm")
    if head not in ("none", *heads):
        raise UsageError(
            f"t5 with single_stack {config.single_stack} has no head {head}",
            f"it has {' and '.join(heads)}",
        )


def _shape(width: int, inner: int, layers: int, heads: int) -> dict[str, Any]:
    return {
        "hidden_size": width,
        "intermediate_size": inner,
        "num_layers": layers,
        "num_heads": heads,
    }


# sizes of version 1.1, which Flan-T5 and mT5 share, and fields of mT5 only
_LATER = {
    "small": _shape(512, 1024, 8, 6),
    "base": _shape(768, 2048, 12, 12),
    "large": _shape(1024, 2816, 24, 16),
    "xl": _shape(2048, 5120, 24, 32),
    "xxl": _shape(4096, 10240, 24, 64),
}
_GATED: dict[str, Any] = {
    "feed_forward": "gated-gelu",
    "output_table": True,
    "scale_outputs": False,
}
_OWN: dict[str, Any] = {"series": "mt5", "vocab_size": 250112}
_UMT5: dict[str, Any] = {**_GATED, "series": "umt5", "vocab_size": 256384}
# ByT5, arXiv:2105.13626, table 1: a T5 on bytes, with a small decoder
_BYTES: dict[str, Any] = {**_GATED, "vocab_size": 384}
SIZES = {
    "tiny": T5Config(**_shape(64, 96, 2, 4), head_size=24, vocab_size=1000),
    "small": T5Config(),
    "base": T5Config(**_shape(768, 3072, 12, 12)),
    "large": T5Config(**_shape(1024, 4096, 24, 16)),
    "3b": T5Config(**_shape(1024, 16384, 24, 32), head_size=128),
    "11b": T5Config(**_shape(1024, 65536, 24, 128), head_size=128),
    **{f"v1.1-{name}": T5Config(**shape, **_GATED) for name, shape in _LATER.items()},
    **{f"mt5-{name}": T5Config(**shape, **_GATED, **_OWN) for name, shape in _LATER.items()},
    **{
        f"umt5-{name}": T5Config(**_LATER[name], **_UMT5) for name in ("small", "base", "xl", "xxl")
    },
    "byt5-small": T5Config(**_shape(1472, 3584, 12, 6), num_decoder_layers=4, **_BYTES),
    "byt5-base": T5Config(**_shape(1536, 3968, 18, 12), num_decoder_layers=6, **_BYTES),
    "byt5-large": T5Config(**_shape(1536, 3840, 36, 16), num_decoder_layers=12, **_BYTES),
    "byt5-xl": T5Config(**_shape(2560, 6720, 36, 32), num_decoder_layers=12, **_BYTES),
    "byt5-xxl": T5Config(**_shape(4672, 12352, 36, 64), num_decoder_layers=12, **_BYTES),
}
_KEYS = {
    **same_names("vocab_size", "num_layers", "num_decoder_layers", "num_heads"),
    **same_names("classifier_dropout", "initializer_factor", "mimetic_init_scale"),
    **same_names("tie_encoder_decoder", "single_stack"),
    **same_names("pad_token_id", "eos_token_id", "decoder_start_token_id"),
    "d_model": "hidden_size",
    "d_kv": "head_size",
    "d_ff": "intermediate_size",
    "relative_attention_num_buckets": "num_buckets",
    "relative_attention_max_distance": "max_distance",
    "feed_forward_proj": "feed_forward",
    "dropout_rate": "dropout",
    "layer_norm_epsilon": "layer_norm_eps",
    "tie_word_embeddings": "output_table",
}
_MT5 = ConfigMap(
    keys=_KEYS,
    fixed={"is_decoder": (False, None)},
    ignored={
        "is_encoder_decoder": "follows from the head",
        "n_positions": "the longest training row; relative positions are unlimited",
    },
    follows={"dense_act_fn": "activation", "is_gated_act": "gated"},
    aliases={"head_dim": "d_kv"},
    values={"tie_word_embeddings": {True: False, False: True}},
    implied=_LATER["small"] | _GATED | _OWN,
    # No keys of transformers 5, which keeps them.
    unsaid=("mimetic_init_scale", "tie_encoder_decoder", "single_stack"),
)
_T5 = replace(_MT5, keys=_KEYS | {"scale_decoder_outputs": "scale_outputs"}, implied={})
CONFIG_MAPS = {
    "t5": _T5,
    "mt5": _MT5,
    "umt5": replace(
        _T5,
        ignored={**_MT5.ignored, "scalable_attention": "provenance"},
        implied=_LATER["small"]
        | {"feed_forward": "gated-gelu", "series": "umt5", "vocab_size": 250112},
        unsaid=(*_MT5.unsaid, "scale_decoder_outputs"),
    ),
}
