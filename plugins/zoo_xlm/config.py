"""XLM's and FlauBERT's configuration, and the keys of their Hub configurations."""

from dataclasses import replace
from typing import Any, Literal

from zoo.families.config import Config, ConfigMap, same_names

ModelType = Literal["xlm", "flaubert"]
XLMActivation = Literal["gelu", "relu"]
NOT_FOR_OUTPUTS = "a setting of the run that trained the model"


class XLMConfig(Config, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of an XLM or FlauBERT; the defaults are the Hub's.

    Attributes:
        model_type: the Hub's ``model_type``; both have one architecture.
        vocab_size: number of tokens in the vocabulary.
        hidden_size: width of the hidden state.
        num_layers: number of blocks.
        num_heads: number of attention heads per block.
        max_positions: number of position embeddings.
        num_languages: number of languages.
        language_embeddings: whether several languages have embeddings.
        sinusoidal_positions: whether the position embeddings of a new model are sinusoids.
        pre_norm: whether norms precede attention and feed-forward network, without a last norm.
        activation: activation function of the feed-forward networks.
        layer_norm_eps: epsilon of the layer norms.
        dropout: dropout probability of the embeddings and of what is added to the residual path.
        attention_dropout: dropout probability of the attention weights.
        layerdrop: probability that training skips a block.
        classifier_dropout: dropout probability before a classifier of texts.
        initializer_range: standard deviation of initial weights.
        embedding_range: standard deviation of initial embeddings.
        pad_token_id: the padding token.
        tie_embeddings: use the token embeddings as output embeddings.
    """

    model_type: ModelType = "xlm"
    vocab_size: int = 30145
    hidden_size: int = 2048
    num_layers: int = 12
    num_heads: int = 16
    max_positions: int = 512
    num_languages: int = 1
    language_embeddings: bool = True
    sinusoidal_positions: bool = False
    pre_norm: bool = False
    activation: XLMActivation = "gelu"
    layer_norm_eps: float = 1e-12
    dropout: float = 0.1
    attention_dropout: float = 0.1
    layerdrop: float = 0.0
    classifier_dropout: float = 0.1
    initializer_range: float = 0.02
    embedding_range: float = 2048**-0.5
    pad_token_id: int = 2
    tie_embeddings: bool = True

    def __post_init__(self) -> None:
        """Check the probability of skipped blocks."""
        super().__post_init__()
        if self.layerdrop >= 1:
            raise ValueError(f"layerdrop is {self.layerdrop}, not in [0, 1)")

    @property
    def intermediate_size(self) -> int:
        """Inner width of the feed-forward networks."""
        return 4 * self.hidden_size

    @property
    def language_rows(self) -> int:
        """Number of language embeddings."""
        if self.num_languages > 1 and self.language_embeddings:
            return self.num_languages
        return 0


XLM_MAP = ConfigMap(
    keys={
        **same_names("vocab_size", "dropout", "attention_dropout", "layer_norm_eps"),
        **same_names("pad_token_id"),
        "emb_dim": "hidden_size",
        "n_layers": "num_layers",
        "n_heads": "num_heads",
        "max_position_embeddings": "max_positions",
        "n_langs": "num_languages",
        "use_lang_emb": "language_embeddings",
        "sinusoidal_embeddings": "sinusoidal_positions",
        "gelu_activation": "activation",
        "summary_first_dropout": "classifier_dropout",
        "init_std": "initializer_range",
        "embed_init_std": "embedding_range",
        "tie_word_embeddings": "tie_embeddings",
    },
    values={"gelu_activation": {True: "gelu", False: "relu"}},
    fixed={
        "causal": (False,),
        "asm": (False,),
        "is_encoder": (True,),
        "encoder_only": (True, None),
        "summary_type": ("first",),
        "summary_use_proj": (True,),
        "summary_activation": (None,),
        "summary_proj_to_labels": (True,),
        "summary_last_dropout": (None, 0, 0.0),
        "share_inout_emb": (True, None),
    },
    aliases={"pad_index": "pad_token_id", "n_words": "vocab_size"},
    ignored={
        **dict.fromkeys(("bos_index", "eos_index", "unk_index"), "the tokenizer decides"),
        **dict.fromkeys(("mask_index", "langs", "lgs"), "the tokenizer decides"),
        **dict.fromkeys(("id2lang", "lang2id"), "names of the languages"),
        "lang_id": "used in generation",
        **dict.fromkeys(("asm_cutoffs", "asm_div_value"), "of a projection that `asm` selects"),
        "start_n_top": "of a head for question answering that is not read",
        "end_n_top": "of a head for question answering that is not read",
        **dict.fromkeys(
            (
                "amp",
                "fp16",
                "accumulate_gradients",
                "clip_grad_norm",
                "optimizer",
                "bptt",
                "batch_size",
                "max_batch_size",
                "tokens_per_batch",
                "group_by_size",
                "max_vocab",
                "min_count",
                "lg_sampling_factor",
                "sample_alpha",
                "split_data",
                "mlm_steps",
                "clm_steps",
                "mlm",
                "clm",
                "mono_list",
                "para_list",
                "bt_steps",
                "word_blank",
                "word_dropout",
                "word_shuffle",
                "word_pred",
                "word_mask",
                "word_keep",
                "word_rand",
                "word_mask_keep_rand",
                "n_dec_layers",
                "use_memory",
            ),
            NOT_FOR_OUTPUTS,
        ),
    },
)
CONFIG_MAPS = {
    "xlm": XLM_MAP,
    "flaubert": replace(
        XLM_MAP,
        keys={**XLM_MAP.keys, "pre_norm": "pre_norm", "layerdrop": "layerdrop"},
        implied={"model_type": "flaubert"},
    ),
}


def _flaubert(layers: int, width: int, heads: int, **changes: Any) -> XLMConfig:
    """Return a released configuration of FlauBERT."""
    return XLMConfig(
        model_type="flaubert",
        hidden_size=width,
        num_layers=layers,
        num_heads=heads,
        **changes,
    )


SIZES = {
    "tiny": XLMConfig(
        vocab_size=1000, hidden_size=128, num_layers=2, num_heads=2, max_positions=130
    ),
    # Lample and Conneau 2019, and the configurations of the released models.
    "en": XLMConfig(),
    # Le et al. 2020, arXiv:1912.05372, table 2.
    "flaubert-base-cased": _flaubert(12, 768, 12, vocab_size=68729),
}
