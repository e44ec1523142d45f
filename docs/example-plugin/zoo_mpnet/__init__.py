"""MPNet (Song et al. 2020, arXiv:2004.09297), a plugin for zoo."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from zoo.config import Config, ConfigMap
from zoo.encoder import EncoderFamily, encoder_heads
from zoo.errors import VerificationError
from zoo.family import Family, Head
from zoo.hookspecs import hookimpl
from zoo_mpnet.config import CONFIG_MAP, PAD, SIZES, MPNetConfig

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import nn

    from zoo.tokenization import SourceFiles
    from zoo.weights import WeightMap

_TOKENS = {"cls": "<s>", "sep": "</s>", "pad": "<pad>", "mask": "<mask>"}
_HEADS = {
    name: head
    for name, head in encoder_heads("MPNet", pooler=True).items()
    if name in ("none", "masked-lm")
}


class MPNet(EncoderFamily):
    """The family; torch is imported when a model is built."""

    name: ClassVar[str] = "mpnet"
    model_types: ClassVar[tuple[str, ...]] = ("mpnet",)
    config_type: ClassVar[type[Config]] = MPNetConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    default_checkpoint: ClassVar[str] = "all-mpnet-base-v2"

    def sizes(self) -> Mapping[str, MPNetConfig]:
        """Return the released shape, and a tiny one."""
        return SIZES

    def heads(self) -> Mapping[str, Head]:
        """Return the heads."""
        return _HEADS

    def model(self, config: MPNetConfig, head: str) -> "nn.Module":
        """Build a model with fresh weights."""
        from zoo_mpnet import model

        return model.MPNet(config, head)

    def weights(self, config: MPNetConfig, head: str) -> "WeightMap":
        """Return the rules for its tensors."""
        from zoo_mpnet.weights import weights

        return weights(config, head)

    def longest(self, config: MPNetConfig) -> int:
        """Return how many tokens a text may have."""
        return config.max_positions - PAD - 1

    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        """Build the WordPiece tokenizer.

        Raises:
            VerificationError: the files do not name MPNet's special tokens. The usual ones of
                WordPiece are in its vocabulary, too, and the model knows nothing of them.
        """
        from zoo.tokenization import DOUBLED, describe, wordpiece_tokenizer

        tokenizer = wordpiece_tokenizer(files)
        found = describe(files, tokenizer).special
        wrong = [role for role, token in _TOKENS.items() if found.get(role) != token]
        if wrong:
            raise VerificationError(
                f"{files.directory}: {found.get(wrong[0])} is the {wrong[0]} token",
                f"name {', '.join(_TOKENS.values())} in tokenizer_config.json",
            )
        if not files.has("tokenizer.json"):  # which would say how a text is framed
            tokenizer.post_processor = DOUBLED.build(tokenizer, found, str(files.directory))
        return tokenizer


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (MPNet(),)


@hookimpl
def zoo_checkpoints() -> tuple[Path, ...]:
    """Return the file that names published checkpoints."""
    return (Path(__file__).with_name("registry.yaml"),)
