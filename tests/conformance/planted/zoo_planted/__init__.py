"""XLM (Lample and Conneau 2019, arXiv:1901.07291) for one language, and FlauBERT.

A plugin of the tests, in which they plant mistakes. FlauBERT (Le et al. 2019, arXiv:1912.05372) is
the same model, with norms in another place if ``pre_norm`` is set; transformers fails then.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from msgspec.structs import asdict

from zoo.families.base import Family, Head
from zoo.families.config import Config, ConfigMap
from zoo.families.encoder import EncoderFamily, encoder_heads, mlm_head
from zoo.plugins.hookspecs import hookimpl
from zoo.tokenizers.train import TokenizerTrainSpec
from zoo_planted.config import CONFIG_MAP, FLAUBERT_MAP, FlaubertConfig, XLMConfig

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from zoo.tokenizers import SourceFiles

SPECIAL = ("<s>", "</s>", "<pad>", "<unk>", "<special0>", "<special1>")


def _heads(prefix: str) -> dict[str, Head]:
    """Return the heads of a family by the prefix of its classes in transformers."""
    heads = encoder_heads(prefix)
    names = ("none", "sequence-classification", "token-classification")
    return {"masked-lm": mlm_head(f"{prefix}WithLMHeadModel"), **{n: heads[n] for n in names}}


class XLM(EncoderFamily):
    """The family; it imports torch when a model is built."""

    name: ClassVar[str] = "planted"
    package: ClassVar[str] = "zoo_planted"
    model_types: ClassVar[tuple[str, ...]] = ("xlm",)
    config_type: ClassVar[type[Config]] = XLMConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    default_checkpoint: ClassVar[str] = "xlm-mlm-en-2048"
    special_tokens: ClassVar[Mapping[str, str]] = {
        "cls": "</s>",
        "sep": "</s>",
        "pad": "<pad>",
        "mask": "<special1>",
        "unk": "<unk>",
    }
    new_tokenizers: ClassVar[Mapping[str, TokenizerTrainSpec]] = {
        "wordpiece": TokenizerTrainSpec(SPECIAL, lowercase=True)
    }
    objectives: ClassVar[Mapping[str, str]] = {"first-tokens": "zoo_planted.objective:FirstTokens"}
    reference_modules: ClassVar[Mapping[str, str]] = {
        "embeddings": "layer_norm_emb",
        "layers.{i}": "layer_norm2.{i}",
    }
    named_heads: ClassVar[Mapping[str, Head]] = _heads("XLM")

    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        """Build the tokenizer from the files of a checkpoint."""
        from zoo.tokenizers import CLS_SEP, wordpiece_tokenizer

        return wordpiece_tokenizer(files, roles=self.special_tokens, template=CLS_SEP)


class Flaubert(XLM):
    """FlauBERT, with the modules of XLM."""

    name: ClassVar[str] = "planted-flaubert"
    model_types: ClassVar[tuple[str, ...]] = ("flaubert",)
    config_type: ClassVar[type[Config]] = FlaubertConfig
    config_map: ClassVar[ConfigMap] = FLAUBERT_MAP
    default_checkpoint: ClassVar[str] = "flaubert/flaubert_base_cased"
    named_heads: ClassVar[Mapping[str, Head]] = _heads("Flaubert")

    def sizes(self) -> Mapping[str, FlaubertConfig]:
        """Return the configurations by size."""
        return {name: FlaubertConfig(**asdict(c)) for name, c in super().sizes().items()}


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the families."""
    return (XLM(), Flaubert())
