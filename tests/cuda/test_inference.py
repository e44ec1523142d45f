"""Inference on a CUDA device: embeddings, generation, and ONNX Runtime at the export gate."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

from benchmarks.generate import prompts, spread
from tests.exporting.making import export_onnx
from tests.inference.making import draw_batch, make_checkpoint
from zoo.exporting.graph.write import example_shape
from zoo.exporting.validate import compare, require_equal, run_reference
from zoo.inference import load_session
from zoo.inference.generation.config import GenerationConfig
from zoo.inference.generation.decoder import pad
from zoo.inference.generation.generate import generate
from zoo.inference.load_model import load_model
from zoo.plugins import get_family

pytestmark = pytest.mark.cuda
FLOAT32, BFLOAT16 = ("float32", 2e-5), ("bfloat16", 5e-2)
GENERATORS = [("gpt", "causal-lm", "left"), ("t5", "seq2seq-lm", "right")]


@pytest.mark.parametrize(("dtype", "bound"), [FLOAT32, BFLOAT16])
def test_hidden_states_of_a_session_are_those_of_a_cpu(
    dtype: str, bound: float, tmp_path: Path, device: torch.device
) -> None:
    checkpoint = make_checkpoint(tmp_path / "model")
    batch = draw_batch([20, 7, 13])
    expected = load_session(checkpoint, "cpu").run(batch)
    session = load_session(checkpoint, device.type, dtype=dtype)
    real = batch["attention_mask"] == 1
    for name, array in session.run(batch).items():
        reference = expected[name]
        chosen = slice(None) if name == "pooler_output" else real
        difference = np.abs(array[chosen] - reference[chosen]).max()
        assert difference < bound * np.abs(reference).max(), name


@pytest.mark.parametrize("num_beams", [1, 3])
@pytest.mark.parametrize(("name", "head", "side"), GENERATORS)
def test_the_same_tokens_are_generated(
    name: str, head: str, side: str, num_beams: int, device: torch.device
) -> None:
    family = get_family(name)
    config: Any = family.sizes()["tiny"]
    model: Any = family.model(config, head).eval().requires_grad_(False)
    spread(model)  # the best token is distinct at each step
    rows = prompts(3, 12, config.vocab_size)
    settings = GenerationConfig(max_new_tokens=10, num_beams=num_beams)
    results = [
        generate(model.to(place), pad(rows, side=side, pad_id=0, device=place), settings)
        for place in ("cpu", str(device))
    ]
    assert results[0] == results[1]
    assert len(results[0]) == len(rows)


@pytest.mark.parametrize("head", ["none", "masked-lm", "question-answering"])
def test_a_graph_passes_the_export_gate_on_the_cuda_provider(
    head: str, tmp_path: Path, device: torch.device
) -> None:
    available = onnxruntime.get_available_providers()
    if device.type == "cuda" and "CUDAExecutionProvider" not in available:
        pytest.skip("onnxruntime has no CUDA provider: install onnxruntime-gpu")
    checkpoint = make_checkpoint(tmp_path / "model", head, num_layers=1)
    report = export_onnx(checkpoint, tmp_path / "graph")
    spec = checkpoint.family.onnx(checkpoint.config, head)
    model = load_model(checkpoint, torch.float32)
    references = run_reference(model, spec, checkpoint.config, example_shape(spec))
    graph = tmp_path / "graph" / next(iter(report.graphs))
    checks = compare(references, graph, spec, device=str(device))
    require_equal(checks, spec.tolerance["float32"])
    assert len(checks) == len(report.checks) >= 3
