"""Memory of ``zoo eval`` and of evaluations of fine-tuning, which is constant in the samples."""

import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoints import Make
from tests.evaluation.conftest import Small
from tests.inference.conftest import converted
from tests.processes import run_limited
from tests.reporting import record
from tests.tasks.seq2seq.making import hub as hub  # fixture of ``seq2seq_path``
from tests.tasks.seq2seq.making import path as seq2seq_path
from zoo.api import Model
from zoo.checkpoint import load_checkpoint
from zoo.data.readers.labelled import Columns, Sample, iter_samples
from zoo.inference import load_session
from zoo.tasks import make_evaluation
from zoo.tasks.question_answering.data import QuestionSample, read_questions
from zoo.tasks.seq2seq import evaluate as generated
from zoo.tasks.seq2seq.data import TextToText

__all__ = ["hub", "seq2seq_path"]

MEGABYTE = 1 << 20
FEW, MANY = 4_000, 50_000
SLACK = 50  # MB
SLACK_OF_CHUNKS = 100  # MB; the longest chunks of texts are among the later ones
SLACK_OF_TOKENS = (
    110  # MB; rows are tokenized once, and their tokens are held; their batches are not
)
NAMES = {"id2label": {0: "x", 1: "y"}, "label2id": {"x": 0, "y": 1}}


class CountingSession:
    """A session that counts the samples in memory at each forward pass.

    Args:
        session: the session that computes.
        kind: type of the samples.
    """

    def __init__(self, session: Any, kind: type = Sample) -> None:
        self.session, self.kind, self.counts = session, kind, list[int]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)

    def run(self, *args: Any) -> Any:
        gc.collect()
        self.counts.append(sum(isinstance(item, self.kind) for item in gc.get_objects()))
        return self.session.run(*args)

    run_attended = run


def lines(count: int) -> Iterator[str]:
    for number in range(count):
        yield " ".join([f"the cat sat on mat {number} and ran away"] * (1 + number % 3))


def labelled_lines(path: Path, count: int) -> Path:
    rows = (f"{line}\t{'xy'[k % 2]}" for k, line in enumerate(lines(count)))
    path.write_text("\n".join(["text\tlabel", *rows]) + "\n")
    return path


@pytest.mark.long
def test_samples_are_dropped_after_their_predictions(small: Small, tmp_path: Path) -> None:
    model, _ = small("BertForSequenceClassification", **NAMES)
    table = labelled_lines(tmp_path / "t.tsv", 400)
    assert len(list(iter_samples([table], Columns()))) == 400
    counting: Any = CountingSession(model.session)
    task: Any = make_evaluation("text-classification", model.checkpoint, counting)
    task.task.chunk_size = 20
    result = task.evaluate([table])
    assert result.metrics["samples"] == 400 and len(counting.counts) >= 20
    assert max(counting.counts) <= 2
    evaluation = make_evaluation("text-classification", model.checkpoint, model.session)
    # Texts of another chunk share its forward passes, which round in another order.
    assert result.metrics == pytest.approx(evaluation.evaluate([table]).metrics, abs=1e-6)


def test_sources_and_targets_are_dropped_after_their_predictions(
    seq2seq_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = load_checkpoint(seq2seq_path)
    table = labelled_lines(tmp_path / "t.tsv", 200)
    counting: Any = CountingSession(load_session(checkpoint, "cpu"), TextToText)
    options: dict[str, Any] = {"max_new_tokens": 1}
    whole = make_evaluation("seq2seq", checkpoint, counting.session, **options).evaluate([table])
    monkeypatch.setattr(generated, "TEXTS_AT_ONCE", 20)
    task: Any = make_evaluation("seq2seq", checkpoint, counting, **options)
    assert task.evaluate([table]) == whole and whole.metrics["samples"] == 200
    assert counting.counts and max(counting.counts) <= 21


def squad_file(path: Path, articles: int, text: str) -> Path:
    """Write articles with four questions about a text, of which the last has no answer."""
    words = text.split()
    answers = [[{"text": words[k], "answer_start": text.index(words[k])}] for k in range(3)]
    qas = [
        {"id": str(k), "question": f"what is {k}?", "answers": spans, "is_impossible": not spans}
        for k, spans in enumerate([*answers, []])
    ]
    article = {"paragraphs": [{"context": text, "qas": qas}]}
    path.write_text(json.dumps({"version": "2.0", "data": [article] * articles}))
    return path


@pytest.mark.long
def test_questions_are_dropped_after_their_predictions(small: Small, tmp_path: Path) -> None:
    model, _ = small("BertForQuestionAnswering")
    data = squad_file(tmp_path / "t.json", 30, next(lines(1)))
    assert len(read_questions([data])) == 120
    counting: Any = CountingSession(model.session, QuestionSample)
    task: Any = make_evaluation("question-answering", model.checkpoint, counting)
    task.task.chunk_size = 8
    result = task.evaluate([data])
    assert result.metrics["questions"] == 120 and len(counting.counts) >= 10
    assert max(counting.counts) <= 10
    few = make_evaluation("question-answering", model.checkpoint, model.session, limit=40)
    expected = few.evaluate([data])
    for name in ("exact_match", "f1", "has_answer_f1", "no_answer_f1"):
        assert result.metrics[name] == pytest.approx(expected.metrics[name])


def assert_constant_memory(commands: dict[int, list[Any]], slack: int = SLACK) -> None:
    """Run a command on few and on many samples, and compare the peaks of their memory."""
    peaks = {}
    for count, command in commands.items():
        ended = run_limited(command, seconds=1800)
        assert ended.returncode == 0, ended.stderr
        peaks[count] = ended.peak_bytes // MEGABYTE
    failed = peaks[MANY] > peaks[FEW] + slack
    measured = f"peak {peaks[MANY]} MB, and {peaks[FEW]} MB for {FEW:,}"
    record("many-samples", cases=MANY, failures=int(failed), measured=measured)
    assert not failed, measured


@pytest.mark.long
def test_fifty_thousand_labelled_texts_take_the_memory_of_a_few(
    small: Small, tmp_path: Path
) -> None:
    model, _ = small("BertForSequenceClassification", **NAMES)
    common = ["zoo", "eval", model.checkpoint.path, "--task", "text-classification", "--eval"]
    assert_constant_memory(
        {n: [*common, labelled_lines(tmp_path / f"{n}.tsv", n)] for n in (FEW, MANY)}
    )


@pytest.mark.long
def test_perplexity_of_fifty_thousand_documents_takes_the_memory_of_a_few(
    causal: tuple[Model, Any, Any], tmp_path: Path
) -> None:
    commands = {}
    for count in (FEW, MANY):
        file = tmp_path / f"{count}.txt"
        file.write_text("\n\n".join(lines(count)))
        path = causal[0].checkpoint.path
        commands[count] = ["zoo", "eval", path, "--task", "perplexity", "--eval", file]
    assert_constant_memory(commands, SLACK_OF_CHUNKS)


@pytest.mark.long
def test_fine_tuning_evaluates_fifty_thousand_rows_in_the_memory_of_a_few(
    hub_checkpoint: Make, tmp_path: Path
) -> None:
    path = converted(hub_checkpoint("BertModel"), tmp_path / "model").path
    train = labelled_lines(tmp_path / "train.tsv", 64)
    common = ["zoo", "finetune", path, "--task", "text-classification", "--train", train]
    common += ["--set", "max_steps=1", "--set", "batch_size=64"]
    assert_constant_memory(
        {
            n: [
                *common,
                "--eval",
                labelled_lines(tmp_path / f"{n}.tsv", n),
                "-o",
                tmp_path / f"{n}",
            ]
            for n in (FEW, MANY)
        },
        SLACK_OF_TOKENS,
    )
