"""Exports to ONNX, as tests make them."""

from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.checkpoints import Make
from tests.inference.conftest import converted
from tests.tasks.reranker.making import TEXTS, late, sparse
from tests.tasks.sentence_embedding.making import modules_of, save
from zoo.api import load
from zoo.checkpoint import Checkpoint
from zoo.exporting.gate import export_model
from zoo.exporting.graph.report import OnnxReport
from zoo.exporting.quantization.plan import QuantizationPlan
from zoo.exporting.quantization.search import MixedPrecisionModel
from zoo.exporting.targets.base import ExportSettings
from zoo.exporting.targets.onnx import Onnx
from zoo.exporting.targets.onnx.options import OnnxOptions
from zoo.overrides import override


class ListedLayers(MixedPrecisionModel[str]):
    """A model of layers whose file lists those that are quantized."""

    def __init__(self, layers: Sequence[str]) -> None:
        self.layers = layers

    @override
    def write(self, directory: Path, quantized: Collection[str]) -> None:
        (directory / "layers").write_text("".join(quantized))

    @staticmethod
    def read(directory: Path) -> str:
        """Return the quantized layers of a written model."""
        return (directory / "layers").read_text()


class Divided(Onnx):
    """Graphs whose weights are in files of their own over a number of bytes."""

    def __init__(self, external_over: int) -> None:
        super().__init__()
        self._external_over = external_over

    @property
    @override
    def external_over(self) -> int:
        return self._external_over


def export_onnx(
    checkpoint: Checkpoint,
    directory: Path,
    *,
    dtype: str | None = None,
    force: bool = False,
    quantization: QuantizationPlan | None = None,
    adapters: Sequence[Checkpoint] = (),
    external_over: int | None = None,
    **options: Any,
) -> OnnxReport:
    """Export a checkpoint to ONNX.

    Args:
        checkpoint: a checkpoint with weights.
        directory: directory to write.
        dtype: precision of the graphs.
        force: replace an existing export.
        quantization: quantized copies to write.
        adapters: models whose adapters are inputs.
        external_over: number of bytes of weights that get a file of their own.
        **options: options of the target.
    """
    target = Onnx(OnnxOptions(**options)) if external_over is None else Divided(external_over)
    settings = ExportSettings(
        precision=dtype, force=force, quantization=quantization, adapters=adapters
    )
    report = export_model(target, checkpoint, directory, settings)
    assert isinstance(report, OnnxReport)
    return report


def model(kind: str, hub_checkpoint: Make, tmp_path: Path) -> Checkpoint:
    from sentence_transformers import CrossEncoder

    hub, make = tmp_path / "hub", partial(hub_checkpoint, num_hidden_layers=1)
    if kind == "dense":
        save(make("BertModel"), hub, modules_of("two dense"))
    elif kind == "cross-encoder":
        source = make("BertForSequenceClassification", num_labels=1)
        sigmoid = torch.nn.Sigmoid()
        CrossEncoder(str(source), activation_fn=sigmoid).save(str(hub), create_model_card=False)
    else:
        made = {"sparse": sparse, "late": late}[kind](make)
        made.save(str(hub), create_model_card=False)
    return converted(hub, tmp_path / "model")


def outputs(checkpoint: Checkpoint, kind: str, backend: Any) -> Any:
    loaded = load(str(checkpoint.path), backend=backend)
    if kind == "cross-encoder":
        return np.array([row["score"] for row in loaded.rerank("a b", TEXTS)])
    if kind == "late":
        return np.concatenate(loaded.encode_document(TEXTS))
    return loaded.encode_document(TEXTS)
