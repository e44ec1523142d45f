"""Malicious tokenizers are refused before the library loads them."""

import base64
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tokenizers.trained import plain
from zoo.errors import VerificationError
from zoo.tokenizers.tokenizer_json import parse
from zoo.tokenizers.untrusted.definition import check_charsmap

Change = Callable[[dict[str, Any]], object]
NAME = Path("models/tokenizer.json")


def definition() -> dict[str, Any]:
    """Return the definition of a small tokenizer with all components."""
    ends = [
        {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
    ]
    second = [{"Sequence": {"id": "B", "type_id": 1}}]
    return {
        "version": "1.0",
        "truncation": {"max_length": 4, "strategy": "LongestFirst", "stride": 0},
        "padding": {
            "strategy": {"Fixed": 3_000_000_000},
            "direction": "Right",
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "a",
        },
        "added_tokens": [added(4, "[CLS]")],
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Lowercase"}]},
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": ends,
            "pair": ends + second,
            "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [4], "tokens": ["[CLS]"]}},
        },
        "decoder": {"type": "Sequence", "decoders": [{"type": "Fuse"}]},
        "model": {
            "type": "WordPiece",
            "unk_token": "?",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {"a": 0, "b": 1, "##a": 2, "?": 3},
        },
    }


def added(number: Any, content: Any) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": number, "content": content, "special": True, **flags}


def changed(change: Change) -> bytes:
    value = definition()
    change(value)
    return json.dumps(value).encode()


def replace(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def normalizers(*steps: dict[str, Any]) -> Change:
    return lambda value: value["normalizer"].update(normalizers=list(steps))


def vocabulary(**tokens: Any) -> Change:
    return lambda value: value["model"]["vocab"].update(tokens)


def template(**parts: Any) -> Change:
    return lambda value: value["post_processor"].update(parts)


LETTER = {"String": "a"}
TEXT = {"Sequence": {"id": "A", "type_id": 0}}
CLS = {"SpecialToken": {"id": "[CLS]", "type_id": 0}}
HOSTILE: dict[str, tuple[Change, str]] = {
    "replaces a letter by many": (normalizers(replace(LETTER, "b" * 1000)), "growth of a text"),
    "replaces nothing": (normalizers(replace({"String": ""}, "b")), "not a pattern to look for"),
    "replaces what may be empty": (normalizers(replace({"Regex": "a*"}, "b" * 99)), "growth"),
    "doubles often": (normalizers(*[replace(LETTER, "aa")] * 40), "growth of a text"),
    "puts a book in front": (normalizers({"type": "Prepend", "prepend": "a" * 900}), "growth"),
    "has too many steps": (normalizers(*[{"type": "NFC"}] * 65), "number of steps"),
    "nests steps": (
        lambda v: v.update(normalizer={"type": "Sequence", "normalizers": [v["normalizer"]] * 70}),
        "number of steps",
    ),
    "leaves the type out": (
        normalizers({"pattern": LETTER, "content": "b" * 1000}),
        "growth of a text",
    ),
    "backtracks in a normalizer": (
        normalizers(replace({"Regex": "(a+)+b"}, "")),
        "regular expression",
    ),
    "backtracks in a splitter": (
        lambda v: v.update(
            pre_tokenizer={
                "type": "Split",
                "pattern": {"Regex": "(a|a)*b"},
                "behavior": "Isolated",
                "invert": False,
            }
        ),
        "regular expression",
    ),
    "backtracks in a decoder": (
        lambda v: v["decoder"].update(decoders=[replace({"Regex": "(a*)*b"}, "")]),
        "regular expression",
    ),
    "grows in a decoder": (
        lambda v: v["decoder"].update(decoders=[replace(LETTER, "b" * 500)]),
        "growth of a text in decoder",
    ),
    "has a map with long replacements": (
        normalizers(
            {
                "type": "Precompiled",
                "precompiled_charsmap": base64.b64encode(b"\0\0\0\0" + b"a" * 999).decode(),
            }
        ),
        "growth of a text",
    ),
    "has a map that is none": (
        normalizers({"type": "Precompiled", "precompiled_charsmap": "////"}),
        "precompiled_charsmap is malformed",
    ),
    "has two tokens on one id": (vocabulary(c=0), "'c' = 0 is also the id of"),
    "has a negative id": (vocabulary(c=-1), "id of the token 'c' is -1"),
    "has an id that is true": (vocabulary(c=True), "id of the token 'c' is True"),
    "has sparse ids": (vocabulary(c=10**9), "id of the token 'c' is 1,000,000,000"),
    "has a long token": (vocabulary(**{"c" * 5000: 9}), "length of the token 'cccc"),
    "has a prefix that merges lack": (
        lambda v: v.update(
            model={
                "type": "BPE",
                "vocab": {"a": 0, "b": 1, "ab": 2},
                "merges": [["a", "b"]],
                "continuing_subword_prefix": "##",
            },
            **{"added_tokens": [], "post_processor": None},
        ),
        "does not continue with '##'",
    ),
    "drops tokens by chance": (lambda v: v["model"].update(dropout=0.5), "dropout"),
    "has words without end": (
        lambda v: v["model"].update(max_input_chars_per_word=10**12),
        "max_input_chars_per_word",
    ),
    "adds an empty token": (lambda v: v["added_tokens"].append(added(5, "")), "has no text"),
    "adds a token of which nothing is left": (
        lambda v: v.update(
            added_tokens=[added(4, "[CLS]"), {**added(5, "\0"), "normalized": True}],
            normalizer={
                "type": "BertNormalizer",
                "clean_text": True,
                "handle_chinese_chars": True,
                "strip_accents": None,
                "lowercase": True,
            },
        ),
        r"nothing is left of the added token '\\x00'",
    ),
    "adds a token twice": (lambda v: v["added_tokens"].append(added(5, "[CLS]")), "two ids"),
    "adds two tokens on one id": (
        lambda v: v["added_tokens"].append(added(4, "x")),
        "'x' = 4 is also the id of",
    ),
    "adds a token beyond a gap": (
        lambda v: v["added_tokens"].append(added(70, "x")),
        "the added token 'x' the id 70, and its place is 5",
    ),
    "adds a token on another's id": (
        lambda v: v["added_tokens"].append(added(1, "x")),
        "the added token 'x' the id 1, and its place is 5",
    ),
    "puts many tokens around": (template(single=[CLS] * 10**5 + [TEXT]), "length of single"),
    "puts many ids for a token": (
        template(
            special_tokens={"[CLS]": {"id": "[CLS]", "ids": [4] * 99, "tokens": ["[CLS]"] * 99}}
        ),
        "tokens around a text",
    ),
    "repeats the text": (template(single=[TEXT, TEXT]), "does not have each text once"),
    "drops the text": (template(single=[CLS]), "does not have each text once"),
    "has a template of words": (
        template(single="[CLS] $A"),
        "single of post_processor is not a list",
    ),
    "has an end without an id": (
        lambda v: v.update(
            post_processor={"type": "BertProcessing", "cls": ["[CLS]"], "sep": ["[CLS]", 4]}
        ),
        "not a token with its id",
    ),
    "has an end with another's id": (
        template(special_tokens={"[CLS]": {"id": "[CLS]", "ids": [0], "tokens": ["[CLS]"]}}),
        "the id 0, and its vocabulary the id 4",
    ),
    "has a type that does not exist": (normalizers({"type": "Reverse"}), "not a tokenizer"),
    "is a list": (lambda v: v.update(model=[]), "has no model"),
    "has an id for which it is too small": (vocabulary(c=16_777_214), "has room for at most"),
    "adds an id for which it is too small": (
        lambda v: v.update(added_tokens=[added(16_777_214, "c")]),
        "has room for at most",
    ),
    "has an id above all limits": (vocabulary(c=10**30), "at most 16,777,215 is accepted"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_tokenizer_is_refused_in_one_line(name: str) -> None:
    change, message = HOSTILE[name]
    with pytest.raises(VerificationError, match=message) as refused:
        parse(changed(change), NAME)
    assert str(refused.value).startswith(str(NAME))
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 500


def test_padding_and_truncation_are_disabled() -> None:
    tokenizer = parse(json.dumps(definition()).encode(), NAME)
    assert tokenizer.encode("aa b").tokens == ["[CLS]", "a", "##a", "b"]
    assert tokenizer.encode("a", "b").type_ids == [0, 0, 1]


def test_a_model_without_a_type_is_read() -> None:
    tokenizer = parse(changed(lambda value: value["model"].pop("type")), NAME)
    assert tokenizer.encode("aa").ids == [4, 0, 2]


def test_damaged_character_maps_are_refused_as_by_sentencepiece() -> None:
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2

    messages: Any = sentencepiece_model_pb2
    model = messages.ModelProto.FromString(plain())
    content, rng = model.normalizer_spec.precompiled_charsmap, random.Random(0)
    refused = 0
    for _ in range(300):
        damaged = bytearray(content)
        damaged[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        model.normalizer_spec.precompiled_charsmap = bytes(damaged)
        try:
            sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())
        except RuntimeError:
            refused += 1
            with pytest.raises(VerificationError, match="precompiled_charsmap is malformed"):
                check_charsmap(bytes(damaged), Path("tokenizer.json"))
        else:
            check_charsmap(bytes(damaged), Path("tokenizer.json"))
    assert 20 < refused < 280
