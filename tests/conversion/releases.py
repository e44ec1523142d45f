"""First releases as their authors published them, and comparison with transformers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.torch import load_file

from zoo.checkpoint import load_checkpoint
from zoo.conformance.golden import Golden
from zoo.conversion.convert import convert
from zoo.conversion.report import ConversionReport
from zoo.hub.source import CheckpointDir

TESTS = Path(__file__).parents[1]
DATA = TESTS / "fixtures" / "releases"


def golden(name: str) -> Golden:
    return Golden.read(TESTS / "golden" / f"{name}.safetensors")


def published(path: Path, stem: str, config_file: str, config: dict[str, Any]) -> Path:
    path.mkdir()
    for file in DATA.glob(f"{stem}.*"):
        (path / file.name).write_bytes(file.read_bytes())
    (path / config_file).write_text(json.dumps(config))
    return path


def converted(source: Path, head: str | None = None) -> tuple[ConversionReport, Path]:
    target = source.parent / f"{source.name}-ours"
    return convert(CheckpointDir(source, str(source)), target, head=head), target


def assert_computes(path: Path, expected: Golden) -> None:
    """Compare the outputs with the golden file, to 1e-9 in float64."""
    checkpoint = load_checkpoint(path)
    model = checkpoint.family.model(checkpoint.config, checkpoint.head_name).double().eval()
    model.load_state_dict(load_file(path / "model.safetensors"))
    inputs = {name: torch.from_numpy(array) for name, array in expected.inputs.items()}
    with torch.no_grad():
        outputs = model(**inputs)
    assert outputs.keys() == expected.outputs.keys()
    for name, expected_output in expected.outputs.items():
        assert np.abs(outputs[name].numpy() - expected_output).max() <= 1e-9, name


def as_the_reference_has_it(path: Path, expected: Golden) -> Any:
    """Convert a checkpoint to the Hub's layout, and load it with transformers."""
    hub = path.parent / "hub"
    convert(CheckpointDir(path, str(path)), hub, to="hub")
    kind = getattr(transformers, expected.hub_config["architectures"][0])
    model, loading = kind.from_pretrained(hub, output_loading_info=True)
    assert {key: value for key, value in loading.items() if value} == {}
    return exact(model)


def exact(model: Any) -> Any:
    return model.double().eval()
