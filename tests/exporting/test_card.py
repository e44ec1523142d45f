"""What the metadata of an export's model card says of languages and results."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from huggingface_hub import ModelCard, ModelCardData

from tests.checkpoints import Make, hub_checkpoint
from tests.exporting.targets.making import teacher
from zoo.checkpoint import Checkpoint, load_checkpoint
from zoo.checkpoint.records import EvaluationRecord
from zoo.conversion.convert import convert
from zoo.exporting.gate import export_model
from zoo.exporting.quantization.plan import QuantizationPlan
from zoo.exporting.targets import BUILT_IN, find_target
from zoo.exporting.targets.base import ExportSettings
from zoo.hub.source import CheckpointDir
from zoo.inference.session import Session
from zoo.io.digests.files import FileDigest

__all__ = ["hub_checkpoint"]
CARD = "---\nlanguage:\n- de\n- gsw\n- No such language\nlicense: mit\n---\n"
# Tests of the snippets export to ONNX; OpenVINO's files are made of the same graph.
SLOW = ("onnx", "openvino")
TARGETS = [pytest.param(name, marks=pytest.mark.long if name in SLOW else ()) for name in BUILT_IN]
RESULT = EvaluationRecord(
    task="similarity",
    data={"sick.tsv": FileDigest(1, "0")},
    metrics={"spearman": 0.75, "pairs": 40.0},
    backend="cpu",
    dtype="float32",
)


class Spearman:
    """A metric on labelled data."""

    def measure(self, session: Session, limit: int | None = None) -> tuple[str, float]:
        """Return a value for torch, and another one for a runtime."""
        return "spearman", 0.75 if session.backend == "cpu" else 0.7


@pytest.fixture
def evaluated(hub_checkpoint: Make, tmp_path: Path) -> Checkpoint:
    """An encoder whose card states languages, with the result of an evaluation."""
    source = teacher(hub_checkpoint)
    (source / "README.md").write_text(CARD)
    convert(CheckpointDir(source, "source"), tmp_path / "model")
    checkpoint = load_checkpoint(tmp_path / "model")
    manifest = msgspec.structs.replace(checkpoint.manifest, evaluations=[RESULT])
    return replace(checkpoint, manifest=manifest)


def export(checkpoint: Checkpoint, target: str, folder: Path, **settings: Any) -> ModelCardData:
    """Export a model, without a runtime that is not installed, and read the card's metadata."""
    accepted: dict[str, Any] = {"unverified": True, "allow_tokenizer_differences": True}
    plan = QuantizationPlan(max_drop=1.0, metric=settings.pop("metric", None))
    options = ExportSettings(quantization=plan, **accepted, **settings)
    export_model(find_target(target), checkpoint, folder, options)
    data: ModelCardData = ModelCard.load(folder / "README.md").data
    return data


@pytest.mark.by_default("ctranslate2")
@pytest.mark.parametrize("target", TARGETS)
def test_the_metadata_has_languages_and_results(
    target: str, evaluated: Checkpoint, tmp_path: Path
) -> None:
    data = export(evaluated, target, tmp_path / "export")
    assert (data.language, data.license) == (["de", "gsw"], "mit")
    assert load_checkpoint(tmp_path / "export").manifest.languages == ["de", "gsw"]
    text = (tmp_path / "export" / "README.md").read_text()
    if target == "static":  # It is another model.
        assert data.eval_results is None and "## Evaluation" not in text
        return
    (result,) = data.eval_results or []
    assert (result.task_type, result.dataset_name) == ("feature-extraction", "sick.tsv")
    assert (result.metric_type, result.metric_value) == ("spearman", 0.75)
    assert "similarity on sick.tsv (cpu, float32):" in text and "| pairs | 40 |" in text


def test_results_of_quantized_files_are_their_own(evaluated: Checkpoint, tmp_path: Path) -> None:
    quantized = {"precision": "int8"}
    data = export(evaluated, "ctranslate2", tmp_path / "plain", **quantized)
    assert data.eval_results is None
    data = export(evaluated, "ctranslate2", tmp_path / "measured", metric=Spearman(), **quantized)
    (result,) = data.eval_results or []
    assert (result.metric_type, result.metric_value) == ("spearman", 0.7)
    assert "(ctranslate2, int8):" in (tmp_path / "measured" / "README.md").read_text()
