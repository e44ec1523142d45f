"""Model files are read as by sentencepiece, or refused with one line."""

import unicodedata
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.tokenizers.directories import CONFIG, Content, write
from tests.tokenizers.texts import prose, torture
from tests.tokenizers.trained import bracketed, lowercase, padded, pieces, plain
from zoo.errors import SourceError, VerificationError
from zoo.tokenizers import SourceFiles, piece_model, sentencepiece_tokenizer
from zoo.tokenizers.sentencepiece.proto import PieceModel, read_piece_model

UNKNOWN = {"unk": "<unk>"}


def proto(content: bytes, change: Any = lambda _: None) -> Any:
    from sentencepiece import sentencepiece_model_pb2

    messages: Any = sentencepiece_model_pb2
    model = messages.ModelProto.FromString(content)
    change(model)
    return model


def changed(change: Any, content: bytes | None = None) -> bytes:
    written: bytes = proto(content or plain(), change).SerializeToString()
    return written


def read(directory: Path, content: bytes) -> PieceModel:
    write(directory, {"spiece.model": content})
    return read_piece_model(SourceFiles(directory), "spiece.model")


def build(directory: Path, content: bytes, **options: Any) -> Any:
    files = SourceFiles(write(directory, {"spiece.model": content}))
    return sentencepiece_tokenizer(files, **{"roles": UNKNOWN, **options})


@pytest.mark.by_default("plain")
@pytest.mark.parametrize("make", [plain, padded, bracketed, lowercase])
def test_all_fields_are_read(tmp_path: Path, make: Any) -> None:
    content = make()
    model, wanted = read(tmp_path, content), proto(content)
    assert [tuple(piece) for piece in model.pieces] == [
        (piece.piece, piece.score, piece.type) for piece in wanted.pieces
    ]
    spec = wanted.normalizer_spec
    assert model.charsmap == spec.precompiled_charsmap
    assert (model.leading_space, model.single_spaces) == (True, True)
    assert (model.kind, model.unknown) == (1, wanted.trainer_spec.unk_id)


OPTIONS: dict[str, dict[str, Any]] = {
    "bpe": {"kind": "bpe"},
    "bpe, bytes": {"kind": "bpe", "byte_fallback": True},
    "bytes": {"byte_fallback": True, "character_coverage": 0.98},
    "as it is": {"normalization_rule_name": "identity"},
    "spaces kept": {"normalization_rule_name": "identity", "remove_extra_whitespaces": False},
    "no space first": {"add_dummy_prefix": False},
    "several words": {"split_by_whitespace": False},
    "folded": {"normalization_rule_name": "nfkc_cf"},
    "symbols": {"user_defined_symbols": "(,),--,the"},
}


@pytest.mark.long
@pytest.mark.parametrize("name", OPTIONS)
def test_options_match_sentencepiece(tmp_path: Path, name: str) -> None:
    import sentencepiece

    content = pieces(**OPTIONS[name])
    tokenizer = build(tmp_path, content)
    model = sentencepiece.SentencePieceProcessor(model_proto=content)
    known = [model.id_to_piece(number) for number in range(model.get_piece_size())]
    assert tokenizer.get_vocab() == {piece: number for number, piece in enumerate(known)}
    for text in (*prose(2000), *torture()):
        if "<s>" in text or text.startswith("\u0300a"):
            continue
        actual, wanted = tokenizer.encode(text).ids, model.encode(text, out_type=int)
        if actual != wanted:  # another segmentation of equal probability
            scores = [sum(map(model.get_score, ids)) for ids in (actual, wanted)]
            assert scores[0] == pytest.approx(scores[1], rel=1e-5), text
        if model.unk_id() not in wanted:  # sentencepiece decodes it with other spaces
            assert tokenizer.decode(wanted) == model.decode(wanted)


@pytest.mark.parametrize("name", ["bytes", "bpe, bytes"])
def test_byte_fallback_round_trips(tmp_path: Path, name: str) -> None:
    tokenizer = build(tmp_path, pieces(**OPTIONS[name]))
    for text in ("中文 ★ ☆ \U0001d518", "naïve", "ß"):
        decoded = tokenizer.decode(tokenizer.encode(text).ids)
        assert decoded == unicodedata.normalize("NFKC", text)


def test_control_symbols_never_match_text(tmp_path: Path) -> None:
    tokenizer = build(tmp_path, plain())
    assert tokenizer.encode("<s>").tokens == ["<s>"]
    assert tokenizer.token_to_id("<s>") not in tokenizer.encode("\uff1cs\uff1e").ids


def test_comma_is_split_from_digit(tmp_path: Path) -> None:
    def add(model: Any) -> None:
        for text in ("\u25812000,", "0,"):
            model.pieces.add(piece=text, score=-1.0, type=1)

    content = changed(add)
    assert build(tmp_path, content).encode("in 2000, then").tokens[1] == "\u25812000,"
    apart = build(tmp_path, content, split_digit_comma=True).encode("in 2000, then").tokens
    assert "," in apart
    assert [token for token in apart if "," in token and token[-2:-1].isdigit()] == []


def test_number_of_sentinels(tmp_path: Path) -> None:
    assert build(tmp_path, plain(), sentinels=3).get_vocab_size() == 703
    tokenizer = build(write(tmp_path, {CONFIG: {"extra_ids": 0}}), plain(), sentinels=3)
    assert tokenizer.get_vocab_size() == 700


SPELLED: dict[str, Any] = {"lowercase": True, "strip_accents": True}


def test_normalization_options(tmp_path: Path) -> None:
    def spelled(**config: Any) -> str:
        tokenizer = build(write(tmp_path, {CONFIG: config}), plain(), **SPELLED)
        normalized: str = tokenizer.normalizer.normalize_str("Été")
        return normalized

    assert spelled() == "ete"
    assert spelled(keep_accents=True) == "été"
    assert spelled(do_lower_case=False) == "Ete"
    assert spelled(do_lower_case=False, keep_accents=True) == "Été"


def test_normalization_options_of_tokenizer_json(tmp_path: Path) -> None:
    stored = build(tmp_path / "a", plain(), **SPELLED).to_str()

    def spelled(**config: Any) -> str:
        files = SourceFiles(write(tmp_path / "b", {"tokenizer.json": stored, CONFIG: config}))
        tokenizer = sentencepiece_tokenizer(files, roles=UNKNOWN, **SPELLED)
        assert tokenizer.normalizer is not None
        normalized: str = tokenizer.normalizer.normalize_str("Été \uff46")
        return normalized

    assert spelled() == "ete f"
    assert spelled(keep_accents=True) == "été f"
    assert spelled(do_lower_case=False) == "Ete f"
    assert spelled(do_lower_case=False, tokenizer_class="PreTrainedTokenizerFast") == "ete f"


def set_kind(model: Any) -> None:
    model.trainer_spec.model_type = 3


def set_suffix(model: Any) -> None:
    model.trainer_spec.treat_whitespace_as_suffix = True


def set_escape(model: Any) -> None:
    model.normalizer_spec.escape_whitespaces = False


def set_twice(model: Any) -> None:
    model.pieces[9].piece = model.pieces[8].piece


def set_score(model: Any) -> None:
    model.pieces[9].score = float("nan")


def set_null(model: Any) -> None:
    model.pieces[9].piece = "a\0b"


def set_long(model: Any) -> None:
    model.pieces[9].piece = "a" * 8000


def set_map(model: Any) -> None:
    model.normalizer_spec.precompiled_charsmap = b"\xff\xff\xff\x7f"


def set_unknown(model: Any) -> None:
    model.trainer_spec.unk_id = 10**6


def set_name(model: Any) -> None:
    model.pieces[0].piece = "<other>"


def set_symbol(model: Any) -> None:
    model.pieces.add(piece="\u2026", score=0.0, type=4)


# name -> a function that makes the file, and the message
BROKEN: dict[str, tuple[Callable[[], bytes], str]] = {
    "nothing": (bytes, r"spiece.model is not a sentencepiece model: it has no pieces"),
    "a field without a number": (lambda: plain() + b"\0" * 8, r"a field has the number 0"),
    "text": (lambda: b"[PAD]\n[UNK]\n", r"spiece.model is not a sentencepiece model: "),
    "cut": (
        lambda: plain()[: len(plain()) // 3],
        r"spiece.model is not a sentencepiece model: it ends too early",
    ),
    "another kind": (partial(changed, set_kind), r"model_type = 3 is not implemented"),
    "spaces at the end": (
        partial(changed, set_suffix),
        r"treat_whitespace_as_suffix is not implemented",
    ),
    "spaces as they are": (
        partial(changed, set_escape),
        r"escape_whitespaces = false is not implemented",
    ),
    "one piece twice": (partial(changed, set_twice), r"spiece.model: the piece '.*' has two ids"),
    "no score": (partial(changed, set_score), r"a piece is .* score nan"),
    "a piece with a null character": (
        partial(changed, set_null),
        r"a piece is b'a.x00b', of 3 bytes",
    ),
    "a long piece": (partial(changed, set_long), r"a piece is b'aaa.*', of 8000 bytes"),
    "replacements": (
        partial(changed, set_map),
        r"spiece.model: its precompiled_charsmap is malformed",
    ),
    "an id that is none": (
        partial(changed, set_unknown),
        r"the unknown piece is 1000000, which does not exist",
    ),
    "no unknown piece": (partial(changed, set_name), r"spiece.model has no piece <unk>"),
    "a symbol that is replaced": (
        partial(changed, set_symbol),
        r"the user-defined symbol '\u2026' is not impl",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_malformed_file_is_named_in_one_line(tmp_path: Path, name: str) -> None:
    make, message = BROKEN[name]
    with pytest.raises(VerificationError, match=message) as caught:
        build(tmp_path, make())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"split_by_punct": True}, r"split_by_punct = True is not implemented"),
        ({"add_prefix_space": False}, r"add_prefix_space = False is not implemented"),
        ({"do_lower_case": "no"}, r"do_lower_case = 'no'"),
        ({"extra_ids": "many"}, r"extra_ids = 'many'"),
    ],
)
def test_options_are_applied_or_refused(
    tmp_path: Path, config: dict[str, Any], message: str
) -> None:
    write(tmp_path, {CONFIG: config})
    with pytest.raises(VerificationError, match=message):
        build(tmp_path, plain(), sentinels=1, lowercase=True)


def test_random_bytes_are_read_or_refused(tmp_path: Path) -> None:
    import random

    draw, content = random.Random(0), plain()
    map_at = content.index(proto(content).normalizer_spec.precompiled_charsmap[:64])
    for turn in range(150):
        broken = bytearray(content)
        for _ in range(draw.choice((1, 3, 20))):
            end = map_at if turn % 2 else len(broken)
            broken[draw.randrange(end)] = draw.randrange(256)
        try:
            build(tmp_path, bytes(broken)).encode("Crème \uff46 ﬁ brûlée\u0301")
        except VerificationError as error:
            assert "spiece.model" in str(error) and "\n" not in str(error)


def test_missing_model_file(tmp_path: Path) -> None:
    files: dict[str, Content] = {CONFIG: {}}
    assert piece_model(SourceFiles(write(tmp_path, files))) is None
    with pytest.raises(SourceError, match=r"has neither tokenizer.json nor a model file of"):
        sentencepiece_tokenizer(SourceFiles(tmp_path), roles=UNKNOWN)
