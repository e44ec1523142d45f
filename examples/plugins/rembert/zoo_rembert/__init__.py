"""RemBERT (Chung et al. 2020, arXiv:2010.12821), a plugin for zoo."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from zoo.families.base import Family, Head
from zoo.families.config import Config, ConfigMap
from zoo.families.encoder import EncoderFamily, encoder_heads
from zoo.plugins.hookspecs import hookimpl
from zoo.tokenizers.train import TokenizerTrainSpec
from zoo_rembert.config import CONFIG_MAP, RemBertConfig

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from zoo.tokenizers import SourceFiles

_ENCODER_HEADS = encoder_heads("RemBert", pooler=True)


class RemBert(EncoderFamily):
    """The family; it imports torch when a model is built."""

    name: ClassVar[str] = "rembert"
    package: ClassVar[str] = "zoo_rembert"
    model_types: ClassVar[tuple[str, ...]] = ("rembert",)
    config_type: ClassVar[type[Config]] = RemBertConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    default_checkpoint: ClassVar[str] = "google-rembert"
    special_tokens: ClassVar[Mapping[str, str]] = {
        "cls": "[CLS]",
        "sep": "[SEP]",
        "pad": "<pad>",
        "mask": "[MASK]",
        "unk": "<unk>",
    }
    new_tokenizers: ClassVar[Mapping[str, TokenizerTrainSpec]] = {
        "unigram": TokenizerTrainSpec(
            ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"), plain_quotes=True
        )
    }
    named_heads: ClassVar[Mapping[str, Head]] = {
        name: _ENCODER_HEADS[name] for name in ("none", "masked-lm")
    }

    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        """Build the SentencePiece tokenizer from the files of a checkpoint."""
        from zoo.tokenizers import CLS_SEP, sentencepiece_tokenizer

        return sentencepiece_tokenizer(
            files, roles=self.special_tokens, template=CLS_SEP, plain_quotes=True
        )


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (RemBert(),)


@hookimpl
def zoo_checkpoints() -> tuple[Path, ...]:
    """Return the registry file of published checkpoints."""
    return (Path(__file__).with_name("registry.yaml"),)
