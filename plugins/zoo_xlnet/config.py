"""XLNet's configuration and the keys of its Hub configuration."""

from typing import Any, ClassVar

from zoo.families.config import Activation, Config, ConfigMap, same_names


class XLNetConfig(Config, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of an XLNet; the defaults are the Hub's, those for ``large``.

    Attributes:
        vocab_size: number of tokens in the vocabulary.
        hidden_size: width of the hidden state.
        num_layers: number of blocks.
        num_heads: number of attention heads per block.
        intermediate_size: inner width of the feed-forward networks.
        activation: activation function of the feed-forward networks.
        dropout: dropout probability, including attention weights and relative positions.
        classifier_dropout: dropout probability before a classifier of texts.
        layer_norm_eps: epsilon of the layer norms.
        initializer_range: standard deviation of initial weights.
        clamp_len: largest distance of two tokens, larger ones count as this; 0 or less for none.
        mem_len: largest number of tokens that the memory holds.
        reuse_len: number of first tokens of a segment that are added to the memory; ``None`` for
            all.
        use_mems: generate with a memory, in place of running all of the text in each step; see
            ``zoo_xlnet.generation``.
        start_n_top: number of first tokens of answers that a beam search returns.
        end_n_top: number of last tokens for each of them.
        pad_token_id: the padding token, or ``None``.
        mask_token_id: a token in its place is to be predicted.
        type_vocab_size: number of segment types: two texts and the last token. Attention compares
            them, and there are no embeddings of them.
    """

    type_vocab_size: ClassVar[int] = 3

    vocab_size: int = 32000
    hidden_size: int = 1024
    num_layers: int = 24
    num_heads: int = 16
    intermediate_size: int = 4096
    activation: Activation = "gelu"
    dropout: float = 0.1
    classifier_dropout: float = 0.1
    layer_norm_eps: float = 1e-12
    initializer_range: float = 0.02
    clamp_len: int = -1
    mem_len: int | None = 512
    reuse_len: int | None = None
    use_mems: bool = True
    start_n_top: int = 5
    end_n_top: int = 5
    pad_token_id: int | None = 5
    mask_token_id: int = 6

    @property
    def head_size(self) -> int:
        """Width of an attention head."""
        return self.hidden_size // self.num_heads

    @property
    def beams(self) -> int:
        """Number of answers of a beam search."""
        return self.start_n_top * self.end_n_top


_INITIAL = "of new weights"
CONFIG_MAP = ConfigMap(
    keys={
        **same_names("vocab_size", "dropout", "layer_norm_eps", "initializer_range"),
        **same_names("start_n_top", "end_n_top"),
        **same_names("clamp_len", "mem_len", "reuse_len", "pad_token_id", "mask_token_id"),
        "use_mems_eval": "use_mems",
        "d_model": "hidden_size",
        "n_layer": "num_layers",
        "n_head": "num_heads",
        "d_inner": "intermediate_size",
        "ff_activation": "activation",
        "summary_last_dropout": "classifier_dropout",
    },
    fixed={
        "attn_type": ("bi",),
        "bi_data": (False,),
        "untie_r": (True,),
        "summary_type": ("last",),
        "summary_use_proj": (True,),
        "summary_activation": ("tanh",),
        "summary_first_dropout": (None, 0.0),
        "summary_proj_to_labels": (None, False),
        "tie_word_embeddings": (True,),
    },
    follows={"d_head": "head_size"},
    ignored={
        "same_length": "of attention in one direction, which is refused by attn_type",
        "use_mems_train": "whether a caller keeps memories between calls",
        "init": _INITIAL,
        "init_range": _INITIAL,
        "init_std": _INITIAL,
        "dropatt": "no class of the Hub reads it; dropout applies to attention as well",
        "max_position_embeddings": "attention has no limit",
        "is_decoder": "no class of the Hub reads it",
        "n_layers": "read by no class of the family: n_layer is",
    },
    aliases={"n_token": "vocab_size"},
    unsaid=("mask_token_id",),
)

# published configurations have no memory
_PUBLISHED: dict[str, Any] = {"mem_len": None}
SIZES = {
    "tiny": XLNetConfig(
        vocab_size=1000, hidden_size=128, num_layers=2, num_heads=4, intermediate_size=512
    ),
    "base": XLNetConfig(
        hidden_size=768, num_layers=12, num_heads=12, intermediate_size=3072, **_PUBLISHED
    ),
    "large": XLNetConfig(**_PUBLISHED),
}
