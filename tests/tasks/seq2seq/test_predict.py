"""The task ``seq2seq``: generation from source texts, in Python and on the command line."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from tests.exporting.making import export_onnx
from tests.tasks.seq2seq.making import LIMIT, PIECES, spiece
from tests.tasks.seq2seq.making import hub as hub
from tests.tasks.seq2seq.making import path as path
from zoo.api import Model
from zoo.checkpoint import load_checkpoint
from zoo.cli.inference.run import command
from zoo.conversion.convert import convert
from zoo.errors import UsageError
from zoo.exporting.session import open_session
from zoo.hub.source import CheckpointDir
from zoo.inference.task import TaskWarning

TEXTS = ["The cat sat on the mat.", "translate: a dog ran to the house, quickly", "", "Why?"]


def opened(path: Path, backend: str = "cpu") -> Model:
    checkpoint = load_checkpoint(path)
    return Model(checkpoint, open_session(checkpoint, backend))


@pytest.mark.by_default("3")
@pytest.mark.parametrize("beams", [1, 3])
def test_the_texts_are_the_references(hub: Path, path: Path, beams: int) -> None:
    import sentencepiece
    import transformers

    pieces = sentencepiece.SentencePieceProcessor(model_proto=spiece())
    reference: Any = transformers.T5ForConditionalGeneration.from_pretrained(hub)
    generated = opened(path).seq2seq(TEXTS, max_new_tokens=12, num_beams=beams)
    for text, result in zip(TEXTS, generated, strict=True):
        ids = [*pieces.encode(text), pieces.eos_id()]
        theirs: list[int] = reference.generate(
            torch.tensor([ids]), max_new_tokens=12, do_sample=False, num_beams=beams
        )[0].tolist()[1:]
        ended = theirs[-1] == pieces.eos_id()
        ordinary = [
            token for token in theirs if 2 <= token < PIECES
        ]  # no special tokens or sentinels
        assert result["text"] == text
        assert result["stopped"] == ("end" if ended else "length")
        assert result["generated"].replace(" ", "") == pieces.decode(ordinary).replace(" ", "")
    assert len({result["generated"] for result in generated}) == len(TEXTS)


def test_a_long_text_is_cut_and_says_so(path: Path) -> None:
    model = opened(path)
    with pytest.warns(TaskWarning, match=f"was longer than {LIMIT} tokens"):
        (result,) = model.seq2seq(["the cat sat on the mat " * 20], max_new_tokens=LIMIT + 5)
    assert result["truncated"] > 0 and result["generated"]


@pytest.mark.long  # tests/inference/generation has this of every search
def test_batches_change_no_text(path: Path) -> None:
    model = opened(path)
    settings: dict[str, Any] = {"max_new_tokens": 9, "seed": 1, "temperature": 1.5}
    texts = [TEXTS[k % 4] for k in range(8)]
    together = model.seq2seq(texts, **settings)
    assert together == model._run("seq2seq", texts, max_batch_tokens=1, **settings)


def test_streamed_pieces_are_the_text(path: Path) -> None:
    model = opened(path)
    whole = model.seq2seq(TEXTS[:1], max_new_tokens=15)[0]["generated"]
    assert "".join(model.stream(TEXTS[0], max_new_tokens=15)) == whole


def test_other_tasks_say_what_this_model_does(path: Path) -> None:
    with pytest.raises(UsageError, match="seq2seq"):
        opened(path).generate(["a"])


@pytest.mark.long
def test_the_encoder_embeds_and_the_graph_agrees(hub: Path, path: Path, tmp_path: Path) -> None:
    convert(CheckpointDir(hub, "test"), tmp_path / "encoder", head="encoder")
    vectors = opened(tmp_path / "encoder").embed(TEXTS)
    graph = opened(tmp_path / "encoder", "onnx").embed(TEXTS)
    assert vectors.shape == (4, 32) and abs(vectors - graph).max() <= 1e-5


@pytest.mark.long
def test_a_directory_of_graphs_writes_the_same(path: Path, tmp_path: Path) -> None:
    export_onnx(load_checkpoint(path), tmp_path / "graphs")
    model, torchs = opened(tmp_path / "graphs", "auto"), opened(path)
    assert model.session.backend == "onnx"
    searches: list[dict[str, Any]] = [{}, {"num_beams": 3}, {"seed": 1, "temperature": 1.5}]
    for settings in searches:
        generated = model.seq2seq(TEXTS, max_new_tokens=12, **settings)
        assert generated == torchs.seq2seq(TEXTS, max_new_tokens=12, **settings)
    streamed = run(str(tmp_path / "graphs"), TEXTS[0], "--stream")
    assert streamed == torchs.seq2seq(TEXTS[:1])[0]["generated"] + "\n"


def run(*arguments: str) -> str:
    result = CliRunner().invoke(command, ["seq2seq", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_command_writes_json_lines_or_streams(path: Path) -> None:
    options = ("--max-new-tokens", "7")
    out = run(str(path), *TEXTS[:2], *options, "--num-beams", "2")
    lines = [json.loads(line) for line in out.splitlines()]
    assert lines == opened(path).seq2seq(TEXTS[:2], max_new_tokens=7, num_beams=2)
    greedy = opened(path).seq2seq(TEXTS[:2], max_new_tokens=7)
    streamed = run(str(path), *TEXTS[:2], *options, "--stream")
    assert streamed == "".join(result["generated"] + "\n" for result in greedy)
