"""BERT (Devlin et al. 2018, arXiv:1810.04805)."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.config import Config, ConfigMap
from zoo.encoder import Axes, EncoderFamily, encoder_heads
from zoo.family import Family, Head, NewTokenizer
from zoo.hookspecs import hookimpl
from zoo_bert.config import CONFIG_MAP, BertConfig

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from zoo.foreign import Foreign
    from zoo.tokenization import SourceFiles

_HEADS = encoder_heads("Bert", pooler=True) | {
    "pretraining": Head(
        ("BertForPreTraining",),
        ("logits", "seq_relationship_logits"),
        ("fill-mask", "features"),
        "masked tokens, and whether the second text follows the first",
    ),
}


class Bert(EncoderFamily):
    """The family; torch is imported when a model is built."""

    name: ClassVar[str] = "bert"
    model_types: ClassVar[tuple[str, ...]] = ("bert",)
    config_type: ClassVar[type[Config]] = BertConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    default_checkpoint: ClassVar[str] = "bert-base-uncased"
    new_tokenizers: ClassVar[Mapping[str, NewTokenizer]] = {
        "wordpiece": NewTokenizer(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"), lowercase=True)
    }
    config_files: ClassVar[tuple[str, ...]] = ("config.json", "bert_config.json")

    def heads(self) -> Mapping[str, Head]:
        """Return the heads."""
        return _HEADS

    def claims(self, hub: Mapping[str, Any]) -> bool:
        """Google's ``bert_config.json`` names no model_type."""
        return bool(hub.get("model_type", self.name) == self.name)

    def foreign(self, dialect: str, names: Collection[str], head: str) -> "dict[str, Foreign]":
        """Google's release is read; its names are those of ``modeling.py``."""
        from zoo.foreign import tensorflow_name

        if dialect != "tensorflow":
            return super().foreign(dialect, names, head)
        return {name: tensorflow_name(name) for name in names}

    def outputs(self, config: BertConfig, head: str) -> dict[str, Axes]:
        """Name the outputs of a head and their axes."""
        if head != "pretraining":
            return super().outputs(config, head)
        tokens = super().outputs(config, "masked-lm")
        return {**tokens, "seq_relationship_logits": ("batch", 2)}

    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        """Build the WordPiece tokenizer."""
        from zoo.tokenization import wordpiece_tokenizer

        return wordpiece_tokenizer(files)


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (Bert(),)
