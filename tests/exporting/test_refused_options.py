"""Options of an export that a model cannot have are refused before torch is imported."""

from pathlib import Path

import pytest

from tests import cold
from tests.exporting.conftest import with_tokenizer
from tests.once import written_once
from zoo.sentence_models import hub_pooling_files
from zoo.sentence_models.pooling import Pooling

HEAVY = {"torch", "onnx", "onnxruntime", "transformers"}


@pytest.fixture(scope="module")
def encoder() -> Path:
    """Directory of a sentence encoder whose embeddings have 64 numbers."""
    files = hub_pooling_files(Pooling(), 64)
    return written_once("plain-encoder", lambda path: with_tokenizer(path, "none", files)) / "model"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--pooled --dim 9999", "cannot be cut at 9999 numbers; the model's embeddings have 64"),
        ("--dim 8", "--dim cuts the embeddings of a pooled graph; add --pooled"),
        ("--opset 3", "opset 3 is not supported; give 18 to 22"),
        ("--block-size 64", "--block-size is for quantized models"),
        ("--calibration texts.txt", "--calibration is for quantized models"),
        ("--int8 static", "static scales need texts; give --calibration FILE"),
        ("--int8 static --calibration none.txt", "cannot read none.txt: there is no such file"),
        ("--int8 --eval empty.txt", "empty.txt has no texts"),
        ("--int8 --dtype float16", "copies are made of a graph in float32"),
        ("--int4", "int4 is for models that generate text"),
        ("--adapter-inputs", "--adapter-inputs needs a model with an adapter; give --adapter DIR"),
        ("--max-drop 0.1", "--max-drop is for quantized models"),
        ("--to ctranslate2 --dtype int8 --eval empty.txt", "empty.txt has no texts"),
        ("--to openvino --eval texts.txt", "--eval is for quantized models"),
    ],
)
def test_options_are_judged_before_torch_is_imported(
    encoder: Path, tmp_path: Path, options: str, message: str
) -> None:
    (tmp_path / "empty.txt").write_text("\n")
    (tmp_path / "texts.txt").write_text("a text\n")
    words = ["export", encoder, *options.split(), "-o", "graph"]
    done = cold.zoo_again(*words, cwd=tmp_path)
    assert done.returncode in (2, 4)
    assert message in " ".join(done.stderr.split())
    assert not done.modules & HEAVY
    assert not (tmp_path / "graph").exists()
