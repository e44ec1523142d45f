"""DistilBERT (Sanh et al. 2019, arXiv:1910.01108)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from zoo.config import Config, ConfigMap
from zoo.encoder import EncoderFamily, encoder_heads
from zoo.family import Family, Head, NewTokenizer
from zoo.hookspecs import hookimpl
from zoo_distilbert.config import CONFIG_MAP, DistilBertConfig

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from zoo.tokenization import SourceFiles

_HEADS = encoder_heads("DistilBert")


class DistilBert(EncoderFamily):
    """The family; torch is imported when a model is built."""

    name: ClassVar[str] = "distilbert"
    model_types: ClassVar[tuple[str, ...]] = ("distilbert",)
    config_type: ClassVar[type[Config]] = DistilBertConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    default_checkpoint: ClassVar[str] = "distilbert-base-uncased"
    new_tokenizers: ClassVar[Mapping[str, NewTokenizer]] = {
        "wordpiece": NewTokenizer(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"), lowercase=True)
    }

    def heads(self) -> Mapping[str, Head]:
        """Return the heads."""
        return _HEADS

    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        """Build the WordPiece tokenizer."""
        from zoo.tokenization import wordpiece_tokenizer

        return wordpiece_tokenizer(files)


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (DistilBert(),)
