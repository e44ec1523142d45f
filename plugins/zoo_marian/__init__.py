"""Marian's translation models, such as OPUS-MT's (arXiv:1804.00344)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from zoo.families.base import Family, Head
from zoo.families.config import Config, ConfigMap
from zoo.families.seq2seq import Seq2SeqFamily, seq2seq_heads, seq2seq_lm_head
from zoo.overrides import override
from zoo.plugins.hookspecs import hookimpl
from zoo.tokenizers.train import TokenizerTrainSpec
from zoo_marian.config import CONFIG_MAP, MarianConfig

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from zoo.tokenizers import SourceFiles


class Marian(Seq2SeqFamily):
    """The family; it imports torch when a model is built."""

    name: ClassVar[str] = "marian"
    package: ClassVar[str] = "zoo_marian"
    model_types: ClassVar[tuple[str, ...]] = ("marian",)
    tokenizer_classes: ClassVar[tuple[str, ...]] = ("MarianTokenizer",)
    config_type: ClassVar[type[Config]] = MarianConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    default_checkpoint: ClassVar[str] = "opus-mt-en-de"
    named_heads: ClassVar[Mapping[str, Head]] = {
        **seq2seq_heads("Marian"),
        "seq2seq-lm": seq2seq_lm_head("MarianMTModel"),
    }
    # ``mask`` is of the objective with which a new model is pretrained.
    special_tokens: ClassVar[Mapping[str, str]] = {**Seq2SeqFamily.special_tokens, "mask": "<mask>"}
    new_tokenizers: ClassVar[Mapping[str, TokenizerTrainSpec]] = {
        "unigram": TokenizerTrainSpec(("</s>", "<unk>", "<pad>"), ("<mask>",))
    }

    @override
    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        from zoo_marian.tokenizer import tokenizer

        return tokenizer(files)

    @override
    def target_tokenizer(self, files: "SourceFiles") -> "Tokenizer | None":
        from zoo_marian.tokenizer import target_tokenizer

        return target_tokenizer(files) or super().target_tokenizer(files)


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (Marian(),)
