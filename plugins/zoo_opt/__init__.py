"""OPT (Zhang et al. 2022, arXiv:2205.01068) and XGLM (Lin et al. 2021, arXiv:2112.10668)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from zoo.families.adapters import AdapterTargets, separate_targets
from zoo.families.base import Family, Head
from zoo.families.causal import END_OF_TEXT, CausalFamily, causal_lm_head
from zoo.families.config import Config, ConfigMap
from zoo.families.heads import standard_head
from zoo.overrides import override
from zoo.plugins.hookspecs import hookimpl
from zoo.tokenizers.train import TokenizerTrainSpec
from zoo_opt.config import CONFIG_MAPS, OptConfig

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from zoo.tokenizers import SourceFiles


class Opt(CausalFamily):
    """The family; it imports torch when a model is built."""

    name: ClassVar[str] = "opt"
    package: ClassVar[str] = "zoo_opt"
    model_types: ClassVar[tuple[str, ...]] = ("opt", "xglm")
    tokenizer_classes: ClassVar[tuple[str, ...]] = ("XGLMTokenizer",)
    config_type: ClassVar[type[Config]] = OptConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAPS["opt"]
    config_maps: ClassVar[Mapping[str, ConfigMap]] = CONFIG_MAPS
    default_checkpoint: ClassVar[str] = "opt-125m"
    adapter_targets: ClassVar[AdapterTargets] = separate_targets(
        "q_proj", "k_proj", "v_proj", "fc2"
    )
    # The Hub's XGLM has no classifiers.
    named_heads: ClassVar[Mapping[str, Head]] = {
        "none": standard_head("none", "OPT", "XGLM"),
        "causal-lm": causal_lm_head("OPTForCausalLM", "XGLMForCausalLM"),
        "sequence-classification": standard_head("sequence-classification", "OPT"),
        "question-answering": standard_head("question-answering", "OPT"),
    }
    # Published files name ``</s>`` and ``<pad>``; the class of the tokenizer is GPT-2's.
    special_tokens: ClassVar[Mapping[str, str]] = {**CausalFamily.special_tokens, "pad": "<pad>"}
    new_tokenizers: ClassVar[Mapping[str, TokenizerTrainSpec]] = {
        "byte-level-bpe": TokenizerTrainSpec(("<pad>",), (END_OF_TEXT,))
    }

    @override
    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        from zoo.tokenizers import is_sentencepiece
        from zoo_opt.tokenizer import xglm_tokenizer

        return xglm_tokenizer(files) if is_sentencepiece(files) else super().tokenizer(files)


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (Opt(),)
