"""Tiny models with the keys of published configurations, compared with transformers."""

import json
from pathlib import Path

import pytest
import torch
import transformers
from _pytest.mark import ParameterSet
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.registry.configurations import Configuration, published_configurations
from zoo.checkpoint import load_checkpoint
from zoo.conformance.comparison import compare_models
from zoo.conformance.hf_reference import build_reference, saved_state
from zoo.conversion.convert import convert
from zoo.families.random_inputs import randomize_weights
from zoo.hub.registry import builtin
from zoo.hub.source import CheckpointDir

CONFIGURATIONS = published_configurations()
ROWS = {row.repo: row for row in builtin().values()}


def random_weights(configuration: Configuration) -> dict[str, Tensor]:
    """Return random tensors in float64, with the names and shapes of the reference library's."""
    model_class = getattr(transformers, configuration.class_name)
    config = model_class.config_class(**configuration.config, **configuration.reference)
    model = model_class(config).double()
    outputs = model.get_output_embeddings()
    untied = configuration.config.get("tie_word_embeddings") is False and outputs is not None
    tied = set(model.all_tied_weights_keys)  # files of the library leave them out
    if untied:
        table = torch.nn.Parameter(outputs.weight.clone())
        outputs.weight = table
        tied -= {name for name, tensor in model.named_parameters() if tensor is table}
    fixed = {  # such as sinusoidal positions
        name: parameter.detach().clone()
        for name, parameter in model.named_parameters()
        if not parameter.requires_grad
    }
    randomize_weights(model)
    for name, values in fixed.items():
        model.get_parameter(name).copy_(values)
    return {
        name: tensor.detach().contiguous()
        for name, tensor in saved_state(model).items()
        if name not in tied
    }


def cases() -> list[ParameterSet]:
    """Return one case for each model type in the default run, and all others as ``long``."""
    parameters = []
    seen: set[str] = set()
    for configuration in CONFIGURATIONS:
        model_type = str(configuration.config.get("model_type"))
        marks = [pytest.mark.long] if model_type in seen else []
        seen.add(model_type)
        name = configuration.checkpoints[0]
        parameters.append(pytest.param(configuration, marks=marks, id=name))
    return parameters


@pytest.mark.by_default(
    "google-bert/bert-base-uncased",
    "microsoft/deberta-v3-base",
    "google-t5/t5-small",
    "openai-community/gpt2",
    "HuggingFaceTB/SmolLM2-135M",
    "nomic-ai/nomic-embed-text-v1.5",
)
@pytest.mark.parametrize("configuration", cases())
def test_a_model_is_converted_there_and_back(configuration: Configuration, tmp_path: Path) -> None:
    weights = random_weights(configuration)
    source = tmp_path / "source"
    source.mkdir()
    save_file(weights, source / "model.safetensors")
    (source / "config.json").write_text(json.dumps(configuration.config))

    repository = configuration.checkpoints[0]
    converted = tmp_path / "converted"
    convert(CheckpointDir(source, repository, row=ROWS.get(repository)), converted)
    checkpoint = load_checkpoint(converted)
    family, config, head = checkpoint.family, checkpoint.config, checkpoint.head_name
    model = family.model(config, head).double()
    model.load_state_dict(load_file(converted / "model.safetensors"))
    hub = {**configuration.config, **configuration.reference}
    reference = build_reference(family, config, head, weights, hub)
    compared = compare_models(family, config, head, model, reference, tolerance=1e-9)
    assert max(difference.absolute for difference in compared.outputs.values()) <= 1e-9

    hub_layout = tmp_path / "hub"
    convert(CheckpointDir(converted, str(converted)), hub_layout, to="hub")
    written = load_file(hub_layout / "model.safetensors")
    assert written.keys() == weights.keys()
    for name, tensor in weights.items():
        assert torch.equal(written[name], tensor), name
