"""All families with the tokenizers of all classes: the ids are transformers'."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoints import SMALL, Make, hub_checkpoint
from tests.inference.conftest import converted
from tests.tokenizers import trained
from tests.tokenizers.directories import CONFIG, TOKENIZER, Content, cased, uncased, write
from tests.tokenizers.texts import prose
from zoo.checkpoint import load_text_tokenizer
from zoo.plugins import family_of_tokenizer, get_family
from zoo.tokenizers import SourceFiles, TextTokenizer, tokenizer_info

__all__ = ["hub_checkpoint"]
FAMILIES = {
    "albert": "albert",
    "bart": "bart",
    "mbart": "bart",
    "bert": "bert",
    "deberta": "deberta",
    "deberta-v2": "deberta",
    "distilbert": "distilbert",
    "electra": "electra",
    "gpt2": "gpt",
    "openai-gpt": "gpt",
    "modernbert": "modernbert",
    "roberta": "roberta",
    "xlm-roberta": "roberta",
    "camembert": "roberta",
    "t5": "t5",
    "mt5": "t5",
}
# class -> model type that it is the tokenizer of
CLASSES = {
    "BertTokenizer": "bert",
    "RobertaTokenizer": "roberta",
    "DebertaTokenizer": "deberta",
    "GPT2Tokenizer": "gpt2",
    "OpenAIGPTTokenizer": "openai-gpt",
    "XLMRobertaTokenizer": "xlm-roberta",
    "CamembertTokenizer": "camembert",
    "MBartTokenizer": "mbart",
    "T5Tokenizer": "t5",
    "AlbertTokenizer": "albert",
    "DebertaV2Tokenizer": "deberta-v2",
}
# class -> model type of another family, whose model may have it
FOREIGN = {
    "BertTokenizer": "albert",
    "RobertaTokenizer": "bert",
    "DebertaTokenizer": "t5",
    "GPT2Tokenizer": "roberta",
    "OpenAIGPTTokenizer": "electra",
    "XLMRobertaTokenizer": "deberta",
    "CamembertTokenizer": "distilbert",
    "MBartTokenizer": "gpt2",
    "T5Tokenizer": "bart",
    "AlbertTokenizer": "modernbert",
    "DebertaV2Tokenizer": "mt5",
}
# Plain English, in which transformers' own conversions of model files equal sentencepiece; see
# ``sentencepiece_tokenizer`` for the texts in which they do not.
TEXTS = [line for line in prose(80) if line.isascii() and line][:40]
WORDS = [re.sub("[^A-Za-z ]+", " ", line) for line in TEXTS]
ODD = ["Crème brûlée, naïve; 中文 \u00bd", "``quoted'' text\u00a0x", "1,000 and 2,"]


def merges(specials: tuple[str, ...]) -> dict[str, Content]:
    vocabulary, pairs = trained.byte_level(specials)
    return {"vocab.json": vocabulary, "merges.txt": pairs}


def vocabulary_files(name: str) -> dict[str, Content]:
    """Return the files that a class reads where there is no ``tokenizer.json``."""
    match name:
        case "BertTokenizer":
            return {"vocab.txt": uncased()}
        case "RobertaTokenizer":
            return merges(trained.BYTE_SPECIALS)
        case "DebertaTokenizer":
            return merges(trained.BRACKETS)
        case "GPT2Tokenizer":
            return merges((trained.END,))
        case "OpenAIGPTTokenizer":
            vocabulary, pairs = trained.words()
            return {"vocab.json": vocabulary, "merges.txt": pairs}
        case "T5Tokenizer":
            return {"spiece.model": trained.padded()}
        case "AlbertTokenizer":
            return {"spiece.model": trained.lowercase()}
        case "DebertaV2Tokenizer":
            return {"spm.model": trained.bracketed()}
    return {"sentencepiece.bpe.model": trained.plain()}


@cache
def saved_files(name: str, folder: Path) -> dict[str, Any]:
    """Return the files that transformers saves for a class."""
    from transformers import AutoTokenizer

    config = {"model_type": CLASSES[name]}
    source = write(folder / name, {**vocabulary_files(name), "config.json": config})
    AutoTokenizer.from_pretrained(source).save_pretrained(folder / f"{name}-saved")
    return {
        file: json.loads((folder / f"{name}-saved" / file).read_text("utf-8"))
        for file in (TOKENIZER, CONFIG)
    }


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokenizers")


def layouts(name: str, scratch: Path) -> dict[str, tuple[Mapping[str, Content], dict[str, str]]]:
    """Return layout -> files of a tokenizer, and keys of ``config.json``."""
    saved = saved_files(name, scratch)
    stated: dict[str, Any] = saved[CONFIG]
    generic = {**stated, "tokenizer_class": "PreTrainedTokenizerFast"}
    return {
        "vocabulary": ({**vocabulary_files(name), CONFIG: {"tokenizer_class": name}}, {}),
        "class in config.json": (vocabulary_files(name), {"tokenizer_class": name}),
        "saved": (saved, {}),
        "saved, as Fast": ({**saved, CONFIG: {**stated, "tokenizer_class": f"{name}Fast"}}, {}),
        "saved, generic": ({**saved, CONFIG: generic}, {"tokenizer_class": "AlbertTokenizer"}),
    }


def read(directory: Path, family: str) -> TextTokenizer:
    files = SourceFiles(directory)
    reader = family_of_tokenizer(files, get_family(family))
    tokenizer = reader.tokenizer(files)
    return TextTokenizer(tokenizer, tokenizer_info(files, tokenizer, reader.special_tokens or None))


def models_and_classes() -> Iterator[Any]:
    """Yield each model type with each class; ``long`` but for its own type and another one."""
    for model_type in FAMILIES:
        for name in CLASSES:
            usual = model_type in (CLASSES[name], FOREIGN[name])
            yield pytest.param(model_type, name, marks=() if usual else pytest.mark.long)


@pytest.mark.by_default(
    "albert-BertTokenizer",
    "albert-AlbertTokenizer",
    "bart-T5Tokenizer",
    "mbart-MBartTokenizer",
    "bert-RobertaTokenizer",
    "deberta-DebertaTokenizer",
    "deberta-XLMRobertaTokenizer",
    "deberta-v2-DebertaV2Tokenizer",
    "distilbert-CamembertTokenizer",
    "electra-OpenAIGPTTokenizer",
    "roberta-GPT2Tokenizer",
)
@pytest.mark.parametrize(("model_type", "name"), list(models_and_classes()))
def test_ids_are_those_of_the_class(
    model_type: str, name: str, scratch: Path, tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    for layout, (files, keys) in layouts(name, scratch).items():
        if model_type == "modernbert" and "saved" not in layout:
            continue  # transformers opens ``tokenizer.json`` only
        config = {"model_type": model_type, **keys}
        directory = write(tmp_path / layout, {**files, "config.json": config})
        theirs: Any = AutoTokenizer.from_pretrained(directory)
        ours = read(directory, FAMILIES[model_type])
        texts = [*TEXTS, *ODD] if "saved" in layout else TEXTS
        if name == "AlbertTokenizer" and "saved" not in layout:
            texts = WORDS  # its model file has symbols of punctuation, which split the text first
        expected = [theirs(text)["input_ids"] for text in texts]
        assert [e.ids for e in ours.encode(texts, max_tokens=None)] == expected, layout
        if name == "DebertaTokenizer" and "saved" not in layout:
            continue  # transformers 5 puts two separators into its pairs, and release 4 had one
        pairs = list(zip(texts[:5], texts[5:10], strict=True))
        expected = [theirs(*pair)["input_ids"] for pair in pairs]
        assert [e.ids for e in ours.encode(pairs, max_tokens=None)] == expected, layout


def test_a_wordpiece_without_a_class_keeps_its_normalizer(scratch: Path, tmp_path: Path) -> None:
    """Options of SentencePiece, which the file states, are not for it."""
    saved = saved_files("BertTokenizer", scratch)
    options = {"do_lower_case": True, "keep_accents": False}
    directory = write(tmp_path, {**saved, CONFIG: options, "config.json": {"model_type": "albert"}})
    expected = read(write(tmp_path / "bert", saved), "bert")
    found = read(directory, "albert")
    for mine, theirs in zip(
        found.encode([*TEXTS, *ODD], max_tokens=None),
        expected.encode([*TEXTS, *ODD], max_tokens=None),
        strict=True,
    ):
        assert mine.ids == theirs.ids


def test_a_conversion_with_the_tokenizer_of_another_family(
    hub_checkpoint: Make, tmp_path: Path
) -> None:
    """Chinese ALBERTs have BERT's tokenizer, and ids of their own for each character."""
    from transformers import AutoTokenizer

    small = {**SMALL, "vocab_size": len(cased().splitlines()), "embedding_size": 16}
    source = hub_checkpoint("AlbertForMaskedLM", tokenizer=False, **small)
    (source / "vocab.txt").write_text(cased(), "utf-8")
    (source / CONFIG).write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
    theirs: Any = AutoTokenizer.from_pretrained(source)
    ours = load_text_tokenizer(converted(source, tmp_path / "model"))
    texts = ["中文 ﬁne", *TEXTS]
    for text, encoded in zip(texts, ours.encode(texts, max_tokens=None), strict=True):
        assert encoded.ids == theirs(text)["input_ids"]
    (first,) = ours.encode(texts[:1], max_tokens=None)
    assert first.tokens[0] == "[CLS]" and ours.role_id("unk") not in first.ids[:3]
