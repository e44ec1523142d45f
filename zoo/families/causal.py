"""Families of causal language models: their usual heads, tokenizer and inputs."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from zoo.families.base import Family, Head
from zoo.families.heads import standard_head
from zoo.overrides import override
from zoo.tokenizers.train import TokenizerTrainSpec

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from zoo.tokenizers import SourceFiles

END_OF_TEXT = "<|endoftext|>"


def causal_heads(*names: str) -> dict[str, Head]:
    """Return the heads of a causal language model.

    Args:
        *names: prefixes of the Hub's class names, one for each model type.
    """
    kinds = ("sequence-classification", "token-classification", "question-answering")
    return {
        "none": standard_head("none", *names),
        "causal-lm": causal_lm_head(*(name + "ForCausalLM" for name in names)),
        **{kind: standard_head(kind, *names) for kind in kinds},
    }


def causal_lm_head(*architectures: str) -> Head:
    """Return a head that predicts the next token.

    Args:
        *architectures: see ``Head``.
    """
    outputs = {"logits": "batch tokens vocab_size"}
    return Head(architectures, outputs, ("generate", "score", "features"), "the next token")


class CausalFamily(Family):
    """A family of causal language models with a byte-level BPE tokenizer.

    Attributes:
        named_heads: the heads by name.
    """

    named_heads: ClassVar[Mapping[str, Head]]
    special_tokens: ClassVar[Mapping[str, str]] = dict.fromkeys(("bos", "eos", "unk"), END_OF_TEXT)
    new_tokenizers: ClassVar[Mapping[str, TokenizerTrainSpec]] = {
        "byte-level-bpe": TokenizerTrainSpec(last=(END_OF_TEXT,))
    }

    @override
    def heads(self) -> Mapping[str, Head]:
        return self.named_heads

    @override
    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        from zoo.tokenizers import byte_level_bpe_tokenizer

        return byte_level_bpe_tokenizer(files, roles=self.special_tokens)
