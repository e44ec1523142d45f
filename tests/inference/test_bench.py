"""Benchmarks of several sessions; no figures are reported if their outputs differ."""

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from torch import Tensor

from tests.inference.making import make_checkpoint
from tests.warm import zoo
from zoo.checkpoint import Checkpoint, load_checkpoint
from zoo.errors import UsageError, VerificationError, ZooError
from zoo.exporting.fastest import fastest_backend, save_speeds
from zoo.exporting.session import open_session
from zoo.exporting.startup import StartupSettings, measure_startup
from zoo.inference import load_session
from zoo.inference.bench import WARM_UP, default_new_tokens, default_seq_len, measure
from zoo.inference.torch_session import TorchSession
from zoo.plugins import get_family

WORK: dict[str, Any] = {"batch_size": 3, "seq_len": 16, "iterations": 2}


def sequences(path: Path, **changes: Any) -> Checkpoint:
    """An encoder-decoder model."""
    return make_checkpoint(path, "seq2seq-lm", family=get_family("t5"), num_layers=1, **changes)


@pytest.mark.long
def test_a_source_and_a_target_are_read_on_every_backend(tmp_path: Path) -> None:
    checkpoint = sequences(tmp_path / "model")
    sessions = [open_session(checkpoint, backend, threads=1) for backend in ("cpu", "onnx")]
    first, second = measure(checkpoint, sessions, **WORK)
    assert (first.backend, second.backend) == ("cpu", "onnx")
    assert first.difference == 0 < second.difference < 1e-4
    for timing in (first, second):
        assert len(timing.seconds) == 2 and timing.tokens == 48
        assert timing.tokens_per_second == 48 / timing.median


@pytest.mark.parametrize(
    ("family", "tokens"), [("bert", 40), pytest.param("t5", 128, marks=pytest.mark.long)]
)
def test_default_length_is_within_the_limit_of_the_model(
    tmp_path: Path, family: str, tokens: int
) -> None:
    make_checkpoint(tmp_path / "model", family=get_family(family))  # 40 positions, if any
    options = ("--backend", "cpu", "--iterations", "1", "--batch-size", "2", "--no-startup")
    done = zoo("bench", str(tmp_path / "model"), *options, "--json")
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    assert value["seq_len"] == tokens
    assert value["results"][0]["tokens"] == 2 * tokens


def test_models_that_differ_are_not_timed(tmp_path: Path) -> None:
    checkpoint = sequences(tmp_path / "one")
    second = sequences(tmp_path / "other", scale_outputs=False)
    sessions = [load_session(path, "cpu", threads=1) for path in (checkpoint, second)]
    with pytest.raises(VerificationError, match="differs from cpu in float32"):
        measure(checkpoint, sessions, **WORK)


def test_no_numbers_are_no_agreement(tmp_path: Path) -> None:
    checkpoint = sequences(tmp_path / "one")
    second = sequences(tmp_path / "other")
    sessions = [load_session(path, "cpu", threads=1) for path in (checkpoint, second)]
    assert isinstance(sessions[1], TorchSession)
    next(p for p in sessions[1].model.parameters() if p.ndim == 1)[:] = np.nan
    with pytest.raises(VerificationError, match="differs from cpu in float32 by nan"):
        measure(checkpoint, sessions, **WORK)


def test_the_order_of_dtypes_does_not_matter(tmp_path: Path) -> None:
    """A coarse first session does not make precise ones differ."""
    checkpoint = make_checkpoint(tmp_path / "model", family=get_family("bert"))
    sessions = [load_session(checkpoint, "cpu", dtype=d, threads=1) for d in ("int8", "float32")]
    first, second = measure(checkpoint, sessions, **WORK)
    assert first.difference == 0 and second.difference > 1e-3


def test_dtypes_memory_and_percentiles_of_one_row(tmp_path: Path) -> None:
    make_checkpoint(tmp_path / "model", family=get_family("bert"))
    # of every CPU, unlike bfloat16; each precision is started in a process of its own
    options = (
        "--backend",
        "cpu",
        "--dtype",
        "float64",
        "--iterations",
        "3",
        "--batch-size",
        "2",
        "--json",
    )
    figure = tmp_path / "speed.svg"
    done = zoo("bench", str(tmp_path / "model"), *options, "--figures", str(tmp_path))
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)["results"]
    assert [entry["dtype"] for entry in results] == ["float64"]
    for entry in results:
        low, middle, high = sorted(entry["latencies"])
        assert entry["latency"]["p50"] == middle
        # by linear interpolation, the percentile 95 of three values lies at 0.9 of the last gap
        assert entry["latency"]["p95"] == pytest.approx(middle + 0.9 * (high - middle))
        assert low > 0
        assert entry["startup"]["seconds"] > entry["latency"]["p50"]
        assert entry["startup"]["peak_bytes"] > 50e6  # torch alone is more
    assert "float64" in figure.read_text()
    done = zoo("bench", str(tmp_path / "model"), "--figures", str(tmp_path / "speed.txt"))
    assert done.returncode == 2 and "speed.txt: figures are written as SVG" in done.stderr


def test_pairs_that_are_not_possible_are_left_out(tmp_path: Path) -> None:
    make_checkpoint(tmp_path / "model", family=get_family("bert"), num_layers=1)
    base = ("bench", str(tmp_path / "model"), "--backend", "cpu", "--no-startup", "--json")
    done = zoo(*base, "--iterations", "1", "--dtype", "float32", "--dtype", "int4")
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    assert [entry["dtype"] for entry in value["results"]] == ["float32"]
    (left_out,) = value["left_out"]
    assert (left_out["backend"], left_out["dtype"]) == ("cpu", "int4")
    assert "torch does not compute in int4" in left_out["error"]
    done = zoo(*base, "--dtype", "int4")
    assert done.returncode == 2 and "torch does not compute in int4" in done.stderr


def decoder(path: Path) -> Checkpoint:
    """A small model of 40 positions that generates text."""
    return make_checkpoint(path, "causal-lm", family=get_family("gpt"), num_layers=1)


def test_generation_is_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = load_session(decoder(tmp_path / "model"), "cpu", threads=1)
    model, steps = session.decoder(), list[Tensor]()
    step = model.step

    def counted(tokens: Tensor, state: Any) -> Tensor:
        steps.append(tokens)
        return step(tokens, state)

    monkeypatch.setattr(model, "step", counted)
    (timing,) = measure(load_checkpoint(tmp_path / "model"), [session], **WORK, new_tokens=5)
    assert timing.tokens == 3 * 5
    batches = 2 * (WORK["iterations"] + WARM_UP)  # of all rows and of one
    assert len(steps) == batches * (5 - 1), "the first token comes of the prompt"


@pytest.mark.long
def test_startup_of_a_model_that_generates(tmp_path: Path) -> None:
    """The process generates: 16 and 33 tokens are over its limit of 40, 16 and 4 are not."""
    path = str(decoder(tmp_path / "model").path)
    settings = StartupSettings(path=path, backend="cpu", batch_size=1, seq_len=16, new_tokens=4)
    assert measure_startup(settings).seconds > 0
    with pytest.raises(ZooError, match=r"a process that opens .*: IndexError: index out of range"):
        measure_startup(msgspec.structs.replace(settings, new_tokens=33))


@pytest.mark.long
def test_forward_passes_of_a_model_that_generates_choose_no_backend(tmp_path: Path) -> None:
    checkpoint = decoder(tmp_path / "model")
    save_speeds(checkpoint, 1, {"cpu": 2.0, "onnx": 1.0})
    words = ("--iterations", "1", "--threads", "1", "--no-startup", "--new-tokens", "0")
    done = zoo("bench", checkpoint.path, *words)
    assert done.returncode == 0 and "--backend auto" not in done.stdout, done.stderr
    assert fastest_backend(checkpoint, 1) == "cpu"


def test_new_tokens_are_within_the_limit(tmp_path: Path) -> None:
    checkpoint = decoder(tmp_path / "model")
    new_tokens = default_new_tokens(checkpoint, None)
    assert (new_tokens, default_seq_len(checkpoint, new_tokens)) == (20, 20)
    assert default_new_tokens(checkpoint, 36) == 4
    assert default_new_tokens(make_checkpoint(tmp_path / "encoder"), None) == 0
    session = load_session(checkpoint, "cpu", threads=1)
    with pytest.raises(UsageError, match="takes 40 tokens, and 16 with 33 new ones are more"):
        measure(checkpoint, [session], **WORK, new_tokens=33)
