import shutil
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import onnx
import pytest

from tests.exporting.making import export_onnx
from tests.fuzz.readers.examples import bert_files
from tests.inference.making import make_checkpoint
from tests.once import written_once
from zoo.checkpoint import Checkpoint, load_checkpoint
from zoo.conversion.convert import convert
from zoo.exporting.graph.report import OnnxReport
from zoo.exporting.quantization.plan import Quantization, QuantizationPlan
from zoo.hub.source import CheckpointDir
from zoo.sentence_models import hub_pooling_files
from zoo.sentence_models.pooling import Pooling

REPORT = "report.json"
Exported = tuple[Checkpoint, Checkpoint, OnnxReport]


@pytest.fixture(scope="session")
def exported() -> Callable[[str], Exported]:
    """Return a cached function from a head to a checkpoint, its export and the report."""

    @cache
    def export(head: str) -> Exported:
        return exported_once(
            f"export-{head}", lambda path: make_checkpoint(path, head, num_layers=1)
        )

    return export


def exported_once(name: str, make: Callable[[Path], Checkpoint], **options: Any) -> Exported:
    """Return a checkpoint, its export and the report, made by the first worker that needs them.

    Args:
        name: name in the directory of the session.
        make: function that writes the checkpoint.
        **options: arguments of ``export_onnx``.
    """

    def write(folder: Path) -> None:
        report = export_onnx(make(folder / "model"), folder / "graph", **options)
        (folder / REPORT).write_bytes(msgspec.json.encode(report))

    folder = written_once(name, write)
    report = msgspec.json.decode((folder / REPORT).read_bytes(), type=OnnxReport)
    return load_checkpoint(folder / "model"), load_checkpoint(folder / "graph"), report


@pytest.fixture(scope="session")
def sentence_encoder() -> Checkpoint:
    """A small sentence encoder with a tokenizer."""
    settings = Pooling(
        normalize=True,
        max_tokens=9,
        prompts={"query": "a "},
        default_prompt_name="query",
        similarity_fn_name="dot",
        include_prompt=False,
    )
    pooling = hub_pooling_files(settings, 64)
    folder = written_once("sentence-encoder", lambda path: with_tokenizer(path, "none", pooling))
    return load_checkpoint(folder / "model")


@pytest.fixture(scope="session")
def int8_encoder(sentence_encoder: Checkpoint) -> Exported:
    """The sentence encoder, its export in float32 and int8, and the report."""

    def copy(path: Path) -> Checkpoint:
        return load_checkpoint(shutil.copytree(sentence_encoder.path, path))

    plan = QuantizationPlan([Quantization("int8")])
    return exported_once("export-int8", copy, quantization=plan)


def with_tokenizer(
    folder: Path, head: str, more: Mapping[str, str | bytes] = {}, *, unused_rows: int = 0
) -> Checkpoint:
    """Write a small model with a tokenizer, and with further files of the Hub's layout."""
    rows = bert_files()["vocab.txt"].count("\n") + unused_rows
    made = make_checkpoint(folder / "made", head, num_layers=1, vocab_size=rows)
    convert(CheckpointDir(made.path, "made"), folder / "hub", to="hub")
    for name, content in {**bert_files(), **more}.items():
        path = folder / "hub" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    convert(CheckpointDir(folder / "hub", "hub"), folder / "model")
    return load_checkpoint(folder / "model")


def dtypes(path: Path) -> dict[str, int]:
    """Return name -> ``onnx.TensorProto`` dtype of the inputs and outputs of a graph."""
    graph = onnx.load(path, load_external_data=False).graph
    return {v.name: v.type.tensor_type.elem_type for v in (*graph.input, *graph.output)}
