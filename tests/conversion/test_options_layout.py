"""Checkpoints of ``options.json`` and HDF5: conversion in both directions, and inference."""

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import zoo
from tests.families import elmo_numpy
from tests.families.elmo_files import GOLDEN, published
from zoo.cli import main
from zoo.conformance.verify import verify
from zoo.conversion.convert import convert
from zoo.errors import SourceError, UsageError, VerificationError
from zoo.hub.source import CheckpointDir
from zoo_elmo.characters import sentence_ids


def source(path: Path) -> CheckpointDir:
    return CheckpointDir(path, str(path))


def arrays(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = {}

    def keep(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            values[name] = item[()]

    with h5py.File(path, "r") as file:
        file.visititems(keep)
    return values


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(name, marks=[] if name == "pretraining" else pytest.mark.long)
        for name in sorted(path.stem for path in GOLDEN.iterdir())
    ],
)
def test_round_trip(tmp_path: Path, case: str) -> None:
    theirs, golden = published(tmp_path / "theirs", case, n_epochs=3)
    report = convert(source(theirs), tmp_path / "ours")
    assert (report.family, report.head, report.format) == ("elmo", golden.head, "hdf5")
    checks = verify(tmp_path / "ours", reference=False)
    assert [check for check in checks if check.outcome != "ok"] == []
    convert(source(tmp_path / "ours"), tmp_path / "back", to="hub")
    back = arrays(tmp_path / "back" / "lm_weights.hdf5")
    assert back.keys() == golden.weights.keys()
    for name, array in golden.weights.items():
        assert back[name].dtype == array.dtype and back[name].tobytes() == array.tobytes(), name
    options = json.loads((tmp_path / "back" / "options.json").read_text())
    unset = {"cell_clip": None, "proj_clip": None}  # absent limits are not written
    lstm = golden.hub_config["lstm"]
    expected = {k: v for k, v in lstm.items() if unset.get(k, 0) is not v}
    assert options == {**golden.hub_config, "lstm": expected, "n_epochs": 3}
    convert(source(theirs), tmp_path / "direct", to="hub")
    assert arrays(tmp_path / "direct" / "lm_weights.hdf5").keys() == golden.weights.keys()


def test_report_names_missing_and_unexpected_tensors(tmp_path: Path) -> None:
    theirs, _ = published(tmp_path / "theirs")
    with h5py.File(theirs / "small_weights.hdf5", "a") as file:
        del file["CNN/b_cnn_1"]
        file["stray"] = np.zeros(3, np.float32)
    with pytest.raises(VerificationError) as error:
        convert(source(theirs), tmp_path / "ours")
    assert "CNN/b_cnn_1" in str(error.value) and "stray" in str(error.value)
    assert not (tmp_path / "ours").exists()


def test_options_of_no_family_are_no_checkpoint(tmp_path: Path) -> None:
    theirs, _ = published(tmp_path / "theirs")
    (theirs / "small_options.json").write_text('{"lstm": {}}')
    with pytest.raises(SourceError, match=r"holds no config\.json"):
        convert(source(theirs), tmp_path / "ours")


@pytest.mark.long
def test_bfloat16_is_not_supported_by_the_format(tmp_path: Path) -> None:
    theirs, _ = published(tmp_path / "theirs")
    convert(source(theirs), tmp_path / "ours", dtype="bfloat16")
    with pytest.raises(UsageError, match="--dtype float32"):
        convert(source(tmp_path / "ours"), tmp_path / "back", to="hub")
    assert not (tmp_path / "back").exists()
    convert(source(tmp_path / "ours"), tmp_path / "back", to="hub", dtype="float32")


@pytest.mark.long
def test_features_and_embeddings_of_texts(tmp_path: Path) -> None:
    theirs, golden = published(tmp_path / "theirs", "none-mixed")
    convert(source(theirs), tmp_path / "ours")
    model = zoo.load(tmp_path / "ours", backend="cpu", dtype="float64")
    weights = {name: array.astype(np.float64) for name, array in golden.weights.items()}
    texts = ["A cat sat .", "no", ""]
    actual = model.features(texts, layers=[0, 1, -1])
    again = model.features(texts[::-1], layers=[-1])[::-1]  # texts in a batch are independent
    for text, result, other in zip(texts, actual, again, strict=True):
        words = text.split()
        ids = sentence_ids(words, golden.hub_config["char_cnn"]["max_characters_per_token"])
        expected = elmo_numpy.layers(golden.hub_config, weights, ids)
        mixed = elmo_numpy.outputs(golden.hub_config, weights, ids)["last_hidden_state"]
        assert result["tokens"] == ["<S>", *words, "</S>"]
        for name, values in zip(("0", "1", "2"), (*expected, mixed), strict=True):
            assert np.abs(result["layers"][name] - values).max() <= 1e-9
        assert np.abs(other["layers"]["2"] - mixed).max() <= 1e-9
    with pytest.warns(UserWarning, match="mean"):
        vectors = model.embed(texts)
    for vector, result in zip(vectors, actual, strict=True):
        assert np.abs(vector - result["layers"]["2"].mean(0)).max() <= 1e-9


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    theirs, golden = published(tmp_path / "theirs")

    def zoo_says(*arguments: str) -> Any:
        with pytest.raises(SystemExit) as end:
            main([*arguments, "--json"])
        assert not end.value.code
        return json.loads(capsys.readouterr().out)

    dry = zoo_says("convert", str(theirs), "--dry-run")
    assert dry["parameters"] == sum(array.size for array in golden.weights.values())
    assert dry["tokenizer"] is True and dry["account"]["absent"] == ["mix"]
    zoo_says("convert", str(theirs), "-o", str(tmp_path / "ours"))
    output = zoo_says("run", "features", str(tmp_path / "ours"), "A cat", "--max-seq-len", "3")
    (result,) = output["results"]
    assert result["tokens"] == ["<S>", "A", "</S>"] and result["truncated"] == 1
