"""Families of encoder-decoders: their usual heads, tokenizer and inputs."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from zoo.families.base import Family, Head
from zoo.overrides import override
from zoo.tokenizers.train import TokenizerTrainSpec

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from zoo.tokenizers import SourceFiles

SENTINELS = 100  # tokens that stand for masked spans
INPUTS: Mapping[str, str] = {
    "input_ids": "batch tokens",
    "attention_mask": "batch tokens",
    "decoder_input_ids": "batch decoder_tokens",
}


def seq2seq_heads(*names: str) -> dict[str, Head]:
    """Return the heads of an encoder-decoder that take a target: the backbone and the LM.

    Args:
        *names: prefixes of the Hub's class names, one for each model type.
    """
    hidden_states = {
        "last_hidden_state": "batch decoder_tokens hidden_size",
        "encoder_last_hidden_state": "batch tokens hidden_size",
    }
    architectures = tuple(f"{name}Model" for name in names)
    return {
        "none": Head(
            architectures, hidden_states, (), "hidden states of source and target", INPUTS
        ),
        "seq2seq-lm": seq2seq_lm_head(*(f"{name}ForConditionalGeneration" for name in names)),
    }


def seq2seq_lm_head(*architectures: str) -> Head:
    """Return a head that predicts a target text.

    Args:
        *architectures: see ``Head``.
    """
    outputs = {"logits": "batch decoder_tokens vocab_size"}
    return Head(architectures, outputs, ("seq2seq", "score"), "generation of a target text", INPUTS)


class Seq2SeqFamily(Family):
    """A family of encoder-decoders with a SentencePiece tokenizer, whose texts end in ``</s>``.

    Attributes:
        named_heads: the heads by name.
    """

    named_heads: ClassVar[Mapping[str, Head]]
    special_tokens: ClassVar[Mapping[str, str]] = {"eos": "</s>", "unk": "<unk>", "pad": "<pad>"}
    new_tokenizers: ClassVar[Mapping[str, TokenizerTrainSpec]] = {
        "unigram": TokenizerTrainSpec(("<pad>", "</s>", "<unk>"), sentinels=SENTINELS)
    }

    @override
    def heads(self) -> Mapping[str, Head]:
        """Return the heads by name; those with a target have ``decoder_input_ids``."""
        return self.named_heads

    @override
    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        """Build the SentencePiece tokenizer, with the sentinels of masked spans."""
        from zoo.tokenizers import EOS_ONLY, sentencepiece_tokenizer

        return sentencepiece_tokenizer(
            files, roles=self.special_tokens, template=EOS_ONLY, sentinels=SENTINELS
        )
