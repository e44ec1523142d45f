"""The configuration of Marian's translation models and the keys of its Hub configuration."""

from zoo.families.config import ConfigMap, same_names
from zoo.families.seq2seq import FIXED, IGNORED, KEYS, Seq2SeqConfig, relative_keys


class MarianConfig(Seq2SeqConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of a Marian model; with the Hub's defaults."""

    vocab_size: int = 58101
    pad_token_id: int = 58100
    eos_token_id: int = 0
    decoder_start_token_id: int = 58100
    # encoder and decoder have one table of token embeddings; else, two vocabularies of one size
    share_encoder_decoder_embeddings: bool = True

    @property
    def shares_tokens(self) -> bool:
        """Whether encoder and decoder read one table of token embeddings."""
        return self.tie_embeddings and self.share_encoder_decoder_embeddings


CONFIG_MAP = ConfigMap(
    keys={**KEYS, **same_names("share_encoder_decoder_embeddings")},
    fixed={**FIXED, **relative_keys(pre_norm=False, embedding_norm=False, sinusoidal=True)},
    ignored={
        **IGNORED,
        "extra_pos_embeddings": "sinusoidal positions have no extra rows",
        "classifier_dropout": "the family has no classifier",
    },
    follows={"decoder_vocab_size": "vocab_size"},
    supplied={"forced_eos_token_id": 0},
)
SIZES = {
    "tiny": MarianConfig.sized(
        2,
        128,
        vocab_size=1000,
        max_positions=64,
        pad_token_id=2,
        decoder_start_token_id=2,
        activation="swish",
        scale_embedding=True,
    ),
    # the models of OPUS-MT: the base size of arXiv:1706.03762
    "base": MarianConfig.sized(6, 512, max_positions=512, activation="swish", scale_embedding=True),
}
