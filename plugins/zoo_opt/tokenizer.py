"""The SentencePiece tokenizer of XGLM."""

from typing import TYPE_CHECKING

from zoo.tokenizers import SourceFiles, Template, sentencepiece_tokenizer
from zoo.tokenizers.fairseq import FAIRSEQ_FIRST, FAIRSEQ_ROLES, FAIRSEQ_SKIP

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SPECIAL_TOKENS = {role: token for role, token in FAIRSEQ_ROLES.items() if role != "mask"}
LAST = tuple(f"<madeupword{number}>" for number in range(7))
TEMPLATE = Template("eos $A", "eos $A eos eos $B")


def xglm_tokenizer(files: SourceFiles) -> "Tokenizer":
    """Build the tokenizer."""
    return sentencepiece_tokenizer(
        files,
        roles=SPECIAL_TOKENS,
        template=TEMPLATE,
        first=FAIRSEQ_FIRST,
        skip=FAIRSEQ_SKIP,
        last=LAST,
    )
