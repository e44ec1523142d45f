"""Texts that quantized graphs are compared on, and models that read none."""

from pathlib import Path
from typing import Any

import pytest

from tests.exporting.conftest import with_tokenizer
from tests.exporting.making import export_onnx
from tests.inference.making import make_checkpoint
from zoo.errors import UsageError
from zoo.exporting.quantization.plan import Quantization, QuantizationPlan
from zoo.exporting.quantization.texts import MAX_TEXTS, read_texts, why_no_texts
from zoo.plugins import get_family


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """A file with blank lines before its texts."""
    file = tmp_path / "texts.txt"
    file.write_text("\n" * (MAX_TEXTS + 44) + "\n \n".join(f"text {n}" for n in range(300)))
    return file


def test_blank_lines_do_not_count(texts: Path) -> None:
    assert read_texts(texts) == [f"text {number}" for number in range(MAX_TEXTS)]


@pytest.mark.parametrize(
    ("option", "static", "remedy"),
    [("eval", False, "leave it out"), ("calibration", True, "--int8 without static")],
)
def test_texts_need_a_tokenizer(
    texts: Path, tmp_path: Path, option: str, static: bool, remedy: str
) -> None:
    checkpoint = make_checkpoint(tmp_path / "model", num_layers=1)
    files: dict[str, Any] = {f"{option}_file": texts}
    plan = QuantizationPlan([Quantization("int8", static=static)], **files)
    with pytest.raises(UsageError, match=rf"--{option} .*has no tokenizer; {remedy}"):
        export_onnx(checkpoint, tmp_path / "export", quantization=plan)


def test_a_head_of_several_texts_a_row(texts: Path, tmp_path: Path) -> None:
    checkpoint = with_tokenizer(tmp_path, "multiple-choice")
    with pytest.raises(
        UsageError, match=r"--eval .*: the head multiple-choice reads several texts"
    ):
        QuantizationPlan([Quantization("int8")], eval_file=texts).check(checkpoint, "float32", None)


@pytest.mark.long
def test_logits_of_tokens_are_not_scores_of_texts(tmp_path: Path) -> None:
    """The first of the random rows, which the report names, has a single token."""
    head, family = "replaced-token-detection", get_family("electra")
    checkpoint = make_checkpoint(tmp_path / "model", head, family=family, num_layers=1)
    plan = QuantizationPlan([Quantization("int8")], max_drop=1.0)
    report = export_onnx(checkpoint, tmp_path / "export", quantization=plan)
    measured = report.quantized["int8"].agreement
    assert measured.measure == "argmax" and measured.correlation is None
    assert why_no_texts(checkpoint) is not None
    assert measured.line().endswith(f"of {measured.texts} rows of random tokens")
