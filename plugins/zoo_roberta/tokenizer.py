"""Tokenizers: byte-level BPE of RoBERTa, SentencePiece of XLM-R and CamemBERT, fastBPE."""

from typing import TYPE_CHECKING, Any

from zoo.tokenizers import (
    CLS_SEP_SEP,
    SourceFiles,
    fairseq_bpe_tokenizer,
    fastbpe_tokenizer,
    is_fastbpe,
    is_sentencepiece,
    sentencepiece_tokenizer,
    tokenizer_class,
)
from zoo_roberta.config import SPECIAL_TOKENS

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# the first tokens of the vocabularies, and how many pieces of SentencePiece's they replace
_XLM: dict[str, Any] = {"first": ("<s>", "<pad>", "</s>", "<unk>"), "skip": 3}
_CAMEMBERT: dict[str, Any] = {
    "first": ("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"),
    "skip": 1,
}


def tokenizer(files: SourceFiles) -> "Tokenizer":
    """Build the tokenizer of the kind that the files of a checkpoint have."""
    if is_fastbpe(files):
        return fastbpe_tokenizer(files, roles=SPECIAL_TOKENS, template=CLS_SEP_SEP)
    if not is_sentencepiece(files):
        return fairseq_bpe_tokenizer(files, roles=SPECIAL_TOKENS)
    return sentencepiece_tokenizer(
        files,
        roles=SPECIAL_TOKENS,
        template=CLS_SEP_SEP,
        last=("<mask>",),
        mask_takes_space=True,
        **(_CAMEMBERT if _is_camembert(files) else _XLM),
    )


def _is_camembert(files: SourceFiles) -> bool:
    name = tokenizer_class(files) or files.json_if_any("config.json").get("model_type")
    return str(name).lower().startswith("camembert")
