"""GPT and GPT-2 (Radford et al. 2018 and 2019)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from zoo.families.adapters import AdapterTargets, joint_targets
from zoo.families.base import Family, Head
from zoo.families.causal import CausalFamily, causal_lm_head
from zoo.families.config import Config, ConfigMap
from zoo.families.heads import standard_head
from zoo.overrides import override
from zoo.plugins.hookspecs import hookimpl
from zoo_gpt.config import CONFIG_MAPS, GptConfig

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from zoo.tokenizers import SourceFiles

# architectures: GPT-2's, then GPT's
_HEADS = {
    "none": standard_head("none", "GPT2", "OpenAIGPT"),
    "causal-lm": causal_lm_head("GPT2LMHeadModel", "OpenAIGPTLMHeadModel"),
    "multiple-choice": Head(
        ("GPT2DoubleHeadsModel", "OpenAIGPTDoubleHeadsModel"),
        {"logits": "batch choices tokens vocab_size", "mc_logits": "batch choices"},
        ("choose",),
        "one of several texts, and the next token in each",
        dict.fromkeys(("input_ids", "attention_mask"), "batch choices tokens"),
    ),
    "sequence-classification": standard_head("sequence-classification", "GPT2", "OpenAIGPT"),
    "token-classification": standard_head("token-classification", "GPT2"),
    "question-answering": standard_head("question-answering", "GPT2"),
}


class Gpt(CausalFamily):
    """The family; it imports torch when a model is built."""

    name: ClassVar[str] = "gpt"
    package: ClassVar[str] = "zoo_gpt"
    model_types: ClassVar[tuple[str, ...]] = ("gpt2", "openai-gpt")
    tokenizer_classes: ClassVar[tuple[str, ...]] = ("GPT2Tokenizer", "OpenAIGPTTokenizer")
    config_type: ClassVar[type[Config]] = GptConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAPS["gpt2"]
    config_maps: ClassVar[Mapping[str, ConfigMap]] = CONFIG_MAPS
    default_checkpoint: ClassVar[str] = "gpt2"
    adapter_targets: ClassVar[AdapterTargets] = joint_targets(
        "c_attn", "mlp.c_proj", prefix_model_types=("gpt2",)
    )
    named_heads: ClassVar[Mapping[str, Head]] = _HEADS

    @override
    def model_type(self, config: GptConfig) -> str:
        return "gpt2" if config.norm == "pre" else "openai-gpt"

    @override
    def title(self, config: GptConfig) -> str:
        return self.name if config.norm == "pre" else "the first GPT"

    @override
    def has_reference(self, config: GptConfig, head: str) -> bool:
        # For multiple choice, the library needs the index of each choice's last token, and its
        # first GPT cannot mask padding
        return head != "multiple-choice" and super().has_reference(config, head)

    @override
    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        from zoo.tokenizers import tokenizer_class, word_bpe_tokenizer

        name = tokenizer_class(files)
        if name is None:
            of_words = files.json_if_any("config.json").get("model_type") == "openai-gpt"
        else:
            of_words = name == "OpenAIGPTTokenizer"
        if of_words:
            return word_bpe_tokenizer(files, roles={"unk": "<unk>"})
        return super().tokenizer(files)


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (Gpt(),)
