"""DeBERTa, versions 1 to 3 (He et al. 2020, arXiv:2006.03654; 2021, arXiv:2111.09543)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from zoo.config import Config, ConfigMap
from zoo.encoder import Axes, EncoderFamily, encoder_heads
from zoo.errors import UsageError
from zoo.family import Family, Head, NewTokenizer
from zoo.hookspecs import hookimpl
from zoo_deberta.config import CONFIG_MAP, FIRST_MAP, SPECIAL_TOKENS, DebertaConfig

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from zoo.tokenization import SourceFiles


_HEADS = encoder_heads("DebertaV2", "Deberta")
_HEADS |= {
    "replaced-token-detection": Head(
        ("ReplacedTokenDetectionModel",), ("logits",), ("features",), "which tokens were replaced"
    ),
    "pretraining": Head(
        _HEADS["masked-lm"].architectures,
        ("logits", "replaced_logits"),
        ("fill-mask", "features"),
        "masked tokens, and which tokens were replaced",
    ),
}


class Deberta(EncoderFamily):
    """The family; torch is imported when a model is built."""

    name: ClassVar[str] = "deberta"
    model_types: ClassVar[tuple[str, ...]] = ("deberta-v2", "deberta")
    config_type: ClassVar[type[Config]] = DebertaConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    config_maps: ClassVar[Mapping[str, ConfigMap]] = {"deberta": FIRST_MAP}
    default_checkpoint: ClassVar[str] = "deberta-v3-base"
    special_tokens: ClassVar[Mapping[str, str]] = SPECIAL_TOKENS
    new_tokenizers: ClassVar[Mapping[str, NewTokenizer]] = dict.fromkeys(
        ("unigram", "byte-level-bpe"),
        NewTokenizer(("[PAD]", "[CLS]", "[SEP]", "[UNK]"), ("[MASK]",)),
    )

    def heads(self) -> Mapping[str, Head]:
        """Return the heads."""
        return _HEADS

    def model_type(self, config: DebertaConfig) -> str:
        """Return what the Hub calls version 1, or the others."""
        return "deberta-v2" if config.key_bias else "deberta"

    def architecture(self, config: DebertaConfig, head: str) -> str:
        """Return the name of the Hub's class for the version.

        Raises:
            UsageError: the Hub has none.
        """
        if head == "multiple-choice" and not config.key_bias:
            raise UsageError("the Hub has no class for DeBERTa 1 with the head multiple-choice")
        names = _HEADS[head].architectures
        return names[0] if config.key_bias else names[-1]

    def has_reference(self, config: DebertaConfig, head: str) -> bool:
        """Whether the Hub's library computes the same; it knows neither the enhanced decoder nor
        the replaced-token head.
        """
        if head in ("replaced-token-detection", "pretraining"):
            return False
        if head == "multiple-choice":
            return config.key_bias
        return head != "masked-lm" or not config.decodes_positions

    def outputs(self, config: DebertaConfig, head: str) -> dict[str, Axes]:
        """Name the outputs of a head and their axes."""
        tokens = ("batch", "tokens")
        if head == "replaced-token-detection":
            return {"logits": tokens}
        if head == "pretraining":
            return {**super().outputs(config, "masked-lm"), "replaced_logits": tokens}
        return super().outputs(config, head)

    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        """Build the tokenizer: byte-level BPE in version 1, SentencePiece since."""
        from zoo import tokenization as of

        if of.piece_model(files) is None and of.stored_kind(files) != "Unigram":
            return of.byte_level_bpe_tokenizer(
                files, roles=SPECIAL_TOKENS, template=of.BRACKETED, mask_takes_space=True
            )
        return of.sentencepiece_tokenizer(
            files,
            roles=SPECIAL_TOKENS,
            template=of.BRACKETED,
            lowercase=False,
            last=("[MASK]",),
        )


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (Deberta(),)
