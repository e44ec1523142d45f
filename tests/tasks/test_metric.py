"""The metric of a table that a quantized model is compared by, where users select it."""

from pathlib import Path
from typing import Any

import pytest

import zoo
from tests.tasks.seq2seq.making import TASK, pairs
from tests.tasks.seq2seq.making import model as model
from tests.tasks.seq2seq.making import t5_hub as t5_hub
from zoo.checkpoint import load_checkpoint
from zoo.errors import UsageError
from zoo.exporting.report import Agreement
from zoo.tasks.metric import task_metric

COLUMNS = {"text": "in", "label": "out"}


@pytest.mark.long  # tests/tasks/ordinal_regression compares the metric of a table
@pytest.mark.parametrize("request_", ["ter", "chrf:word_order=2"])
def test_an_export_compares_the_selected_metric(request_: str, model: Path, tmp_path: Path) -> None:
    """Both values are those of ``zoo.evaluate`` on the checkpoint and on the quantized graph."""
    table = pairs(tmp_path / "t.tsv", 12)
    export: Any = zoo.export(
        model,
        int8=True,
        eval=table,
        text="in",
        label="out",
        metric=request_,
        max_drop=1.0,
        output=tmp_path / "graph",
    )
    agreement = export.report.quantized["int8"].agreement
    name = request_.partition(":")[0]
    values = []
    for reference, dtype in ((model, None), (tmp_path / "graph", "int8")):
        result = zoo.evaluate(
            reference,
            task=TASK,
            eval=table,
            text="in",
            label="out",
            metric=[request_],
            record=False,
            backend="cpu" if dtype is None else "onnx",
            dtype=dtype,
        )
        values.append(result.metrics[name])
    assert agreement.measure == name
    assert [agreement.reference_metric, agreement.metric] == pytest.approx(values)


@pytest.mark.parametrize(
    ("name", "value", "drop"),
    [("chrf", 30.0, 0.25), ("chrf", 50.0, 0.0), ("ter", 50.0, 0.25), ("ter", 30.0, 0.0)],
)
def test_a_drop_is_a_loss_on_the_side_that_is_worse(name: str, value: float, drop: float) -> None:
    agreement = Agreement(texts=1, measure="cosine", drop=0.0)
    assert agreement.with_metric(name, 40.0, value).drop == drop


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ("blue", "seq2seq has no metric 'blue' to select; did you mean bleu"),
        ("accuracy", "accuracy is not selected: the tasks that have it always report it"),
        ("bleu:tokenize=x", "the metric bleu: tokenize is 'x'; it may be 13a, intl, zh"),
    ],
)
def test_a_wrong_metric_is_refused_before_weights_are_read(
    request_: str, message: str, model: Path, tmp_path: Path
) -> None:
    table = pairs(tmp_path / "t.tsv", 4)
    with pytest.raises(UsageError, match=message):
        task_metric(load_checkpoint(model), table, COLUMNS, request_)


def test_a_metric_needs_a_table(model: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("a\nb\n")
    with pytest.raises(UsageError, match="--metric is of a table; give --eval a file such as"):
        zoo.export(
            model, int8=True, eval=tmp_path / "texts.txt", metric="bleu", output=tmp_path / "graph"
        )
