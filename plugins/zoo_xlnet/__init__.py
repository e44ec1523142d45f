"""XLNet (Yang et al. 2019, arXiv:1906.08237)."""

import string
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.families.adapters import AdapterTargets, separate_targets
from zoo.families.base import Family, Head
from zoo.families.config import Config, ConfigMap
from zoo.families.encoder import EncoderFamily, encoder_heads
from zoo.plugins.hookspecs import hookimpl
from zoo.tokenizers.train import TokenizerTrainSpec
from zoo_xlnet.config import CONFIG_MAP, XLNetConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tokenizers import Tokenizer
    from torch import Tensor

    from zoo.families.onnx import OnnxSpec
    from zoo.families.span_beams import SpanBeams
    from zoo.tokenizers import SourceFiles

_HEADS = encoder_heads("XLNet")
BEAMS = "beam-question-answering"
# special_pieces of _is_start_piece in data_utils.py
_PUNCTUATION = frozenset(string.punctuation) - frozenset("'<=>")
# special_symbols of data_utils.py, in the order of their ids
_SYMBOLS = ("<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>")


class XLNet(EncoderFamily):
    """The family; it imports torch when a model is built."""

    name: ClassVar[str] = "xlnet"
    package: ClassVar[str] = "zoo_xlnet"
    model_types: ClassVar[tuple[str, ...]] = ("xlnet",)
    config_type: ClassVar[type[Config]] = XLNetConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    default_checkpoint: ClassVar[str] = "xlnet-base-cased"
    padding_side: ClassVar[str] = "left"
    adapter_targets: ClassVar[AdapterTargets] = separate_targets("query", "key", "value", "layer_2")
    named_heads: ClassVar[Mapping[str, Head]] = {
        **_HEADS,
        "masked-lm": replace(
            _HEADS["masked-lm"],
            architectures=("XLNetLMHeadModel",),
            tasks=("fill-mask", "generate", "features"),
            summary="masked tokens, and the next one",
        ),
        "question-answering": replace(
            _HEADS["question-answering"], architectures=("XLNetForQuestionAnsweringSimple",)
        ),
        BEAMS: Head(
            ("XLNetForQuestionAnswering",),
            {
                "start_top_log_probs": "batch start_n_top",
                "start_top_index": "batch start_n_top",
                "end_top_log_probs": "batch beams",
                "end_top_index": "batch beams",
                "cls_logits": "batch",
            },
            ("answer", "features"),
            "start and end of answers by beam search",
        ),
    }
    objectives: ClassVar[Mapping[str, str]] = {
        "permutation-lm": "zoo_xlnet.objective:PermutationLanguageModelling"
    }
    special_tokens: ClassVar[Mapping[str, str]] = {
        "unk": "<unk>",
        "bos": "<s>",
        "eos": "</s>",
        "cls": "<cls>",
        "sep": "<sep>",
        "pad": "<pad>",
        "mask": "<mask>",
    }
    new_tokenizers: ClassVar[Mapping[str, TokenizerTrainSpec]] = {
        "unigram": TokenizerTrainSpec(_SYMBOLS, strip_accents=True, plain_quotes=True)
    }

    def onnx(self, config: Any, head: str) -> "OnnxSpec":
        """Return the inputs, outputs and axes of the ONNX graph; see ``Family``."""
        spec = super().onnx(config, head)
        if head != BEAMS:
            return spec
        inputs = {**spec.inputs, "p_mask": spec.inputs["input_ids"]}
        minimums = {"tokens": max(config.start_n_top, config.end_n_top)}
        return replace(spec, inputs=inputs, minimums=minimums)

    def reference_inputs(
        self, head: str, inputs: "Mapping[str, Tensor]", reference_config: Any
    ) -> "Mapping[str, Tensor]":
        """Return the inputs; padding is in no answer, which the Hub's class has to be told."""
        if head != BEAMS or "attention_mask" not in inputs:
            return inputs
        padding = 1 - inputs["attention_mask"]
        return {**inputs, "p_mask": padding | inputs.get("p_mask", padding)}

    def span_beams(self, config: Any, outputs: "Mapping[str, NDArray[Any]]") -> "SpanBeams":
        """Return the answers of the beam search; see ``Family``.

        The score of a span is its beam's: the product of the probabilities of its first and last
        token. Ends are ordered by rank, then by their start: ``rank * start_n_top + start``.
        """
        import numpy as np

        from zoo.families.span_beams import SpanBeams

        starts = outputs["start_top_index"]
        ends = outputs["end_top_index"]
        repeats = (1, config.end_n_top)
        return SpanBeams(
            np.tile(starts, repeats).astype(int),
            ends.astype(int),
            np.tile(outputs["start_top_log_probs"], repeats) * outputs["end_top_log_probs"],
            outputs["cls_logits"],
        )

    def starts_word(self, text: str) -> bool:
        """Return whether a token starts a word: see ``Family``.

        Like ``_is_start_piece`` of data_utils.py: special tokens and punctuation also start one.
        """
        return text.startswith((" ", "<")) or text in _PUNCTUATION

    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        """Build the SentencePiece tokenizer, with special tokens at the end of a text."""
        from zoo.tokenizers import Template, sentencepiece_tokenizer

        return sentencepiece_tokenizer(
            files,
            roles=self.special_tokens,
            template=Template("$A sep cls:2", "$A sep $B:1 sep:1 cls:2"),
            mask_takes_space=True,
            lowercase=False,
            strip_accents=True,
            plain_quotes=True,
            split_digit_comma=True,
        )


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (XLNet(),)
