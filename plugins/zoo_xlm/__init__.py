"""XLM (Lample and Conneau 2019, arXiv:1901.07291) and FlauBERT (arXiv:1912.05372)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from zoo.families.adapters import AdapterTargets, separate_targets
from zoo.families.base import Family, Head
from zoo.families.config import Config, ConfigMap
from zoo.families.encoder import EncoderFamily, encoder_heads, mlm_head
from zoo.families.heads import standard_head
from zoo.overrides import override
from zoo.plugins.hookspecs import hookimpl
from zoo.tokenizers.train import TokenizerTrainSpec
from zoo_xlm.config import CONFIG_MAPS, XLM_MAP, XLMConfig

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from zoo.tokenizers import SourceFiles
    from zoo.tokenizers.splitters import AnySplitter

PREFIXES = ("XLM", "Flaubert")
FIRST_TOKENS = ("<s>", "</s>", "<pad>", "<unk>", *(f"<special{number}>" for number in range(10)))


def _heads() -> dict[str, Head]:
    """Return the heads, in the order of the model types."""
    heads = encoder_heads(*PREFIXES)
    questions = standard_head("question-answering", *PREFIXES)
    simple = tuple(f"{name}Simple" for name in questions.architectures)
    return {
        "none": heads["none"],
        "masked-lm": mlm_head(*(f"{prefix}WithLMHeadModel" for prefix in PREFIXES)),
        "sequence-classification": heads["sequence-classification"],
        "token-classification": heads["token-classification"],
        "question-answering": replace(questions, architectures=simple),
    }


class XLM(EncoderFamily):
    """The family; it imports torch when a model is built."""

    name: ClassVar[str] = "xlm"
    package: ClassVar[str] = "zoo_xlm"
    model_types: ClassVar[tuple[str, ...]] = ("xlm", "flaubert")
    tokenizer_classes: ClassVar[tuple[str, ...]] = ("XLMTokenizer", "FlaubertTokenizer")
    config_type: ClassVar[type[Config]] = XLMConfig
    config_map: ClassVar[ConfigMap] = XLM_MAP
    config_maps: ClassVar[Mapping[str, ConfigMap]] = CONFIG_MAPS
    default_checkpoint: ClassVar[str] = "xlm-mlm-en-2048"
    adapter_targets: ClassVar[AdapterTargets] = separate_targets("q_lin", "k_lin", "v_lin", "lin2")
    special_tokens: ClassVar[Mapping[str, str]] = {
        "bos": "<s>",
        "eos": "</s>",
        "cls": "</s>",
        "sep": "</s>",
        "pad": "<pad>",
        "unk": "<unk>",
        "mask": "<special1>",
    }
    new_tokenizers: ClassVar[Mapping[str, TokenizerTrainSpec]] = {
        "wordpiece": TokenizerTrainSpec(FIRST_TOKENS, lowercase=True)
    }
    reference_modules: ClassVar[Mapping[str, str]] = {
        "embeddings": "layer_norm_emb",
        "layers.{i}": "layer_norm2.{i}",
    }
    named_heads: ClassVar[Mapping[str, Head]] = _heads()

    @override
    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        from zoo_xlm.tokenizer import tokenizer

        return tokenizer(files, self.special_tokens)

    @override
    def splitter(self, files: "SourceFiles") -> "AnySplitter | None":
        from zoo_xlm.tokenizer import splitter

        return splitter(files) or super().splitter(files)


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (XLM(),)
