"""The task score, against log_softmax of transformers' logits in float64."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from tests.evaluation.conftest import causal
from tests.tasks.causal_lm.making import LONGEST, MakeSource, source
from tests.tasks.seq2seq.making import hub
from zoo.api import Model
from zoo.checkpoint import load_checkpoint
from zoo.cli.inference.run import command
from zoo.conversion.convert import convert
from zoo.errors import UsageError
from zoo.exporting.session import open_session
from zoo.hub.source import CheckpointDir
from zoo.inference.task import TaskWarning

__all__ = ["causal", "hub", "source"]
Causal = tuple[Model, Any, Any]
TEXTS = ["the cat sat on the mat.", "a", "", "caf\u00e9 \U0001f600", "the cat " * 60]
PAIRS = [
    ("the cat", " sat on the mat."),
    ("the cat ", "sat"),  # the space belongs to the continuation
    ("", "a dog"),
    ("the ca", "t sat on the mat."),  # tokens differ from those of the context alone
    ("a dog ran to the " * 30, "mat."),  # loses its beginning
]


def log_probs(reference: Any, ids: list[int], scored: int) -> tuple[list[float], list[bool]]:
    """Return the log-probability of the last tokens, and whether each is the most likely one."""
    with torch.inference_mode():
        values = reference(torch.tensor([ids[:-1]])).logits[0].double().log_softmax(-1)
    labels = torch.tensor(ids[-scored:])
    values = values[-scored:]
    greedy = values.argmax(-1) == labels
    return values.gather(1, labels[:, None])[:, 0].tolist(), greedy.tolist()


def assert_scores(result: dict[str, Any], expected: list[float], greedy: list[bool]) -> None:
    assert [token["log_prob"] for token in result["tokens"]] == pytest.approx(expected, abs=1e-4)
    assert result["log_prob"] == pytest.approx(sum(expected), abs=1e-3)
    assert [token["greedy"] for token in result["tokens"]] == greedy
    assert result["greedy"] is all(greedy)


def test_texts_are_predicted_from_the_token_that_begins_documents(causal: Causal) -> None:
    model, reference, tokenizer = causal
    for text, result in zip(TEXTS, model.score(TEXTS), strict=True):
        ids = tokenizer(text)["input_ids"]
        expected: list[float] = []
        greedy: list[bool] = []
        for start in range(0, len(ids), LONGEST):  # windows of the model's length
            end = min(start + LONGEST, len(ids))
            window = [tokenizer.eos_token_id, *ids][max(end - LONGEST, 0) : end + 1]
            values, likely = log_probs(reference, window, end - start)
            expected += values
            greedy += likely
        assert result["text"] == text
        assert tokenizer.convert_tokens_to_ids([t["token"] for t in result["tokens"]]) == ids
        assert_scores(result, expected, greedy)


def test_continuations_follow_the_tokens_of_their_context(causal: Causal) -> None:
    model, reference, tokenizer = causal
    with pytest.warns(TaskWarning, match="was longer than 64 tokens and was cut"):
        results = model.score(PAIRS)
    for (context, continuation), result in zip(PAIRS, results, strict=True):
        before = context.rstrip()
        whole = tokenizer(context + continuation)["input_ids"]
        first = tokenizer(before)["input_ids"] if before else []
        after = whole[len(first) :]
        ids = [*(first or [tokenizer.eos_token_id]), *after]
        cut = max(0, len(ids) - (LONGEST + 1))
        expected = log_probs(reference, ids[cut:], len(after))
        assert (result["context"], result["continuation"]) == (context, continuation)
        assert result.get("truncated", 0) == cut
        assert_scores(result, *expected)
    assert results[-1]["truncated"] > 0


@pytest.mark.long
def test_targets_are_scored_given_their_source(hub: Path, tmp_path: Path) -> None:
    import transformers

    convert(CheckpointDir(hub, "test"), tmp_path / "ours")
    checkpoint = load_checkpoint(tmp_path / "ours")
    reference: Any = transformers.T5ForConditionalGeneration.from_pretrained(hub)
    reference.eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(hub)
    pairs = [("The cat sat.", "A dog ran to the house"), ("Why?", "a"), ("", "the cat sat on")]
    model = Model(checkpoint, open_session(checkpoint, "cpu"))
    for (text, target), result in zip(pairs, model.score(pairs), strict=True):
        labels = tokenizer(target, add_special_tokens=False, return_tensors="pt")["input_ids"]
        inputs = tokenizer(text, return_tensors="pt")
        with torch.inference_mode():
            logits = reference(**inputs, labels=labels).logits[0].double()
        values = logits.log_softmax(-1).gather(1, labels[0][:, None])[:, 0]
        assert_scores(result, values.tolist(), (logits.argmax(-1) == labels[0]).tolist())
    onnx = Model(checkpoint, open_session(checkpoint, "onnx"))
    for first, second in zip(model.score(pairs), onnx.score(pairs), strict=True):
        assert first["log_prob"] == pytest.approx(second["log_prob"], abs=1e-3)
    with pytest.raises(UsageError, match="text 1 has no context, which an encoder-decoder"):
        model.score(["a"])


@pytest.mark.long
def test_backends_agree(causal: Causal) -> None:
    model, _, _ = causal
    onnx = Model(model.checkpoint, open_session(model.checkpoint, "onnx"))
    for first, second in zip(model.score(TEXTS), onnx.score(TEXTS), strict=True):
        assert first["log_prob"] == pytest.approx(second["log_prob"], abs=1e-3)
        assert first["greedy"] == second["greedy"]


def test_a_continuation_without_tokens_is_refused(causal: Causal) -> None:
    with pytest.raises(UsageError, match="text 2: the continuation has no tokens of its own"):
        causal[0].score([("a", "b"), ("a dog", "")])


def run(*arguments: object) -> Any:
    return CliRunner().invoke(command, ["score", *map(str, arguments)])


def results(printed: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in printed.splitlines()]


def test_texts_and_continuations_on_the_command_line(causal: Causal, tmp_path: Path) -> None:
    model, _, _ = causal
    path = model.checkpoint.path
    assert results(run(path, "a dog", "the cat").output) == model.score(["a dog", "the cat"])
    expected = model.score([("the cat", " sat"), ("the cat", " ran")])
    assert results(run(path, "--context", "the cat", " sat", " ran").output) == expected
    lines = [
        {"id": 1, "context": "the cat", "continuation": " sat"},
        {"id": 2, "text": "a dog"},
    ]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    first, second = results(run(path, "--input", tmp_path / "in.jsonl").output)
    assert first == {"id": 1, **expected[0]} and second["id"] == 2
    assert second["log_prob"] == pytest.approx(model.score(["a dog"])[0]["log_prob"])
    failed = run(path, "--context", "a", "--input", tmp_path / "in.jsonl")
    assert "in.jsonl:1 has a context of its own; leave out --context" in str(failed.exception)


def test_a_model_that_predicts_no_tokens_is_refused(source: MakeSource) -> None:
    checkpoint = load_checkpoint(source("GPT2Model"))
    with pytest.raises(UsageError, match="and not score; convert the source with --head causal-lm"):
        Model(checkpoint, open_session(checkpoint, "cpu")).score(["a"])
