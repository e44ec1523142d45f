"""The configuration of M2M100 and NLLB and the keys of their Hub configuration."""

from zoo.families.config import Activation, ConfigMap
from zoo.families.seq2seq import FIXED, IGNORED, KEYS, Seq2SeqConfig


class M2M100Config(Seq2SeqConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of an M2M100 or NLLB; with the Hub's defaults."""

    vocab_size: int = 128112
    activation: Activation = "relu"
    attention_dropout: float = 0.1
    scale_embedding: bool = True
    logits_bias: bool = False

    @property
    def position_offset(self) -> int:
        """Number of rows of the tables of positions before the first position."""
        return self.pad_token_id + 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden_size < 4:
            raise ValueError(f"hidden_size is {self.hidden_size}, and sinusoidal positions need 4")
        if self.pad_token_id in (self.eos_token_id, self.decoder_start_token_id):
            raise ValueError(
                f"pad_token_id {self.pad_token_id} is also eos_token_id or decoder_start_token_id, "
                "and padding has no position"
            )


CONFIG_MAP = ConfigMap(keys=KEYS, fixed=FIXED, ignored=IGNORED)
_WIDE = {"intermediate_size": 8192, "decoder_ffn_dim": 8192}
_NLLB = {"vocab_size": 256206}  # arXiv:2207.04672
SIZES = {
    "tiny": M2M100Config.sized(2, 128, vocab_size=1000, max_positions=64),
    "418m": M2M100Config.sized(12, 1024),
    "1.2b": M2M100Config.sized(24, 1024, **_WIDE),
    "nllb-600m": M2M100Config.sized(12, 1024, **_NLLB),
    "nllb-1.3b": M2M100Config.sized(24, 1024, **_WIDE, **_NLLB),
    "nllb-3.3b": M2M100Config.sized(
        24, 2048, num_heads=16, decoder_attention_heads=16, **_WIDE, **_NLLB
    ),
}
