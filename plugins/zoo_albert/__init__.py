"""ALBERT (Lan et al. 2020, arXiv:1909.11942)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from zoo.config import Config, ConfigMap
from zoo.encoder import Axes, EncoderFamily, encoder_heads
from zoo.family import Family, Head
from zoo.hookspecs import hookimpl
from zoo_albert.config import CONFIG_MAP, SIZES, SPECIAL_TOKENS, AlbertConfig

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import nn

    from zoo.tokenization import SourceFiles
    from zoo.weights import WeightMap

_HEADS = encoder_heads("Albert", pooler=True) | {
    "pretraining": Head(
        ("AlbertForPreTraining",),
        ("logits", "sop_logits"),
        ("fill-mask", "features"),
        "masked tokens, and whether two segments were swapped",
    ),
}


class Albert(EncoderFamily):
    """The family; torch is imported when a model is built."""

    name: ClassVar[str] = "albert"
    model_types: ClassVar[tuple[str, ...]] = ("albert",)
    config_type: ClassVar[type[Config]] = AlbertConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    default_checkpoint: ClassVar[str] = "albert-base-v2"
    special_tokens: ClassVar[Mapping[str, str]] = SPECIAL_TOKENS

    def sizes(self) -> Mapping[str, AlbertConfig]:
        """Return the released shapes."""
        return SIZES

    def heads(self) -> Mapping[str, Head]:
        """Return the heads."""
        return _HEADS

    def model(self, config: AlbertConfig, head: str) -> "nn.Module":
        """Build a model with fresh weights."""
        from zoo_albert.model import build

        return build(config, head)

    def weights(self, config: AlbertConfig, head: str) -> "WeightMap":
        """Return the rules for its tensors."""
        from zoo_albert.weights import weights

        return weights(config, head)

    def outputs(self, config: AlbertConfig, head: str) -> dict[str, Axes]:
        """Name the outputs of a head and their axes."""
        if head != "pretraining":
            return super().outputs(config, head)
        tokens = super().outputs(config, "masked-lm")
        return {**tokens, "sop_logits": ("batch", len(config.labels))}

    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        """Build the SentencePiece tokenizer."""
        from zoo.tokenization import BRACKETED, sentencepiece_tokenizer

        return sentencepiece_tokenizer(
            files,
            roles=SPECIAL_TOKENS,
            template=BRACKETED,
            mask_takes_space=True,
            lowercase=True,
            strip_accents=True,
            plain_quotes=True,
            split_digit_comma=True,
        )


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (Albert(),)
