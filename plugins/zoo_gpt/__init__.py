"""GPT and GPT-2 (Radford et al. 2018 and 2019)."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, ClassVar

from zoo.config import Config, ConfigMap
from zoo.errors import UsageError
from zoo.family import Family, Head, NewTokenizer
from zoo.hookspecs import hookimpl
from zoo_gpt.config import CONFIG_MAPS, GptConfig

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import nn

    from zoo.export.spec import OnnxSpec
    from zoo.foreign import Foreign
    from zoo.tokenization import SourceFiles

# architectures (GPT-2's, then GPT's), outputs, tasks, summary
_HEADS = {
    "none": Head(
        ("GPT2Model", "OpenAIGPTModel"),
        ("last_hidden_state",),
        ("embed", "features"),
        "a vector for each token",
    ),
    "causal-lm": Head(
        ("GPT2LMHeadModel", "OpenAIGPTLMHeadModel"),
        ("logits",),
        ("generate", "features"),
        "which token comes next",
    ),
    "multiple-choice": Head(
        ("GPT2DoubleHeadsModel", "OpenAIGPTDoubleHeadsModel"),
        ("logits", "mc_logits"),
        (),
        "which of several texts it is, and which token comes next in each",
    ),
    "sequence-classification": Head(
        ("GPT2ForSequenceClassification", "OpenAIGPTForSequenceClassification"),
        ("logits",),
        ("classify", "features"),
        "classes of a text or a pair, or a number",
    ),
    "token-classification": Head(
        ("GPT2ForTokenClassification",), ("logits",), ("classify", "features"), "classes of tokens"
    ),
    "question-answering": Head(
        ("GPT2ForQuestionAnswering",),
        ("start_logits", "end_logits"),
        ("features",),
        "where the answer starts and ends",
    ),
}


class Gpt(Family):
    """The family; torch is imported when a model is built."""

    name: ClassVar[str] = "gpt"
    model_types: ClassVar[tuple[str, ...]] = ("gpt2", "openai-gpt")
    config_type: ClassVar[type[Config]] = GptConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAPS["gpt2"]
    config_maps: ClassVar[Mapping[str, ConfigMap]] = CONFIG_MAPS
    default_checkpoint: ClassVar[str] = "gpt2"
    special_tokens: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("bos", "eos", "unk"), "<|endoftext|>"
    )
    new_tokenizers: ClassVar[Mapping[str, NewTokenizer]] = {
        "byte-level-bpe": NewTokenizer(last=("<|endoftext|>",))
    }

    def heads(self) -> Mapping[str, Head]:
        """Return the heads."""
        return _HEADS

    def model_type(self, config: GptConfig) -> str:
        """Tell the two by where they normalise."""
        return "gpt2" if config.norm == "pre" else "openai-gpt"

    def architecture(self, config: GptConfig, head: str) -> str:
        """See ``Family``."""
        names = _HEADS[head].architectures
        if config.norm == "pre":
            return names[0]
        if len(names) < 2:
            raise UsageError(f"the Hub has no class for the first GPT with the head {head}")
        return names[1]

    def foreign(self, dialect: str, names: Collection[str], head: str) -> "dict[str, Foreign]":
        """OpenAI's release of the first GPT is read: arrays in order, without names."""
        from zoo_gpt.weights import numbered

        if dialect != "npy":
            return super().foreign(dialect, names, head)
        return {name: numbered(name) for name in names}

    def has_reference(self, config: GptConfig, head: str) -> bool:
        """See ``Family``; the library must be told where a text of several ends, and its first
        GPT cannot mask padding there.
        """
        known = config.norm == "pre" or len(_HEADS[head].architectures) > 1
        return known and head != "multiple-choice"

    def model(self, config: GptConfig, head: str) -> "nn.Module":
        """Build a model with fresh weights."""
        from zoo_gpt.heads import build

        return build(config, head)

    def onnx(self, config: GptConfig, head: str) -> "OnnxSpec":
        """Name the graph's inputs, outputs and axes; there is no cache among them."""
        from zoo.export.spec import OnnxSpec

        tokens, labels = ("batch", "tokens"), len(config.labels)
        choices = ("batch", "choices")
        axes: dict[str, dict[str, tuple[str | int, ...]]] = {
            "none": {"last_hidden_state": (*tokens, config.hidden_size)},
            "causal-lm": {"logits": (*tokens, config.vocab_size)},
            "multiple-choice": {
                "logits": (*choices, "tokens", config.vocab_size),
                "mc_logits": choices,
            },
            "sequence-classification": {"logits": ("batch", labels)},
            "token-classification": {"logits": (*tokens, labels)},
            "question-answering": {"start_logits": tokens, "end_logits": tokens},
        }
        return OnnxSpec(
            inputs=dict.fromkeys(
                ("input_ids", "attention_mask"),
                (*choices, "tokens") if head == "multiple-choice" else tokens,
            ),
            outputs=axes[head],
            limits={"tokens": config.max_positions},
        )

    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        """Build GPT-2's tokenizer of bytes, or the first GPT's of words."""
        from zoo.tokenization import byte_level_bpe_tokenizer, word_bpe_tokenizer

        if files.json_if_any("config.json").get("model_type") == "openai-gpt":
            return word_bpe_tokenizer(files, roles={"unk": "<unk>"})
        return byte_level_bpe_tokenizer(files, roles=self.special_tokens)


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (Gpt(),)
