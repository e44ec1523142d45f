"""Exported tokenizer files give the same ids in transformers."""

from pathlib import Path
from typing import Any

import pytest

from tests.tokenizers.directories import everything, stored, write
from tests.tokenizers.making import MODEL, assert_equal, ours
from tests.tokenizers.texts import prose, torture
from zoo.tokenizers import (
    SourceFiles,
    TextTokenizer,
    hub_tokenizer_files,
    tokenizer_info,
    wordpiece_tokenizer,
)


def written(directory: Path, **options: Any) -> dict[str, bytes]:
    files = SourceFiles(directory)
    tokenizer = wordpiece_tokenizer(files)
    text = tokenizer.to_str(pretty=True).encode()
    return hub_tokenizer_files(text, tokenizer_info(files, tokenizer), **options)


def load(directory: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(directory)


@pytest.fixture(scope="module", params=sorted(everything()))
def exported(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[TextTokenizer, Path]:
    folder = tmp_path_factory.mktemp("exported")
    source = write(folder / "source", everything()[request.param])
    target = write(folder / "target", {"config.json": MODEL, **written(source)})
    return ours(source), target


@pytest.mark.by_default("stored, added tokens")
def test_exported_files_give_the_same_ids(exported: tuple[TextTokenizer, Path]) -> None:
    tokenizer, target = exported
    other = load(target)
    assert_equal((tokenizer, other), [*torture(), *prose(100)])
    assert_equal((tokenizer, other), list(zip(torture(), prose(), strict=False)), max_tokens=32)
    for encoded in tokenizer.encode(torture(), max_tokens=None):
        assert tokenizer.decode(encoded.ids) == other.decode(encoded.ids, skip_special_tokens=True)
    for role, token in tokenizer.info.special.items():
        assert getattr(other, f"{role}_token") == token
    assert "token_type_ids" in other("first", "second")


@pytest.mark.long
def test_padding_side_is_written(tmp_path: Path) -> None:
    source = write(tmp_path / "source", everything()[min(everything())])
    for side in ("left", "right"):
        files: dict[str, Any] = {"config.json": MODEL, **written(source, padding_side=side)}
        tokenizer = load(write(tmp_path / side, files))
        ids = tokenizer(["a", "a longer text"], padding=True)["attention_mask"][0]
        assert tokenizer.padding_side == side and ids[0 if side == "left" else -1] == 0


@pytest.mark.by_default(
    "as published", "stored, added tokens", "stored, clean-up", "vocabulary, cased"
)
def test_exported_files_are_read_back(exported: tuple[TextTokenizer, Path]) -> None:
    tokenizer, target = exported
    again = ours(target)
    assert again.info == tokenizer.info
    texts = torture()
    for first, other in zip(
        tokenizer.encode(texts, max_tokens=None), again.encode(texts, max_tokens=None), strict=True
    ):
        assert first.ids == other.ids


def test_maximum_length_is_exported(tmp_path: Path) -> None:
    config = {"do_lower_case": True, "model_max_length": 384}
    source = write(tmp_path / "a", {"tokenizer.json": stored(), "tokenizer_config.json": config})
    target = write(tmp_path / "b", {"config.json": MODEL, **written(source)})
    assert load(target).model_max_length == 384


def test_model_input_names(tmp_path: Path) -> None:
    source = write(tmp_path / "a", everything()["as published"])
    files = written(source, inputs=("input_ids", "attention_mask"))
    target = write(tmp_path / "b", {"config.json": MODEL, **files})
    assert set(load(target)("first", "second")) == {"input_ids", "attention_mask"}
