"""Tweets as BERTweet's tokenizer reads them, next to transformers' with the same files."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tokenizers.making import family_tokenizer
from tests.tokenizers.odd_texts import odd_texts
from tests.tokenizers.test_moses_bpe import learn_merges
from zoo.checkpoint import load_checkpoint
from zoo.checkpoint.tokenizer import load_text_tokenizer
from zoo.conversion.convert import convert
from zoo.errors import UsageError
from zoo.hub.source import CheckpointDir
from zoo.tokenizers.bpe.merges import END
from zoo.tokenizers.fastbpe import CONTINUED
from zoo.tokenizers.words import tweets
from zoo.tokenizers.words.traced import TracedText
from zoo.tokenizers.words.tweets import normalize_tweet
from zoo_roberta import Roberta

pytest.importorskip("emoji")

TWEETS = (
    "SC has two presumptive cases of #coronavirus https://example.com/a(b(c)d) via @user 😢",
    "cooool #dummysmiley: :-) :-P <3 >:( D: ;o) 8-D and arrows < > -> <-- -->",
    "waaaayyyy!!!!!! 😀😀😀😀😀 ……… &rsquo;s &hellip; &#8217; &#x27;",
    "&amp;lt; &#0; &#x80; &xfoo; &x41; &;",
    "&#x81; &#99999999999; &bogus; &#-5; &#1_0; &nbsp;x&nbsp;",
    "call +1 (555) 123-4567 or 555.123.4567 or 1 555 1234567 now",
    "cannot can't won't ain't I'm we're it's they'll I'd I've 5 p . m . 3 p.m. at 4 a . m now",
    "foo@bar.com www.x.com x.co/abc foo.na@example.com example.com, http:x WWW.a HTTPS://B",
    "👨\u200d👩\u200d👧 ❤\ufe0f \ufe0f ™ © ½ ☺ 🇻🇳 <b>bold</b> <a href='x'>",
    "@@a @ #a #1 ##x-y_z' #' word-with_parts' 1,000.5 -5.5 +3/4 10:30 .\n. . \t.",
    "<mask> <s>hi</s> <unk>@you<mask>",
)
MARKS = (
    *("@", "#", "&", "&amp;", "&#", ";", "=", "8", "D", "<3", "://", "http", ".com", "/", "555"),
    *(
        "😀",
        "❤",
        "\ufe0f",
        "p . m ",
        "n't ",
        "'s ",
        "cannot ",
        "&#x27;",
        "&lt;",
        "\u017f",
        "\u212a",
    ),
)
TEXTS = odd_texts(*TWEETS, count=600, marks=MARKS)


def write_files(folder: Path) -> None:
    """Write merges and pieces of tweets, and settings of their tokenizer."""
    words = [word for text in TWEETS for word in normalize_tweet(TracedText(text)).text.split()]
    merges, symbols = learn_merges(words, 80)
    pieces = []
    for symbol in [*symbols, *(c for word in words for c in (word[0], word[-1] + END))]:
        pieces.append(symbol.removesuffix(END) if symbol.endswith(END) else symbol + CONTINUED)
    unique = [piece for piece in dict.fromkeys(pieces) if piece and not piece.startswith("<")]
    lines = "".join(f"{piece} {number}\n" for number, piece in enumerate(unique) if number % 4)
    (folder / "bpe.codes").write_text(merges, "utf-8")
    (folder / "vocab.txt").write_text(lines, "utf-8")
    settings = {"tokenizer_class": "BertweetTokenizer", "normalization": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tweets")
    write_files(folder)
    return folder


@pytest.fixture(scope="module")
def reference(folder: Path) -> Any:
    from transformers import BertweetTokenizer

    return BertweetTokenizer.from_pretrained(folder)


def test_ids_equal_the_reference(folder: Path, reference: Any) -> None:
    tokenizer = family_tokenizer(Roberta(), folder)
    for text, encoded in zip(TEXTS, tokenizer.encode(TEXTS, max_tokens=None), strict=True):
        assert encoded.ids == reference(text)["input_ids"], repr(text)
    for pair in zip(TWEETS, TWEETS[::-1], strict=True):
        (encoded,) = tokenizer.encode([pair], max_tokens=None)
        assert encoded.ids == reference(*pair)["input_ids"], pair


def test_words_equal_the_reference(reference: Any) -> None:
    for text in TEXTS:
        normalized = normalize_tweet(TracedText(text))
        assert len(normalized.origins) == len(normalized.text)
        assert normalized.text.split() == reference.normalizeTweet(text).split(), repr(text)


def test_surrogates_of_entities_are_replaced() -> None:
    assert normalize_tweet(TracedText("&#xD800;x")).text == "\ufffd x"


def test_offsets_are_places_in_the_text(folder: Path) -> None:
    tokenizer = family_tokenizer(Roberta(), folder)
    text = "Hi @someone &amp; <mask> can't…"
    (encoded,) = tokenizer.encode([text], max_tokens=None)
    parts = [text[start:end] for start, end in encoded.offsets[1:-1]]
    assert "".join(dict.fromkeys(parts)) == "Hi@someone&<mask>can't…"


@pytest.mark.parametrize("library", ["emoji", "regex"])
def test_a_missing_library_is_named(
    library: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = family_tokenizer(Roberta(), folder)
    for cached in (tweets._patterns, tweets._name_of_emoji):
        cached.cache_clear()
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(UsageError, match=f"rules of tweets, and {library} is not") as error:
        tokenizer.encode(["a 😀"], max_tokens=None)
    assert error.value.hint == "pip install emoji regex"


def test_a_model_is_converted_both_ways(folder: Path, reference: Any, tmp_path: Path) -> None:
    import shutil

    import torch
    from transformers import AutoTokenizer, RobertaConfig, RobertaForMaskedLM

    hub = shutil.copytree(folder, tmp_path / "hub")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = RobertaConfig(vocab_size=len(reference), intermediate_size=24, **sizes)
    torch.manual_seed(0)
    RobertaForMaskedLM(config).save_pretrained(hub)
    convert(CheckpointDir(hub, "hub"), tmp_path / "ours")
    convert(CheckpointDir(tmp_path / "ours", "ours"), tmp_path / "back", to="hub")
    for name in ("bpe.codes", "vocab.txt"):
        assert (tmp_path / "back" / name).read_bytes() == (hub / name).read_bytes()
    ours = load_text_tokenizer(load_checkpoint(tmp_path / "ours"))
    back = AutoTokenizer.from_pretrained(tmp_path / "back")
    assert type(back).__name__ == "BertweetTokenizer"
    assert back.normalization is True
    for text in TWEETS:
        ids = reference(text)["input_ids"]
        assert back(text)["input_ids"] == ids
        assert ours.encode([text], max_tokens=None)[0].ids == ids
