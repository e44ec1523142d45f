"""ALBERT (Lan et al. 2020, arXiv:1909.11942)."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.config import Config, ConfigMap, Translation
from zoo.encoder import Axes, EncoderFamily, encoder_heads
from zoo.family import Family, Head, NewTokenizer
from zoo.hookspecs import hookimpl
from zoo_albert.config import CONFIG_MAP, SPECIAL_TOKENS, AlbertConfig

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from zoo.foreign import Foreign
    from zoo.tokenization import SourceFiles

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
    config_files: ClassVar[tuple[str, ...]] = ("config.json", "albert_config.json")
    special_tokens: ClassVar[Mapping[str, str]] = SPECIAL_TOKENS
    new_tokenizers: ClassVar[Mapping[str, NewTokenizer]] = {
        "unigram": NewTokenizer(
            ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"),
            lowercase=True,
            strip_accents=True,
            plain_quotes=True,
        )
    }

    def heads(self) -> Mapping[str, Head]:
        """Return the heads."""
        return _HEADS

    def claims(self, hub: Mapping[str, Any]) -> bool:
        """Google's ``albert_config.json`` names no model_type."""
        return bool(hub.get("model_type", self.name) == self.name)

    def from_hub(self, hub: Mapping[str, Any], where: str = "config.json") -> Translation:
        """Translate a configuration; what Google's calls gelu is the approximation by tanh, in
        the code of that release (``modeling.py``).
        """
        if "model_type" not in hub and hub.get("hidden_act") == "gelu":
            hub = {**hub, "hidden_act": "gelu_new"}
        return super().from_hub(hub, where)

    def foreign(self, dialect: str, names: Collection[str], head: str) -> "dict[str, Foreign]":
        """Google's release is read; its names are those of ``modeling.py``."""
        from zoo_albert.weights import released

        if dialect != "tensorflow":
            return super().foreign(dialect, names, head)
        return {name: released(name) for name in names}

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
