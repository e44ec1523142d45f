"""The task ``generate``: continuations of texts, in Python and on the command line."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from tests.tasks.causal_lm.making import SENTENCES, MakeSource, opened
from tests.tasks.causal_lm.making import path as path
from tests.tasks.causal_lm.making import source as source
from zoo.cli.inference.run import command
from zoo.errors import UsageError
from zoo.inference.task import TaskWarning
from zoo.io.terminal import escape_controls


def test_the_texts_are_the_references(path: Path) -> None:
    import transformers

    hub = path.parent / "hub"
    tokenizer = transformers.AutoTokenizer.from_pretrained(hub)
    reference: Any = transformers.GPT2LMHeadModel.from_pretrained(hub)
    for options in ({}, {"num_beams": 3}):
        generated = opened(path).generate(SENTENCES[:3], max_new_tokens=12, **options)
        for text, result in zip(SENTENCES, generated, strict=False):
            ids = tokenizer(text, return_tensors="pt")
            theirs: Any = reference.generate(
                **ids,
                max_new_tokens=12,
                do_sample=False,
                num_beams=options.get("num_beams", 1),
                pad_token_id=0,
            )
            decoded = tokenizer.decode(
                theirs[0, ids.input_ids.shape[1] :], skip_special_tokens=True
            )
            assert result == {
                "text": text,
                "generated": decoded,
                "stopped": "end" if theirs[0, -1] == 0 else "length",
            }


def test_an_empty_text_starts_from_the_token_that_begins_texts(path: Path) -> None:
    model = opened(path)
    (result,) = model.generate([""], max_new_tokens=5)
    assert result["text"] == "" and result["generated"]
    (named,) = model.generate(["<|endoftext|>"], max_new_tokens=5)
    assert named["generated"] == result["generated"]


def test_streamed_pieces_are_the_text(path: Path) -> None:
    model = opened(path)
    for settings in ({"max_new_tokens": 25}, {"max_new_tokens": 25, "seed": 5, "temperature": 3.0}):
        whole = model.generate(SENTENCES[:1], **settings)[0]["generated"]
        pieces = list(model.stream(SENTENCES[0], **settings))
        assert "".join(pieces) == whole and len(pieces) > 3
    with pytest.raises(UsageError, match="stream without beams"):
        next(model.stream("a", num_beams=2))


@pytest.mark.long  # tests/inference/generation has this of every search
def test_batches_change_no_text(path: Path) -> None:
    model, settings = opened(path), {"max_new_tokens": 20, "seed": 1, "temperature": 1.5}
    texts = [SENTENCES[k % 4] for k in range(10)]
    together = model.generate(texts, **settings)
    assert together == model.generate(texts, max_batch_tokens=1, **settings)
    # equal texts have different samples
    assert len({result["generated"] for result in together if result["text"] == texts[0]}) == 3


def test_a_text_must_leave_room(path: Path) -> None:
    model, text = opened(path), "the cat " * 40
    with pytest.raises(UsageError, match=r"text 2 has \d+ tokens, and the model takes 44"):
        model.generate(["a", text])
    with pytest.warns(TaskWarning, match="was longer than 10 tokens and was cut") as caught:
        (cut,) = model._run("generate", [text], max_tokens=10)
    assert [warning.filename for warning in caught] == [__file__]  # and not a line of ours
    assert cut["truncated"] > 10 and cut["generated"]
    with pytest.raises(UsageError, match="64 new tokens leave no room"):
        model.generate(["a"], max_new_tokens=64)
    assert len(model.generate(["a"], max_new_tokens=63)) == 1


@pytest.mark.long
def test_onnx_runtime_writes_the_same(path: Path) -> None:
    model, torchs = opened(path, "onnx"), opened(path)  # opening with onnx exports and verifies
    searches: list[dict[str, Any]] = [{}, {"num_beams": 3}, {"seed": 1, "temperature": 1.5}]
    for settings in searches:
        generated = model.generate(SENTENCES, max_new_tokens=20, **settings)
        assert generated == torchs.generate(SENTENCES, max_new_tokens=20, **settings)
    pieces = list(model.stream(SENTENCES[0], max_new_tokens=20))
    assert "".join(pieces) == torchs.generate(SENTENCES[:1])[0]["generated"]
    out = run(str(path), *SENTENCES[:2], "--backend", "onnx")
    assert [json.loads(line) for line in out.splitlines()] == torchs.generate(SENTENCES[:2])
    ids = torch.tensor([[3, 4, 5], [6, 7, 0]]).numpy()
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]]).numpy()
    inputs = {"input_ids": ids, "attention_mask": mask}
    difference = model.session.run(inputs)["logits"] - torchs.session.run(inputs)["logits"]
    assert abs(difference[mask == 1]).max() < 1e-4


def test_a_head_that_does_not_generate_says_what_does(source: MakeSource) -> None:
    model = opened(source("GPT2Model"))
    with pytest.raises(UsageError, match="--head causal-lm"):
        model.generate(["a"])


def run(*arguments: str) -> str:
    result = CliRunner().invoke(command, ["generate", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_command_writes_json_lines(path: Path) -> None:
    out = run(str(path), *SENTENCES[:2], "--max-new-tokens", "7", "--num-beams", "2")
    lines = [json.loads(line) for line in out.splitlines()]
    assert lines == opened(path).generate(SENTENCES[:2], max_new_tokens=7, num_beams=2)


def test_the_command_streams_plain_text(path: Path) -> None:
    options = ("--max-new-tokens", "9", "--seed", "4", "--top-k", "20", "--top-p", "0.9")
    streamed = run(str(path), *SENTENCES[:2], "--stream", *options)
    lines = [json.loads(line) for line in run(str(path), *SENTENCES[:2], *options).splitlines()]
    written = "".join(line["generated"] + "\n" for line in lines)
    assert streamed == escape_controls(written, keep="\n\t")  # may contain control characters
    with pytest.raises(UsageError, match="leave one out"):
        run(str(path), "a", "--stream", "--json")
