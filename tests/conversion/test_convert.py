"""Verification of written files before they are published."""

import json
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.checkpoints import VOCABULARY, Make
from zoo.conversion import writers
from zoo.conversion.convert import convert
from zoo.errors import VerificationError
from zoo.hub.source import CheckpointDir

BOTH = pytest.mark.parametrize("to", ["zoo", "hub"])
To = Literal["zoo", "hub"]


def refused(source: Path, to: To, **options: Any) -> str:
    """Check that a conversion fails without output; return the message."""
    before = sorted(source.parent.iterdir())
    with pytest.raises(VerificationError) as caught:
        convert(CheckpointDir(source, "source"), source.parent / "out", to=to, **options)
    assert sorted(source.parent.iterdir()) == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


def tokenizer_json(vocabulary: dict[str, int]) -> str:
    model: dict[str, Any] = {"type": "WordPiece", "unk_token": "[UNK]", "vocab": vocabulary}
    model |= {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    names = ("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder")
    return json.dumps(
        {"version": "1.0", **dict.fromkeys(names), "added_tokens": [], "model": model}
    )


@BOTH
def test_two_tokens_on_one_id(hub_checkpoint: Make, to: To) -> None:
    source = hub_checkpoint(tokenizer=False)
    vocabulary = {token: number for number, token in enumerate(VOCABULARY)}
    (source / "tokenizer.json").write_text(tokenizer_json(vocabulary | {"b": vocabulary["a"]}))
    assert f"= {vocabulary['a']} is also the id of" in refused(source, to)


@BOTH
@pytest.mark.parametrize("key", ["layer_norm_eps", "carried_along"])
@pytest.mark.parametrize("number", ["Infinity", "-Infinity", "NaN", "1e999"])
def test_non_finite_numbers(hub_checkpoint: Make, to: To, key: str, number: str) -> None:
    source = hub_checkpoint("BertModel")
    config = json.loads((source / "config.json").read_text()) | {key: 0}
    text = json.dumps(config).replace(f'"{key}": 0', f'"{key}": {number}')
    (source / "config.json").write_text(text)
    assert "is not a finite number" in refused(source, to)


@BOTH
@pytest.mark.parametrize(
    ("file", "change", "expected"),
    [
        ("config.json", {"model_type": "no-such"}, "config.json"),
        ("tokenizer.json", {"model": None}, "tokenizer"),
    ],
)
def test_file_that_differs_from_the_plan(
    hub_checkpoint: Make,
    monkeypatch: pytest.MonkeyPatch,
    to: To,
    file: str,
    change: dict[str, Any],
    expected: str,
) -> None:
    write = writers._write

    def write_wrongly(staging: Path, files: dict[str, bytes]) -> list[Path]:
        return write(staging, files | {file: json.dumps(json.loads(files[file]) | change).encode()})

    monkeypatch.setattr(writers, "_write", write_wrongly)
    message = refused(hub_checkpoint("BertModel"), to)
    assert "cannot be read back" in message and expected in message


@BOTH
def test_configuration_that_differs_from_the_plan(
    hub_checkpoint: Make, monkeypatch: pytest.MonkeyPatch, to: To
) -> None:
    write = writers._write

    def write_wrongly(staging: Path, files: dict[str, bytes]) -> list[Path]:
        text = files["config.json"].decode().replace("1e-12", "1e-11")
        return write(staging, files | {"config.json": text.encode()})

    monkeypatch.setattr(writers, "_write", write_wrongly)
    assert "layer_norm_eps is 1e-11, not 1e-12" in refused(hub_checkpoint("BertModel"), to)
