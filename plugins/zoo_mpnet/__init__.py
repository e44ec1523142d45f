"""MPNet (Song et al. 2020, arXiv:2004.09297)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from zoo.families.adapters import AdapterTargets, separate_targets
from zoo.families.base import Family, Head
from zoo.families.config import Config, ConfigMap
from zoo.families.encoder import EncoderFamily, encoder_heads
from zoo.overrides import override
from zoo.plugins.hookspecs import hookimpl
from zoo.tokenizers.train import TokenizerTrainSpec
from zoo_mpnet.config import CONFIG_MAP, MPNetConfig

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from zoo.tokenizers import SourceFiles


class MPNet(EncoderFamily):
    """The family; it imports torch when a model is built."""

    name: ClassVar[str] = "mpnet"
    package: ClassVar[str] = "zoo_mpnet"
    model_types: ClassVar[tuple[str, ...]] = ("mpnet",)
    tokenizer_classes: ClassVar[tuple[str, ...]] = ("MPNetTokenizer",)
    config_type: ClassVar[type[Config]] = MPNetConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    default_checkpoint: ClassVar[str] = "all-mpnet-base-v2"
    adapter_targets: ClassVar[AdapterTargets] = separate_targets("q", "k", "v", "output.dense")
    objectives: ClassVar[Mapping[str, str]] = {
        "masked-and-permuted-lm": "zoo_mpnet.objective:MaskedAndPermuted"
    }
    # The vocabulary also has [CLS], [SEP] and [MASK], which are words like any other.
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
    named_heads: ClassVar[Mapping[str, Head]] = encoder_heads("MPNet", pooler=True)

    @override
    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        from zoo.tokenizers import CLS_SEP_SEP, wordpiece_tokenizer

        return wordpiece_tokenizer(files, roles=self.special_tokens, template=CLS_SEP_SEP)


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (MPNet(),)
