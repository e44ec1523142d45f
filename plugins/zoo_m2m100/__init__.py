"""M2M100 (Fan et al. 2020, arXiv:2010.11125) and NLLB (2022, arXiv:2207.04672)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from zoo.families.base import Family, Head
from zoo.families.config import Config, ConfigMap
from zoo.families.seq2seq import Seq2SeqFamily, seq2seq_heads
from zoo.overrides import override
from zoo.plugins.hookspecs import hookimpl
from zoo.tokenizers.fairseq import FAIRSEQ_FIRST, FAIRSEQ_ROLES
from zoo.tokenizers.train import TokenizerTrainSpec
from zoo_m2m100.config import CONFIG_MAP, M2M100Config

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from zoo.tokenizers import SourceFiles


class M2M100(Seq2SeqFamily):
    """The family; it imports torch when a model is built."""

    name: ClassVar[str] = "m2m100"
    package: ClassVar[str] = "zoo_m2m100"
    model_types: ClassVar[tuple[str, ...]] = ("m2m_100",)
    tokenizer_classes: ClassVar[tuple[str, ...]] = ("M2M100Tokenizer", "NllbTokenizer")
    config_type: ClassVar[type[Config]] = M2M100Config
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    default_checkpoint: ClassVar[str] = "m2m100-418m"
    begins_with_language: ClassVar[bool] = True
    special_tokens: ClassVar[Mapping[str, str]] = FAIRSEQ_ROLES
    new_tokenizers: ClassVar[Mapping[str, TokenizerTrainSpec]] = {
        "unigram": TokenizerTrainSpec(FAIRSEQ_FIRST, ("<mask>",))
    }
    named_heads: ClassVar[Mapping[str, Head]] = seq2seq_heads("M2M100")

    @override
    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        from zoo_m2m100.tokenizer import tokenizer

        return tokenizer(files)


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (M2M100(),)
