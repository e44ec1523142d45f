"""Golden files find what no other check does: models that agree with themselves, and are wrong."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

from tests.conformance.faults import Checks, Faults, Faulty, FaultyBert, rule, without_types
from zoo.conformance.golden import Golden
from zoo.conformance.hf_reference import keep_float64
from zoo.errors import VerificationError
from zoo.families.random_inputs import random_inputs, randomize_weights
from zoo.nn.positions import Rotary, Rotation
from zoo.weights import DeinterleaveQKV
from zoo_modernbert import ModernBert

BERT_FILE = Path(__file__).parents[1] / "golden" / "bert" / "none.safetensors"
HEADS = 2
SMALL: dict[str, Any] = {
    "vocab_size": 24,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "intermediate_size": 12,
    "max_position_embeddings": 20,
    "pad_token_id": 0,
} | dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 1)


class FaultyModern(Faulty, ModernBert):
    """Rotary positions, and a matrix of queries, keys and values on the Hub, with faults."""


@pytest.fixture
def modern_file(tmp_path: Path) -> Path:
    """A golden file of the reference library's model."""
    torch.manual_seed(0)
    reference: Any = transformers.ModernBertModel(transformers.ModernBertConfig(**SMALL))
    randomize_weights(reference)
    for parameter in reference.parameters():  # not the buffers: frequencies are in float32
        parameter.data = parameter.data.double()
    family, hub_config = ModernBert(), reference.config.to_dict()
    config = family.from_hub(hub_config).config
    inputs = random_inputs(family.onnx(config, "none"), config, (20, 9, 1))
    with torch.no_grad(), keep_float64():
        hidden = reference.eval()(**inputs).last_hidden_state
    golden = Golden(
        head="none",
        hub_config=hub_config,
        weights={name: tensor.numpy() for name, tensor in reference.state_dict().items()},
        inputs={name: tensor.numpy() for name, tensor in inputs.items()},
        outputs={"last_hidden_state": hidden.numpy()},
    )
    golden.write(tmp_path / "none.safetensors", f"transformers {transformers.__version__}")
    return tmp_path / "none.safetensors"


def turned(change: Callable[[Rotary], nn.Module]) -> Faults:
    """Return a fault: the rotations are changed."""

    def fault(model: Any) -> None:
        model.rotary = change(model.rotary)
        model.pattern.rotary = change(model.pattern.rotary)

    return Faults(model=fault)


class Opposite(Rotary):
    """Rotation in the opposite direction."""

    def forward(self, position_ids: Tensor) -> Rotation:
        rotation = super().forward(position_ids)
        return rotation._replace(sin=-rotation.sin)


QKV = "layers.{i}.attention.qkv.weight"
ROTARY_FAULTS = {
    "heads interleaved": Faults(
        weights=rule(QKV, op=DeinterleaveQKV(SMALL["num_attention_heads"]))
    ),
    "pairs of neighbours": turned(lambda r: Rotary(r.width, r.base, interleaved=True)),
    "another base": turned(lambda r: Rotary(r.width, r.base / 2)),
    "opposite direction": turned(lambda r: Opposite(r.width, r.base)),
    "no rotation": turned(lambda r: Rotary(0, r.base)),
}


@pytest.mark.parametrize("fault", ROTARY_FAULTS)
def test_order_of_heads_and_rotation(modern_file: Path, fault: str) -> None:
    Checks(FaultyModern(), Faults()).check_golden_file(modern_file)
    wrong = Checks(FaultyModern(), ROTARY_FAULTS[fault])
    wrong.check_rules_cover_parameters("tiny", "none")
    with pytest.raises(VerificationError, match="last_hidden_state differs by"):
        wrong.check_golden_file(modern_file)


QUERY_KEY_VALUE = tuple(
    f"bert.encoder.layer.{{i}}.attention.self.{name}.{{p}}" for name in ("key", "query", "value")
)
BERT_FAULTS = {
    "token types": Faults(model=without_types),
    "query and key": Faults(weights=rule("layers.{i}.attention.qkv.{p}", source=QUERY_KEY_VALUE)),
}


@pytest.mark.parametrize("fault", BERT_FAULTS)
def test_token_types_and_names(fault: str) -> None:
    Checks(FaultyBert(), Faults()).check_golden_file(BERT_FILE)
    with pytest.raises(VerificationError, match="last_hidden_state differs by"):
        Checks(FaultyBert(), BERT_FAULTS[fault]).check_golden_file(BERT_FILE)
