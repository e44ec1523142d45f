"""Tokenizers: byte-level BPE of RoBERTa, SentencePiece of XLM-R and CamemBERT, fastBPE."""

from typing import TYPE_CHECKING, Any

from zoo.tokenizers import (
    CLS_SEP_SEP,
    SourceFiles,
    fairseq_bpe_tokenizer,
    fastbpe_tokenizer,
    is_fastbpe,
    is_sentencepiece,
    tokenizer_class,
)
from zoo.tokenizers.fairseq import FAIRSEQ_ROLES, fairseq_sentencepiece_tokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# the first tokens of CamemBERT's vocabulary, and how many pieces of SentencePiece's they replace
_CAMEMBERT: dict[str, Any] = {
    "first": ("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"),
    "skip": 1,
}


def tokenizer(files: SourceFiles) -> "Tokenizer":
    """Build the tokenizer of the kind that the files of a checkpoint have."""
    if is_fastbpe(files):
        return fastbpe_tokenizer(files, roles=FAIRSEQ_ROLES, template=CLS_SEP_SEP)
    if not is_sentencepiece(files):
        return fairseq_bpe_tokenizer(files, roles=FAIRSEQ_ROLES)
    options = _CAMEMBERT if _is_camembert(files) else {}
    return fairseq_sentencepiece_tokenizer(files, **options)


def _is_camembert(files: SourceFiles) -> bool:
    name = tokenizer_class(files) or files.json_if_any("config.json").get("model_type")
    return str(name).lower().startswith("camembert")
