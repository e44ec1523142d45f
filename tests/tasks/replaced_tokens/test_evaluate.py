"""Replaced tokens: the draws, and the area under the curve against the reference's logits."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.evaluation.conftest import Small
from zoo.errors import UsageError
from zoo.inference.scoring import ScoredRow
from zoo.tasks import make_evaluation
from zoo.tasks.replaced_tokens.evaluate import replace_tokens


def test_tokens_are_replaced_by_others_by_frequency() -> None:
    tokens, cumulative = np.array([3, 5, 9]), np.array([0.5, 0.75, 1.0])
    rng = np.random.default_rng(0)
    drawn: list[int] = []
    for _ in range(3000):
        ids = np.array([1, 9, 9, 9, 9, 2])
        row = ScoredRow(ids, (), np.arange(1, 5), ids[1:5].copy(), 0)
        replaced = replace_tokens(row, tokens, cumulative, 0.25, rng)
        assert replaced.sum() == 1
        assert ids[[0, 5]].tolist() == [1, 2]
        drawn += ids[1:5][replaced].tolist()
    # 9 itself is drawn again: 3 and 5 remain, in the proportion 2 to 1
    assert set(drawn) == {3, 5}
    assert drawn.count(3) / 3000 == pytest.approx(2 / 3, abs=0.03)


def test_the_area_is_that_of_the_references_logits(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import transformers

    model, path = small("ElectraForPreTraining")
    reference: Any = transformers.ElectraForPreTraining.from_pretrained(path)
    file = tmp_path / "text.txt"
    file.write_text("a b c ab a c c b a b " * 30 + "\n\n" + "c b a ab b " * 40)
    task: Any = make_evaluation("replaced-tokens", model.checkpoint, model.session, max_seq_len=18)
    rows: list[ScoredRow] = []

    def log(batch: Iterable[ScoredRow]) -> Any:  # the rows as the model reads them
        rows.extend(batch)
        return run(rows)

    run = task.scorer.run
    monkeypatch.setattr(task.scorer, "run", log)
    result = task.evaluate([file])
    logits, labels = [], []
    for row in rows:
        assert row.ids.shape == (18,)
        with torch.inference_mode():
            scores = reference(torch.from_numpy(row.ids)[None]).logits[0]
        logits.append(scores[row.positions].double().numpy())
        labels.append(row.ids[row.positions] != row.labels)
    positive = np.concatenate(logits)[np.concatenate(labels)]
    negative = np.concatenate(logits)[~np.concatenate(labels)]
    order = (positive[:, None] > negative).mean() + (positive[:, None] == negative).mean() / 2
    assert result.metrics["area_under_curve"] == pytest.approx(order, abs=1e-3)
    assert result.metrics["replaced"] == pytest.approx(2 / 16)  # a tenth of 16, rounded
    assert result.metrics["rows"] == 330 // 16 + 240 // 16  # ab is two tokens


def test_the_same_seed_gives_the_same_area(small: Small, tmp_path: Path) -> None:
    model, _ = small("ElectraForPreTraining")
    (tmp_path / "text.txt").write_text("a b c ab a c c b a b " * 30)

    def area(seed: int) -> float:
        options = {"max_seq_len": 18, "seed": seed}
        task = make_evaluation("replaced-tokens", model.checkpoint, model.session, **options)
        return task.evaluate([tmp_path / "text.txt"]).metrics["area_under_curve"]

    assert area(1) == area(1) != area(2)


def test_rows_that_do_not_fit_are_refused(small: Small, tmp_path: Path) -> None:
    model, _ = small("ElectraForPreTraining")
    with pytest.raises(UsageError, match="rows of 64 tokens are too long: the model takes 40"):
        make_evaluation("replaced-tokens", model.checkpoint, model.session)
    (tmp_path / "text.txt").write_text("a b")
    task = make_evaluation("replaced-tokens", model.checkpoint, model.session, max_seq_len=18)
    with pytest.raises(UsageError, match="fills a row of 18 tokens"):
        task.evaluate([tmp_path / "text.txt"])
    (tmp_path / "short.txt").write_text("a b c")
    task = make_evaluation("replaced-tokens", model.checkpoint, model.session, max_seq_len=3)
    with pytest.raises(UsageError, match="all of 3 tokens are replaced"):
        task.evaluate([tmp_path / "short.txt"])
