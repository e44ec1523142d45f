"""The task answer, against the formula of the question-answering pipeline of transformers 4.

Windows, words and logits of the reference are those of transformers' own tokenizers and models.
"""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from click.testing import CliRunner
from numpy.typing import NDArray

from tests.checkpoints import Make
from tests.inference.conftest import Small
from tests.tasks.causal_lm.making import LONGEST, MakeSource, source
from tests.tasks.question_answering.making import Answers, add, assert_same, characters, words
from tests.tasks.question_answering.making import soft as soft
from zoo.api import Model
from zoo.checkpoint import load_checkpoint
from zoo.cli.inference.run import command
from zoo.errors import UsageError
from zoo.exporting.session import open_session
from zoo.families.span_beams import SpanBeams
from zoo.inference.processing.windows import ContextWindows, Window
from zoo.tasks.question_answering.spans import Span, SpanSearch, best_spans

__all__ = ["source"]
LIMIT = 40  # position embeddings of the tiny models


CASES = [
    ("a b", words(4, 0)),
    ("who ab?", words(12, 1)),
    ("c", words(60, 2)),
    ("d e f g", words(150, 3)),
    ("", words(30, 4)),
]


def reference(
    folder: Path,
    architecture: str,
    pair: tuple[str, str],
    top_k: int,
    *,
    doc_stride: int,
    longest: int = 15,
    impossible: bool = False,
    limit: int = LIMIT,
) -> Answers:
    """Compute answers as ``QuestionAnsweringPipeline`` does: preprocess, forward, postprocess."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = getattr(transformers, architecture).from_pretrained(folder).eval()
    encoded = tokenizer(
        *pair,
        truncation="only_second",
        max_length=limit,
        stride=doc_stride,
        return_overflowing_tokens=True,
    )
    answers: Answers = []
    lowest = 1e6
    for k, ids in enumerate(encoded["input_ids"]):
        types = encoded["token_type_ids"][k] if "token_type_ids" in encoded else [0] * len(ids)
        inputs = {"input_ids": torch.tensor([ids])}
        if architecture.startswith("Bert"):
            inputs["token_type_ids"] = torch.tensor([types])
        with torch.inference_mode():
            output = model(**inputs)
        allowed = np.array([text == 1 for text in encoded.sequence_ids(k)])
        allowed |= np.array(ids) == tokenizer.cls_token_id
        start, end = (
            masked_softmax(output[name][0].double().numpy(), allowed)
            for name in ("start_logits", "end_logits")
        )
        lowest = min(lowest, start[0] * end[0])
        start[0] = end[0] = 0.0
        scores = np.tril(np.triu(np.outer(start, end)), longest - 1).ravel()
        for index in np.argsort(-scores, kind="stable")[: 2 * top_k + 10]:
            first, last = np.unravel_index(index, (len(ids), len(ids)))
            if scores[index] > 0:
                begin, stop = characters(encoded, k, int(first), int(last))
                add(answers, pair[1][begin:stop], float(scores[index]), begin, stop)
    if impossible:
        answers.append({"answer": "", "score": lowest, "start": 0, "end": 0})
    return sorted(answers, key=lambda answer: answer["score"], reverse=True)[:top_k]


def masked_softmax(logits: NDArray[np.float64], allowed: NDArray[np.bool_]) -> NDArray[np.float64]:
    powers: NDArray[np.float64] = np.exp(np.where(allowed, logits - logits[allowed].max(), -1e4))
    powers /= powers.sum()
    return powers


@pytest.mark.by_default("5-True")
@pytest.mark.parametrize("impossible", [False, True])
@pytest.mark.parametrize("top_k", [1, 5])
def test_answers_are_those_of_the_pipeline(
    soft: tuple[Model, Path], top_k: int, impossible: bool
) -> None:
    model, folder = soft
    results = model.answer(
        CASES, top_k=top_k, doc_stride=8, handle_impossible_answer=impossible, max_answer_len=6
    )
    for pair, result in zip(CASES, results, strict=True):
        expected = reference(
            folder,
            "BertForQuestionAnswering",
            pair,
            top_k,
            doc_stride=8,
            longest=6,
            impossible=impossible,
        )
        assert (result["question"], result["context"]) == pair
        assert_same(result["predictions"] if top_k > 1 else [result], expected)
        assert result["answer"] == pair[1][result["start"] : result["end"]]
        assert "truncated" not in result


def test_an_answer_in_two_windows_has_the_sum_of_its_scores(soft: tuple[Model, Path]) -> None:
    model, folder = soft
    context = "a b c " * 30
    (result,) = model.answer([("d", context)], doc_stride=16, top_k=3)
    expected = reference(folder, "BertForQuestionAnswering", ("d", context), 3, doc_stride=16)
    assert_same(result["predictions"], expected)


def test_a_family_without_a_token_for_no_answer(source: MakeSource) -> None:
    checkpoint = load_checkpoint(source("GPT2ForQuestionAnswering"))
    model = Model(checkpoint, open_session(checkpoint, "cpu"))
    pairs = [("the cat?", "a dog ran to the mat. the cat sat on it."), ("who", "a cat " * 60)]
    folder = checkpoint.path.parent / "hub"
    results = model.answer(pairs, top_k=3, handle_impossible_answer=True, doc_stride=4)
    for pair, result in zip(pairs, results, strict=True):
        expected = reference(
            folder,
            "GPT2ForQuestionAnswering",
            pair,
            3,
            doc_stride=4,
            impossible=True,
            limit=LONGEST,
        )
        assert_same(result["predictions"], expected)


@pytest.mark.long
def test_backends_agree(soft: tuple[Model, Path]) -> None:
    model, _ = soft
    onnx = Model(model.checkpoint, open_session(model.checkpoint, "onnx"))
    results = [m.answer(CASES, top_k=3, doc_stride=8) for m in (model, onnx)]
    for torch_result, onnx_result in zip(*results, strict=True):
        assert_same(onnx_result["predictions"], torch_result["predictions"])


def test_a_context_without_tokens_has_no_answer(soft: tuple[Model, Path]) -> None:
    (result,) = soft[0].answer([("a", " ")])
    assert (result["answer"], result["start"], result["end"]) == ("", 0, 0)


def test_a_question_that_leaves_no_room_is_refused(soft: tuple[Model, Path]) -> None:
    model = soft[0]
    assert model.answer([("a " * 30, "b c")])[0]["answer"]  # one window takes all
    with pytest.raises(UsageError, match="text 2: the question has 33 tokens with special ones"):
        model.answer([("a", "b"), ("a " * 30, "b c " * 10)])
    with pytest.raises(UsageError, match="text 1 is one text, and answer takes pairs"):
        model.answer(["a"])  # type: ignore[list-item]
    with pytest.raises(UsageError, match="windows of 40 tokens cannot share 40"):
        model.answer([("a", "b")], doc_stride=40)


def run(*arguments: object) -> Any:
    return CliRunner().invoke(command, ["answer", *map(str, arguments)])


def test_json_lines_of_questions(soft: tuple[Model, Path], tmp_path: Path) -> None:
    model, _ = soft
    lines = [{"id": k, "question": q, "context": c} for k, (q, c) in enumerate(CASES)]
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    printed = run(model.checkpoint.path, "--input", path, "--doc-stride", 8)
    results = [json.loads(line) for line in printed.output.splitlines()]
    assert [result.pop("id") for result in results] == list(range(len(CASES)))
    assert results == model.answer(CASES, doc_stride=8)
    question, context = CASES[1]
    (result,) = json.loads(run(model.checkpoint.path, question, context, "--json").output)[
        "results"
    ]
    assert result == model.answer([(question, context)])[0]


def test_input_without_pairs_is_refused(soft: tuple[Model, Path], tmp_path: Path) -> None:
    path = soft[0].checkpoint.path
    (tmp_path / "texts.txt").write_text("a\nb\n")
    (tmp_path / "texts.jsonl").write_text('{"question": "a"}\n')
    for arguments, message in [
        (("a",), "1 texts are not pairs; give a question and a context, one after another"),
        (("--input", tmp_path / "texts.txt"), "texts.txt holds plain text, and pairs are needed"),
        (("--input", tmp_path / "texts.jsonl"), "texts.jsonl:1 has no context"),
    ]:
        failed = run(path, *arguments)
        assert isinstance(failed.exception, UsageError)
        assert message in str(failed.exception)


def test_other_heads_are_refused(hub_checkpoint: Make, small: Small) -> None:
    model, _ = small("BertModel")
    with pytest.raises(UsageError, match="and not answer; train the head question-answering by"):
        model.answer([("a", "b")])


def window_of_context_first() -> Window:
    """Return a window of three tokens of a context, a question, and a token for no answer."""
    ids, texts = [11, 12, 13, 4, 21, 22, 4, 3], [0, 0, 0, None, 1, 1, None, None]
    pair: Any = SimpleNamespace(ids=ids, type_ids=[0] * 8, sequence_ids=texts)
    windows = ContextWindows(max_tokens=8, stride=1, context_first=True)
    assert windows.texts("question", "context") == ("context", "question")
    (window,) = windows.split(pair)
    return window


def test_a_context_before_its_question() -> None:
    """Windows cut the context; probabilities are over its tokens and the last token."""
    window = window_of_context_first()
    assert window.part == range(3) and window.ids == [11, 12, 13, 4, 21, 22, 4, 3]
    logits = np.log([[5, 1, 1, 90, 90, 90, 90, 3], [1, 2, 5, 90, 90, 90, 90, 2]])
    best, no_answer = best_spans(logits, window, 3, count=2, max_tokens=9)
    assert no_answer == pytest.approx(0.3 * 0.2)
    assert [(span.start, span.end) for span in best] == [(0, 2), (0, 1)]
    assert [span.score for span in best] == pytest.approx([0.5 * 0.5, 0.5 * 0.2])
    *_, last = ContextWindows(max_tokens=7, stride=1, context_first=True).split(window.pair)
    assert last.ids == [12, 13, 4, 21, 22, 4, 3]


def test_spans_of_a_head_that_searches_for_them() -> None:
    """Those that leave the context, are too long, go backwards or are missing are left out."""
    starts, ends = [2, 0, 1, 7, 2, 0, 0], [2, 1, 4, 7, 1, 2, 0]
    scores = [0.1, 0.3, 0.9, 0.9, 0.9, 0.9, 0.0]
    beams = SpanBeams(*map(np.array, ([starts], [ends], [scores], [-np.log(3.0)])))
    search = SpanSearch(3, max_answer_len=2)
    window_spans = search.beam_spans(beams, 0, window_of_context_first())
    assert window_spans.spans == [Span(0, 1, 0.3), Span(2, 2, 0.1)]
    assert window_spans.no_answer == pytest.approx(0.25)
    assert window_spans.null_logit == -np.log(3.0)
