"""LED, the encoder-decoder of Longformer (Beltagy et al. 2020, arXiv:2004.05150)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.families.base import Family, Head
from zoo.families.config import Config, ConfigMap
from zoo.families.seq2seq import Seq2SeqFamily, seq2seq_heads, source_heads
from zoo.overrides import override
from zoo.plugins.hookspecs import hookimpl
from zoo.tokenizers.fairseq import FAIRSEQ_FIRST, FAIRSEQ_ROLES
from zoo.tokenizers.train import TokenizerTrainSpec
from zoo_led.config import CONFIG_MAP, LEDConfig

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import Tensor

    from zoo.families.onnx import OnnxSpec
    from zoo.tokenizers import SourceFiles


class LED(Seq2SeqFamily):
    """The family; it imports torch when a model is built."""

    name: ClassVar[str] = "led"
    package: ClassVar[str] = "zoo_led"
    model_types: ClassVar[tuple[str, ...]] = ("led",)
    tokenizer_classes: ClassVar[tuple[str, ...]] = ("LEDTokenizer",)
    config_type: ClassVar[type[Config]] = LEDConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    default_checkpoint: ClassVar[str] = "led-base-16384"
    special_tokens: ClassVar[Mapping[str, str]] = FAIRSEQ_ROLES
    new_tokenizers: ClassVar[Mapping[str, TokenizerTrainSpec]] = {
        "byte-level-bpe": TokenizerTrainSpec(FAIRSEQ_FIRST, ("<mask>",))
    }
    named_heads: ClassVar[Mapping[str, Head]] = {
        **seq2seq_heads("LED"),
        "question-answering": source_heads("LED")["question-answering"],
    }

    @override
    def onnx(self, config: Any, head: str) -> "OnnxSpec":
        spec = super().onnx(config, head)
        if head != "question-answering":
            return spec
        longest = min(config.max_positions, config.max_decoder_positions)  # It is read twice.
        return replace(spec, limits={"tokens": longest})

    @override
    def reference_inputs(
        self, head: str, inputs: "Mapping[str, Tensor]", reference_config: Any
    ) -> "Mapping[str, Tensor]":
        from zoo_led.model import global_attention_mask

        return {
            **inputs,
            "global_attention_mask": global_attention_mask(head, inputs, reference_config),
        }

    @override
    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        from zoo.tokenizers import fairseq_bpe_tokenizer

        return fairseq_bpe_tokenizer(files, roles=FAIRSEQ_ROLES)


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (LED(),)
