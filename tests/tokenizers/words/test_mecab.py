"""Tokenizers whose words MeCab finds, next to transformers' with the same files."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tokenizers.making import family_tokenizer
from zoo.checkpoint import load_checkpoint
from zoo.checkpoint.tokenizer import load_text_tokenizer
from zoo.conversion.convert import convert
from zoo.data.encoding import DocumentTokenizer
from zoo.errors import UsageError, VerificationError
from zoo.hub.source import CheckpointDir
from zoo.tokenizers import TextTokenizer
from zoo.tokenizers.words.mecab import MecabWords, _tagger
from zoo_bert import Bert

pytest.importorskip("fugashi")
pytest.importorskip("unidic_lite")

TEXTS = [
    "吾輩は猫である。名前はまだ無い。",
    "東京都の人口は約1,400万人です。",
    "ｶﾞｷﾞｸﾞとＡＢＣ１２３、㌔㍍と㈱と①。",
    "Transformersは自然言語処理のライブラリです。",
    "がぎぐげご",  # Characters and combining marks.
    "今日は　いい天気\tです \n ね",
    "絵文字😀と𠮷野家",
    "한국어와 русский mixed with 日本語",
    "これは[MASK]です。",
    "[CLS]と[SEP]と[MASK][MASK]",
    "",
    "   ",
    "長" * 120,
    "a" * 101 + " b",
    "ｱｲｳ" + chr(0x200B) + "é ①",
]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "wordpiece": {"mecab_kwargs": {"mecab_dic": "unidic_lite"}},
    "character": {"subword_tokenizer_type": "character"},
    "lower case": {"do_lower_case": True},
    "not normalized": {"mecab_kwargs": {"normalize_text": False}},
}


def write_files(folder: Path, **changes: Any) -> Path:
    """Write the files of a tokenizer with words and pieces of the texts."""
    words = [word.text for text in TEXTS for word in MecabWords().split(text)]
    characters = sorted({character for text in TEXTS for character in text if character.strip()})
    pieces = [f"##{character}" for character in characters[::2]]
    tokens = [*SPECIAL, *characters[::3], *pieces, *(w for w in words if len(w) > 1)]
    vocabulary = list(dict.fromkeys(token for token in tokens if token.isprintable()))
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in vocabulary), "utf-8")
    config = {
        "tokenizer_class": "BertJapaneseTokenizer",
        "word_tokenizer_type": "mecab",
        "do_lower_case": False,
        **changes,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module", params=CONFIGURATIONS)
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[TextTokenizer, Any]]:
    """Return zoo's and transformers' tokenizer of one directory."""
    from transformers import BertJapaneseTokenizer

    folder = write_files(tmp_path_factory.mktemp("words"), **CONFIGURATIONS[request.param])
    yield our_tokenizer(folder), BertJapaneseTokenizer.from_pretrained(folder)


def our_tokenizer(folder: Path) -> TextTokenizer:
    return family_tokenizer(Bert(), folder)


def test_ids_of_texts_equal_the_reference(both: tuple[TextTokenizer, Any]) -> None:
    ours, reference = both
    for text, encoded in zip(TEXTS, ours.encode(TEXTS, max_tokens=None), strict=True):
        assert encoded.ids == reference(text)["input_ids"], text
        assert encoded.ids == ours.encode([text], max_tokens=None, offsets=False)[0].ids


def test_ids_and_types_of_pairs_equal_the_reference(both: tuple[TextTokenizer, Any]) -> None:
    ours, reference = both
    pairs = list(zip(TEXTS, TEXTS[::-1], strict=True))
    for pair, encoded in zip(pairs, ours.encode(pairs, max_tokens=None), strict=True):
        expected = reference(*pair, return_token_type_ids=True)
        assert encoded.ids == expected["input_ids"], pair
        assert encoded.type_ids == expected["token_type_ids"], pair


def test_offsets_are_places_in_the_text(tmp_path: Path) -> None:
    tokenizer = our_tokenizer(write_files(tmp_path))
    text = "ＡＢＣは東京都"
    (encoded,) = tokenizer.encode([text], max_tokens=None)
    parts = [text[start:end] for start, end in encoded.offsets[1:-1]]
    assert "".join(dict.fromkeys(parts)) == text
    (encoded,) = tokenizer.encode(["前 [MASK] 後"], max_tokens=None)
    place = encoded.ids.index(tokenizer.mask_id or 0)
    assert encoded.offsets[place] == (2, 8)
    # A half-width letter and its mark are one character after normalization.
    assert [word.span(0, 1) for word in MecabWords().split("ｶﾞ")] == [(0, 2)]


def test_documents_have_the_tokens_of_their_text(tmp_path: Path) -> None:
    tokenizer = our_tokenizer(write_files(tmp_path))
    json_file = tokenizer._tokenizer.to_str().encode()
    documents = DocumentTokenizer(json_file, tokenizer.info, "line", "int64")
    lines = ["吾輩は猫である。", "名前はまだ無い。"]
    encoded = documents.encode(["\n".join(lines)])
    (whole,) = tokenizer.encode([" ".join(lines)], max_tokens=None)
    assert encoded.tokens.tolist() == whole.ids[1:-1]
    counts = [tokenizer.encode([line], max_tokens=None)[0].n - 2 for line in lines]
    assert encoded.sentences.tolist() == counts


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"word_tokenizer_type": "sudachi"}, "word_tokenizer_type = 'sudachi'"),
        ({"subword_tokenizer_type": "sentencepiece"}, "subword_tokenizer_type"),
        ({"do_word_tokenize": False}, "do_word_tokenize = False"),
        ({"mecab_kwargs": {"mecab_dic": None}}, "mecab_kwargs.mecab_dic = None"),
        ({"mecab_kwargs": {"mecab_option": "-Owakati"}}, "mecab_kwargs.mecab_option"),
    ],
)
def test_other_splitters_are_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(VerificationError, match=message):
        our_tokenizer(write_files(tmp_path, **changes))


def test_a_missing_dictionary_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    _tagger.cache_clear()
    monkeypatch.setitem(sys.modules, "unidic_lite", None)
    with pytest.raises(UsageError, match="MeCab, and unidic_lite is not installed") as error:
        MecabWords().split("猫")
    assert error.value.hint == "pip install fugashi unidic-lite"
    monkeypatch.undo()
    _tagger.cache_clear()


def test_a_model_is_converted_both_ways(tmp_path: Path) -> None:
    import torch
    from transformers import AutoTokenizer, BertConfig, BertModel

    hub = write_files(tmp_path / "hub", model_max_length=40)
    tokens = (hub / "vocab.txt").read_text("utf-8").count("\n")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = BertModel(BertConfig(vocab_size=tokens, intermediate_size=24, **sizes))
    torch.manual_seed(0)
    model.save_pretrained(hub)
    convert(CheckpointDir(hub, "hub"), tmp_path / "ours")
    convert(CheckpointDir(tmp_path / "ours", "ours"), tmp_path / "back", to="hub")
    ours = load_text_tokenizer(load_checkpoint(tmp_path / "ours"))
    back = AutoTokenizer.from_pretrained(tmp_path / "back")
    expected = AutoTokenizer.from_pretrained(hub)
    assert type(back).__name__ == "BertJapaneseTokenizer"
    for text in TEXTS:
        ids = expected(text)["input_ids"]
        assert back(text)["input_ids"] == ids
        assert ours.encode([text], max_tokens=None)[0].ids == ids
