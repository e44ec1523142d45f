"""T5, mT5, UMT5 and ByT5.

Raffel et al. 2019, arXiv:1910.10683; Xue et al. 2020, arXiv:2010.11934; Chung et al. 2023,
arXiv:2304.09151; Xue et al. 2021, arXiv:2105.13626.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.families.adapters import AdapterTargets, separate_targets
from zoo.families.base import Family, Head
from zoo.families.causal import causal_lm_head
from zoo.families.config import Config, ConfigMap, TranslatedConfig
from zoo.families.heads import standard_head
from zoo.families.seq2seq import Seq2SeqFamily, seq2seq_heads, seq2seq_lm_head
from zoo.overrides import override
from zoo.plugins.hookspecs import hookimpl
from zoo_t5.config import CONFIG_MAPS, T5Config

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from zoo.tokenizers import SourceFiles

_HEADS = {
    **seq2seq_heads("T5", "MT5", "UMT5"),
    "encoder": standard_head(
        "none", "T5Encoder", "MT5Encoder", "UMT5Encoder", summary="hidden states of the encoder"
    ),
    "seq2seq-lm": seq2seq_lm_head(
        "T5ForConditionalGeneration",
        "MT5ForConditionalGeneration",
        "UMT5ForConditionalGeneration",
        "T5WithLMHeadModel",
    ),
    "causal-lm": causal_lm_head(),  # No class of the Hub has one stack.
    "sequence-classification": standard_head("sequence-classification", "T5", "MT5", "UMT5"),
    "token-classification": standard_head(
        "token-classification",
        "T5",
        "MT5",
        "UMT5",
        summary="classification of tokens, by the encoder",
    ),
    "question-answering": standard_head("question-answering", "T5", "MT5", "UMT5"),
}
BYTES = "ByT5Tokenizer"  # The class of a tokenizer without a file.
BYTE_SENTINELS = 125
_TIE = "tie_word_embeddings"
_SCALE = "scale_decoder_outputs"


class T5(Seq2SeqFamily):
    """The family; it imports torch when a model is built."""

    name: ClassVar[str] = "t5"
    package: ClassVar[str] = "zoo_t5"
    model_types: ClassVar[tuple[str, ...]] = ("t5", "mt5", "umt5")
    tokenizer_classes: ClassVar[tuple[str, ...]] = (
        "T5Tokenizer",
        "MT5Tokenizer",
        BYTES,
    )
    config_type: ClassVar[type[Config]] = T5Config
    config_map: ClassVar[ConfigMap] = CONFIG_MAPS["t5"]
    config_maps: ClassVar[Mapping[str, ConfigMap]] = CONFIG_MAPS
    default_checkpoint: ClassVar[str] = "t5-small"
    adapter_targets: ClassVar[AdapterTargets] = separate_targets("q", "k", "v", "wo")
    named_heads: ClassVar[Mapping[str, Head]] = _HEADS
    objectives: ClassVar[Mapping[str, str]] = {"bert-style": "zoo_t5.objectives:BertStyle"}
    reference_exceptions: ClassVar[Mapping[str, str]] = {
        "reference_initialization token-classification": "the released code has no such head, and "
        "logits of the scale of transformers, 1, begin far from equal; it begins as the head for "
        "question answering does, with the inverse root of the hidden size"
    }

    @override
    def model_type(self, config: T5Config) -> str:
        return config.series

    @override
    def unsupported_on_hub(self, config: T5Config, head: str) -> str | None:
        if config.single_stack is not None:
            return "one stack reads source and target"
        return super().unsupported_on_hub(config, head)

    @override
    def from_hub(self, hub: Mapping[str, Any], location: str = "config.json") -> TranslatedConfig:
        # A model with unscaled hidden states has output embeddings of its own, unless the file has
        # none: the Hub's library declares every model that it writes as tied, and distinguishes by
        # the scale. A file that declares untied embeddings must have the tensor
        hub = dict(hub)
        untied = hub.get(_TIE) is False
        if hub.get("decoder_start_token_id") is None:
            hub.pop("decoder_start_token_id", None)
        if hub.get("model_type") == "mt5":
            hub[_TIE] = False
        else:
            scaled = hub.setdefault(_SCALE, hub.get(_TIE, True) is not False)
            hub[_TIE] = hub.get(_TIE, True) if scaled else False
        translated = super().from_hub(hub, location)
        declared = frozenset({"output_table"}) if untied else frozenset()
        return replace(translated, declared_optional=declared)

    @override
    def has_tokenizer(self, files: "SourceFiles") -> bool:
        from zoo.tokenizers import tokenizer_class

        return super().has_tokenizer(files) or tokenizer_class(files) == BYTES

    @override
    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        from zoo.tokenizers import EOS_ONLY, tokenizer_class
        from zoo.tokenizers.byte_tokens import byte_tokenizer

        if super().has_tokenizer(files) or tokenizer_class(files) != BYTES:
            return super().tokenizer(files)
        return byte_tokenizer(
            files,
            roles=self.special_tokens,
            first=("pad", "eos", "unk"),
            last=[f"<extra_id_{number}>" for number in range(BYTE_SENTINELS)],
            template=EOS_ONLY,
        )


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (T5(),)
