"""Tokenizers from model files, and their comparison with the reference library."""

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tests.tokenizers.directories import CONFIG, Content
from tests.tokenizers.trained import END, bracketed, lowercase, padded, plain
from zoo.families.base import Family
from zoo.tokenizers import (
    CLS_SEP,
    CLS_SEP_SEP,
    EOS_ONLY,
    SourceFiles,
    TextTokenizer,
    byte_level_bpe_tokenizer,
    sentencepiece_tokenizer,
    tokenizer_info,
    word_bpe_tokenizer,
    wordpiece_tokenizer,
)
from zoo.tokenizers.tokenizer import Text


def family_tokenizer(family: Family, directory: Path) -> TextTokenizer:
    """Return the tokenizer of files that a family reads."""
    files = SourceFiles(directory)
    backend = family.tokenizer(files)
    splitter = family.splitter(files)
    info = tokenizer_info(files, backend, family.special_tokens, splitter=splitter)
    return TextTokenizer(backend, info)


MODEL = {"model_type": "bert", "vocab_size": 30522}


def ours(directory: Path) -> TextTokenizer:
    files = SourceFiles(directory)
    tokenizer = wordpiece_tokenizer(files)
    return TextTokenizer(tokenizer, tokenizer_info(files, tokenizer))


def reference(tokenizer: Any, texts: Sequence[Text], **options: Any) -> list[dict[str, Any]]:
    extra = ("offsets_mapping", "special_tokens_mask", "token_type_ids")
    options |= {f"return_{name}": True for name in extra}
    columns = tokenizer(list(texts), **options)
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def assert_equal(
    tokenizers: tuple[TextTokenizer, Any], texts: Sequence[Text], max_tokens: int | None = None
) -> None:
    tokenizer, other = tokenizers
    options = {} if max_tokens is None else {"max_length": max_tokens, "truncation": True}
    encodings = tokenizer.encode(texts, max_tokens=max_tokens)
    for text, mine, wanted in zip(
        texts, encodings, reference(other, texts, **options), strict=True
    ):
        assert mine.ids == wanted["input_ids"], repr(text)
        assert mine.type_ids == wanted["token_type_ids"], repr(text)
        assert mine.special == list(map(bool, wanted["special_tokens_mask"])), repr(text)
        assert mine.offsets == list(map(tuple, wanted["offset_mapping"])), repr(text)


anything = st.text(st.characters(exclude_categories=["Cs"]))
pieces = st.sampled_from(
    ["[MASK]", "é", "e\u0301", " ", "\u200d", "中", "😀", "\x00", "a" * 99, "##"]
)
texts = st.lists(anything | pieces, max_size=6).map("".join)
ENDED = {role: END for role in ("bos", "eos", "unk")}
ANGLES = {
    "bos": "<s>",
    "eos": "</s>",
    "unk": "<unk>",
    "sep": "</s>",
    "pad": "<pad>",
    "cls": "<s>",
    "mask": "<mask>",
}


def doubled(files: SourceFiles) -> Any:
    return byte_level_bpe_tokenizer(files, roles=ANGLES, template=CLS_SEP_SEP, trim_offsets=True)


def bare(files: SourceFiles) -> Any:
    return byte_level_bpe_tokenizer(files, roles=ENDED)


def by_words(files: SourceFiles) -> Any:
    return word_bpe_tokenizer(files, roles={"unk": "<unk>"})


def files_of(vocabulary: tuple[str, str], **config: Any) -> dict[str, Content]:
    names = dict(zip(("vocab.json", "merges.txt"), vocabulary, strict=True))
    return {**names, **({CONFIG: config} if config else {})}


SQUARES = {"sep": "[SEP]", "unk": "[UNK]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}


@dataclass(frozen=True)
class Case:
    """Builder of tokenizers from model files, and the class of transformers.

    ``agreed`` is the number of difficult texts that transformers splits as sentencepiece does, and
    ``spell`` the normalization of the original code before sentencepiece.
    """

    model_type: str
    file: str
    content: Callable[[], bytes]
    options: Mapping[str, Any]
    agreed: int
    spell: Callable[[str], str] = str


def spelled(text: str) -> str:
    text = " ".join(text.split()).replace("``", '"').replace("''", '"')
    text = unicodedata.normalize("NFKD", text)
    return "".join(c for c in text if not unicodedata.combining(c)).lower()


FAIRSEQ = ("<s>", "<pad>", "</s>", "<unk>")
FRENCH = ("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED")
CASES = {
    "moved by one": Case(
        "xlm-roberta",
        "sentencepiece.bpe.model",
        plain,
        {
            "roles": ANGLES,
            "template": CLS_SEP_SEP,
            "first": FAIRSEQ,
            "skip": 3,
            "last": ("<mask>",),
        },
        96,
    ),
    "moved by four": Case(
        "camembert",
        "sentencepiece.bpe.model",
        plain,
        {
            "roles": ANGLES,
            "template": CLS_SEP_SEP,
            "first": FRENCH,
            "skip": 1,
            "last": ("<mask>",),
            "mask_takes_space": True,
        },
        96,
    ),
    "sentinels": Case(
        "t5",
        "spiece.model",
        padded,
        {
            "roles": {"eos": "</s>", "unk": "<unk>", "pad": "<pad>"},
            "template": EOS_ONLY,
            "sentinels": 100,
        },
        96,
    ),
    "spelled": Case(
        "albert",
        "spiece.model",
        lowercase,
        {
            "roles": {**SQUARES, "unk": "<unk>", "pad": "<pad>", "bos": "[CLS]", "eos": "[SEP]"},
            "template": CLS_SEP,
            "lowercase": True,
            "strip_accents": True,
            "plain_quotes": True,
            "split_digit_comma": True,
        },
        92,
        spelled,
    ),
    "bracketed": Case(
        "deberta-v2",
        "spm.model",
        bracketed,
        {
            "roles": {**SQUARES, "bos": "[CLS]", "eos": "[SEP]"},
            "template": CLS_SEP,
            "lowercase": False,
            "last": ("[MASK]",),
        },
        78,
    ),
}


def build(case: Case, directory: Path) -> Any:
    return sentencepiece_tokenizer(SourceFiles(directory), **case.options)
