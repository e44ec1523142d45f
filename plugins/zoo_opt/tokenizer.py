"""The SentencePiece tokenizer of XGLM."""

from typing import TYPE_CHECKING

from zoo.tokenizers import SourceFiles, Template, sentencepiece_tokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SPECIAL_TOKENS = {
    "bos": "<s>",
    "eos": "</s>",
    "unk": "<unk>",
    "sep": "</s>",
    "pad": "<pad>",
    "cls": "<s>",
}
FIRST = ("<s>", "<pad>", "</s>", "<unk>")  # instead of the first three pieces of SentencePiece's
LAST = tuple(f"<madeupword{number}>" for number in range(7))
TEMPLATE = Template("eos $A", "eos $A eos eos $B")


def xglm_tokenizer(files: SourceFiles) -> "Tokenizer":
    """Build the tokenizer."""
    return sentencepiece_tokenizer(
        files, roles=SPECIAL_TOKENS, template=TEMPLATE, first=FIRST, skip=3, last=LAST
    )
