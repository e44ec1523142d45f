"""BERT (Devlin et al. 2018, arXiv:1810.04805)."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.config import Config, ConfigMap
from zoo.encoder import Axes, EncoderFamily, encoder_heads
from zoo.family import Family, Head, NewTokenizer
from zoo.hookspecs import hookimpl
from zoo_bert.config import CONFIG_MAP, SIZES, BertConfig

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import nn

    from zoo.foreign import Foreign
    from zoo.tokenization import SourceFiles
    from zoo.training.settings import Recipe
    from zoo.weights import WeightMap

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

    def sizes(self) -> Mapping[str, BertConfig]:
        """Return the released shapes, with the vocabulary of the uncased English models unless
        the name says another.
        """
        return SIZES

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

    def model(self, config: BertConfig, head: str) -> "nn.Module":
        """Build a model with fresh weights."""
        from zoo_bert.model import build

        return build(config, head)

    def weights(self, config: BertConfig, head: str) -> "WeightMap":
        """Return the rules for its tensors."""
        from zoo_bert.weights import weights

        return weights(config, head)

    def outputs(self, config: BertConfig, head: str) -> dict[str, Axes]:
        """Name the outputs of a head and their axes."""
        if head != "pretraining":
            return super().outputs(config, head)
        tokens = super().outputs(config, "masked-lm")
        return {**tokens, "seq_relationship_logits": ("batch", 2)}

    def recipe(self, size: str) -> "Recipe":
        """Return how a size is pretrained."""
        from zoo_bert.recipe import recipe

        return recipe(size)

    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        """Build the WordPiece tokenizer."""
        from zoo.tokenization import wordpiece_tokenizer

        return wordpiece_tokenizer(files)


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (Bert(),)
