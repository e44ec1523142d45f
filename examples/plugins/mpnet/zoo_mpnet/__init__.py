"""MPNet (Song et al. 2020, arXiv:2004.09297), a plugin for zoo."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from zoo.families.base import Family, Head
from zoo.families.config import Config, ConfigMap
from zoo.families.encoder import EncoderFamily, encoder_heads
from zoo.plugins.hookspecs import hookimpl
from zoo.tokenizers.train import TokenizerTrainSpec
from zoo_mpnet.config import CONFIG_MAP, PAD, MPNetConfig

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from zoo.tokenizers import SourceFiles

_ENCODER_HEADS = encoder_heads("MPNet", pooler=True)


class MPNet(EncoderFamily):
    """The family; it imports torch when a model is built."""

    name: ClassVar[str] = "mpnet"
    package: ClassVar[str] = "zoo_mpnet"
    model_types: ClassVar[tuple[str, ...]] = ("mpnet",)
    config_type: ClassVar[type[Config]] = MPNetConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    default_checkpoint: ClassVar[str] = "all-mpnet-base-v2"
    special_tokens: ClassVar[Mapping[str, str]] = {
        "cls": "<s>",
        "sep": "</s>",
        "pad": "<pad>",
        "mask": "<mask>",
        "unk": "[UNK]",
    }
    new_tokenizers: ClassVar[Mapping[str, TokenizerTrainSpec]] = {
        "wordpiece": TokenizerTrainSpec(
            ("<s>", "<pad>", "</s>", "[UNK]"), ("<mask>",), lowercase=True
        )
    }
    named_heads: ClassVar[Mapping[str, Head]] = {
        name: _ENCODER_HEADS[name] for name in ("none", "masked-lm")
    }

    def max_seq_len(self, config: MPNetConfig) -> int:
        """Return the largest number of tokens in a row."""
        return config.max_positions - PAD - 1

    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        """Build the WordPiece tokenizer from the files of a checkpoint."""
        from zoo.tokenizers import CLS_SEP_SEP, wordpiece_tokenizer

        return wordpiece_tokenizer(files, roles=self.special_tokens, template=CLS_SEP_SEP)


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (MPNet(),)


@hookimpl
def zoo_checkpoints() -> tuple[Path, ...]:
    """Return the registry file of published checkpoints."""
    return (Path(__file__).with_name("registry.yaml"),)
