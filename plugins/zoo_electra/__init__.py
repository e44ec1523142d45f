"""ELECTRA (Clark et al. 2020, arXiv:2003.10555)."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, ClassVar

from zoo.config import Config, ConfigMap
from zoo.encoder import Axes, EncoderFamily, encoder_heads
from zoo.family import Family, Head, NewTokenizer
from zoo.hookspecs import hookimpl
from zoo_electra.config import CONFIG_MAP, ElectraConfig

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from zoo.foreign import Foreign
    from zoo.tokenization import SourceFiles

_HEADS = encoder_heads("Electra") | {
    "replaced-token-detection": Head(
        ("ElectraForPreTraining",), ("logits",), ("features",), "which tokens were replaced"
    ),
}


class Electra(EncoderFamily):
    """The family; torch is imported when a model is built."""

    name: ClassVar[str] = "electra"
    model_types: ClassVar[tuple[str, ...]] = ("electra",)
    config_type: ClassVar[type[Config]] = ElectraConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    default_checkpoint: ClassVar[str] = "electra-small-discriminator"
    new_tokenizers: ClassVar[Mapping[str, NewTokenizer]] = {
        "wordpiece": NewTokenizer(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"), lowercase=True)
    }

    def heads(self) -> Mapping[str, Head]:
        """Return the heads."""
        return _HEADS

    def foreign(self, dialect: str, names: Collection[str], head: str) -> "dict[str, Foreign]":
        """Google's release is read, whose files hold a generator and a discriminator."""
        from zoo_electra.weights import released

        if dialect != "tensorflow":
            return super().foreign(dialect, names, head)
        return released(names, head)

    def outputs(self, config: ElectraConfig, head: str) -> dict[str, Axes]:
        """Name the outputs of a head and their axes."""
        if head == "replaced-token-detection":
            return {"logits": ("batch", "tokens")}
        return super().outputs(config, head)

    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        """Build the WordPiece tokenizer."""
        from zoo.tokenization import wordpiece_tokenizer

        return wordpiece_tokenizer(files)


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (Electra(),)
