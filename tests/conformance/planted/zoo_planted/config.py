"""XLM's configuration and the keys of its Hub configuration."""

from dataclasses import replace
from typing import Literal

from zoo.families.config import Config, ConfigMap, same_names

XLMActivation = Literal["gelu", "relu"]


class XLMConfig(Config, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of an XLM; the defaults are the Hub's."""

    vocab_size: int = 30145
    hidden_size: int = 2048
    num_layers: int = 12
    num_heads: int = 16
    max_positions: int = 512
    activation: XLMActivation = "gelu"
    layer_norm_eps: float = 1e-12
    dropout: float = 0.1
    attention_dropout: float = 0.1
    classifier_dropout: float = 0.1
    initializer_range: float = 0.02
    embedding_range: float = 2048**-0.5
    pad_token_id: int = 2
    tie_embeddings: bool = True

    @property
    def intermediate_size(self) -> int:
        """Inner width of the feed-forward networks."""
        return 4 * self.hidden_size


class FlaubertConfig(XLMConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of a FlauBERT; ``pre_norm`` is true for norms before attention and FFN."""

    pre_norm: bool = False


CONFIG_MAP = ConfigMap(
    keys={
        **same_names("vocab_size", "dropout", "attention_dropout", "layer_norm_eps"),
        **same_names("pad_token_id"),
        "emb_dim": "hidden_size",
        "n_layers": "num_layers",
        "n_heads": "num_heads",
        "max_position_embeddings": "max_positions",
        "gelu_activation": "activation",
        "summary_first_dropout": "classifier_dropout",
        "init_std": "initializer_range",
        "embed_init_std": "embedding_range",
        "tie_word_embeddings": "tie_embeddings",
    },
    values={"gelu_activation": {True: "gelu", False: "relu"}},
    fixed={
        "sinusoidal_embeddings": (False,),
        "causal": (False,),
        "asm": (False,),
        "n_langs": (1,),
        "is_encoder": (True,),
        "summary_type": ("first",),
        "summary_use_proj": (True,),
        "summary_activation": (None,),
        "summary_proj_to_labels": (True,),
    },
    ignored={
        "use_lang_emb": "embeds languages, of which there is one",
        "unk_index": "the tokenizer decides",
        "mask_index": "the tokenizer decides",
        "lang_id": "used in generation",
        "start_n_top": "of a head for question answering",
        "end_n_top": "of a head for question answering",
    },
)

FLAUBERT_MAP = replace(
    CONFIG_MAP,
    keys={**CONFIG_MAP.keys, "pre_norm": "pre_norm"},
    ignored={**CONFIG_MAP.ignored, "layerdrop": "used in training"},
)

TINY = XLMConfig(vocab_size=2000, hidden_size=64, num_layers=2, num_heads=2, max_positions=128)
BASE = XLMConfig()
SIZES = {"tiny": TINY, "base": BASE}
