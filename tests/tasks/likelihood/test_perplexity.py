"""Perplexity and pseudo-perplexity, against the reference's losses."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.evaluation.conftest import Small
from zoo.api import Model
from zoo.errors import UsageError
from zoo.inference.scoring import CausalScorer, ScoredRow
from zoo.inference.task_warnings import TaskWarning
from zoo.tasks import make_evaluation
from zoo.tasks.likelihood.perplexity import split_row

TEXT = "a b c on the mat. a dog ran to the cat. " * 6


@pytest.mark.parametrize("stride", [None, 7, 63])
def test_windows_equal_the_references_sliding_windows(
    causal: tuple[Model, Any, Any], tmp_path: Path, stride: int | None
) -> None:
    model, reference, tokenizer = causal
    file = tmp_path / "text.txt"
    file.write_text(f"{TEXT}\n\na dog\n")
    options = {} if stride is None else {"stride": stride}
    task = make_evaluation("perplexity", model.checkpoint, model.session, **options)
    result = task.evaluate([file])
    total, count, width = 0.0, 0, 64
    for text in (TEXT.strip(), "a dog"):
        ids = torch.tensor([tokenizer.eos_token_id, *tokenizer(text)["input_ids"]])
        scored = 0  # the number of tokens that windows so far have predicted
        for start in range(0, len(ids), stride or width // 2):
            window = ids[start : start + width]
            last = start + len(window) - 1
            if last <= scored:
                break
            with torch.inference_mode():
                log_probs = reference(window[None]).logits[0].double().log_softmax(-1)
            for target in range(scored + 1, last + 1):
                total -= float(log_probs[target - 1 - start, ids[target]])
                count += 1
            scored = last
    assert result.metrics["tokens"] == count
    assert result.metrics["loss"] == pytest.approx(total / count, rel=1e-5)
    assert result.metrics["perplexity"] == pytest.approx(math.exp(total / count), rel=1e-4)
    size = len(TEXT.strip()) + len("a dog")
    assert result.metrics["bits_per_byte"] == pytest.approx(total / math.log(2) / size, rel=1e-5)


@given(st.integers(2, 50), st.integers(2, 20), st.data())
def test_windows_score_every_token_once(tokens: int, width: int, data: st.DataObject) -> None:
    stride = data.draw(st.integers(1, width - 1))
    ids = np.arange(tokens)
    row = ScoredRow(ids, (), np.arange(tokens - 1), ids[1:], 0)
    windows = list(split_row(row, width, stride))
    assert np.concatenate([w.labels for w in windows]).tolist() == list(range(1, tokens))
    for window in windows:
        assert len(window.ids) <= width
        # ids count up, so that each position predicts the number after it
        assert (window.ids[window.positions] + 1).tolist() == window.labels.tolist()


def test_pseudo_perplexity_is_over_the_tokens_of_all_lines(small: Small, tmp_path: Path) -> None:
    model, _ = small("BertForMaskedLM")
    (tmp_path / "text.txt").write_text("a b c\nab c\n\nb\n")
    task: Any = make_evaluation("pseudo-perplexity", model.checkpoint, model.session)
    result = task.evaluate([tmp_path / "text.txt"])
    scores = task.scorer.score(
        task.scorer.tokenizer.encode(["a b c", "ab c", "b"], max_tokens=None)
    )
    loss = -sum(score.log_prob for score in scores) / 7  # ab is two tokens
    assert result.metrics["loss"] == pytest.approx(loss)
    assert result.metrics["tokens"] == 7
    assert result.metrics["texts"] == 3


def test_a_model_of_another_kind_is_refused(small: Small) -> None:
    model, _ = small("BertForMaskedLM")
    with pytest.raises(UsageError, match=r"the head masked-lm, .*--task pseudo-perplexity"):
        make_evaluation("perplexity", model.checkpoint, model.session)


def test_the_counterpart_for_a_causal_model_is_named(causal: tuple[Model, Any, Any]) -> None:
    model, _, _ = causal
    with pytest.raises(UsageError, match=r"the head causal-lm, .*--task perplexity is its"):
        make_evaluation("pseudo-perplexity", model.checkpoint, model.session)


def test_a_stride_as_long_as_a_window_is_refused(causal: tuple[Model, Any, Any]) -> None:
    model, _, _ = causal
    with pytest.raises(UsageError, match="the stride is 64, and a window has 64 tokens"):
        make_evaluation("perplexity", model.checkpoint, model.session, stride=64)


def test_bytes_are_counted_where_no_text_is_cut(small: Small, tmp_path: Path) -> None:
    model, _ = small("BertForMaskedLM")
    task, file = (
        make_evaluation("pseudo-perplexity", model.checkpoint, model.session),
        tmp_path / "text.txt",
    )
    file.write_text("a b c")
    assert "bits_per_byte" in task.evaluate([file]).metrics
    file.write_text("a b c " * 40)
    with pytest.warns(TaskWarning, match="1 of 1 texts was longer than 40 tokens and was cut"):
        metrics = task.evaluate([file]).metrics
    assert metrics["truncated"] == 1
    assert metrics["truncated_tokens"] > 0 and "bits_per_byte" not in metrics


def test_a_model_without_a_preference_predicts_one_token() -> None:
    """Equal logits do not make every label the most likely token."""
    scorer = object.__new__(CausalScorer)
    log_probs, likely = scorer.log_probs(np.zeros((4, 4)), np.arange(4))
    assert log_probs.tolist() == pytest.approx([-math.log(4)] * 4)
    assert likely.tolist() == [True, False, False, False]
