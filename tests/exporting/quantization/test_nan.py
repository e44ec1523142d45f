"""Quantized graphs that return NaN are not published, whatever is compared."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from tests.exporting.conftest import with_tokenizer
from tests.exporting.making import ListedLayers, export_onnx
from tests.inference.making import write_manifest
from zoo.checkpoint import WEIGHTS, load_checkpoint, load_text_tokenizer
from zoo.errors import NonFiniteError, VerificationError
from zoo.exporting.quantization.agreement import Summary, agreement
from zoo.exporting.quantization.plan import Quantization, QuantizationPlan
from zoo.exporting.quantization.search import DropError, select_quantized_layers
from zoo.exporting.report import Agreement
from zoo.families.onnx import OnnxSpec

BATCH = {"input_ids": ("batch", "tokens")}
SPECS = {
    "cosine": OnnxSpec(BATCH, {"last_hidden_state": ("batch", "tokens", 4)}),
    "argmax": OnnxSpec(BATCH, {"logits": ("batch", 4)}),
    "perplexity": OnnxSpec(BATCH, {"logits": ("batch", "tokens", 4)}),
    "correlation": OnnxSpec(BATCH, {"logits": ("batch", 1)}),
}


def summary(measure: str, *, finite: bool = True) -> Summary:
    """Return the summary of two texts; argmax, scores and targets are equal, finite or not."""
    vectors = np.arange(8.0).reshape(2, 4) + (0 if finite else np.nan)
    scores = np.array([1.0, 2.0]) if measure == "correlation" else np.empty(0)
    log_probs = np.array([-1.0, -2.0]) if measure == "perplexity" else np.empty(0)
    return Summary(vectors, np.zeros(2, np.int64), scores, log_probs, finite)


@pytest.mark.parametrize("measure", SPECS)
def test_an_output_that_is_not_finite_is_an_infinite_drop(measure: str) -> None:
    spec, good, bad = SPECS[measure], summary(measure), summary(measure, finite=False)
    same = agreement([good], [good], spec)
    assert same.measure == measure and abs(same.drop) < 1e-12
    assert agreement([good, good], [good, bad], spec).drop == np.inf
    with pytest.raises(NonFiniteError, match="in float32 returned NaN"):
        agreement([good, bad], [good, bad], spec)


@pytest.mark.parametrize("values", [(0.5, np.nan), (np.nan, 0.5), (np.nan, np.nan)])
def test_a_metric_that_is_nan_is_an_infinite_drop(values: tuple[float, float]) -> None:
    compared = Agreement(texts=2, measure="argmax", drop=0.0, cosine=1.0)
    assert compared.with_metric("pearson", *values).drop == np.inf
    assert compared.with_metric("pearson", 0.0, 0.0).drop == 0


@pytest.mark.parametrize("drop", [np.inf, np.nan])
def test_no_limit_accepts_nan(drop: float) -> None:
    def broken(folder: Path) -> Agreement:
        return Agreement(texts=1, measure="argmax", drop=drop, cosine=np.nan, argmax=1.0)

    with pytest.raises(DropError, match="makes outputs NaN or infinite"):
        select_quantized_layers(ListedLayers("bc"), broken, broken, np.inf, "int8")


@pytest.mark.long
def test_a_text_whose_outputs_are_nan_ends_the_export(tmp_path: Path) -> None:
    """Random tokens of the first gate miss a row of the embeddings that a text reads."""
    checkpoint = with_tokenizer(tmp_path, "sequence-classification", unused_rows=50_000)
    texts = tmp_path / "texts.txt"
    texts.write_text("the [SEP] the\n")
    ids = load_text_tokenizer(checkpoint).encode(["the"], max_tokens=None, offsets=False)[0].ids
    weights = load_file(checkpoint.path / WEIGHTS)
    weights["embeddings.tokens.weight"][ids[1]] = np.nan
    save_file(weights, checkpoint.path / WEIGHTS)
    write_manifest(checkpoint.path)
    plan = QuantizationPlan([Quantization("int8")], max_drop=1.0, eval_file=texts)
    with pytest.raises(VerificationError, match="NaN"):
        export_onnx(load_checkpoint(checkpoint.path), tmp_path / "export", quantization=plan)
    assert not (tmp_path / "export").exists()
