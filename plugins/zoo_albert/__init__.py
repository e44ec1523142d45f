"""ALBERT (Lan et al. 2020, arXiv:1909.11942)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.config import Config, ConfigMap, Translation
from zoo.encoder import EncoderFamily, encoder_heads, masked_head
from zoo.family import Family, Head, NewTokenizer
from zoo.hookspecs import hookimpl
from zoo_albert.config import CONFIG_MAP, SPECIAL_TOKENS, AlbertConfig

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from zoo.tokenization import SourceFiles


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
    named_heads: ClassVar[Mapping[str, Head]] = {
        **encoder_heads("Albert", pooler=True),
        "pretraining": masked_head(
            "AlbertForPreTraining",
            summary="masked tokens, and whether two segments were swapped",
            sop_logits="batch labels",
        ),
    }

    def from_hub(self, hub: Mapping[str, Any], where: str = "config.json") -> Translation:
        """Translate a configuration; what Google's calls gelu is the approximation by tanh, in
        the code of that release (``modeling.py``).
        """
        if "model_type" not in hub and hub.get("hidden_act") == "gelu":
            hub = {**hub, "hidden_act": "gelu_new"}
        return super().from_hub(hub, where)

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
