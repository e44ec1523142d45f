from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tests.inference.making import make_checkpoint, write_manifest
from zoo.checkpoint import Checkpoint, load_checkpoint
from zoo.errors import SourceError, VerificationError
from zoo.inference.load_model import load_model, stored_dtype
from zoo.io.digests.files import hash_file
from zoo_bert import Bert

FLOATS = [torch.float32, torch.float16, torch.bfloat16]


class Tied(nn.Module):
    """A model with a tied module and two computed buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.embeddings = nn.Embedding(12, 4)
        self.decoder = nn.Linear(4, 12)
        self.decoder.weight = self.embeddings.weight
        self.register_buffer("places", torch.arange(7), persistent=False)
        self.register_buffer("decay", torch.linspace(1, 0.25, 4), persistent=False)

    def forward(self, input_ids: Tensor) -> dict[str, Tensor]:
        return {"logits": self.decoder(self.embeddings(input_ids) * self.get_buffer("decay"))}


class TiedFamily(Bert):
    def model(self, config: Any, head: str) -> nn.Module:
        return Tied()


def tied_checkpoint(path: Path) -> Checkpoint:
    make_checkpoint(path)
    random = torch.Generator().manual_seed(0)
    stored = {
        "embeddings.weight": torch.randn(12, 4, generator=random),
        "decoder.bias": torch.randn(12, generator=random),
    }
    save_file(stored, path / "model.safetensors")
    write_manifest(path)
    return replace(load_checkpoint(path), family=TiedFamily())


@pytest.mark.parametrize("head", Bert().heads())
def test_every_parameter_is_the_stored_one(tmp_path: Path, head: str) -> None:
    checkpoint = make_checkpoint(tmp_path / "model", head)
    model = load_model(checkpoint)
    stored = load_file(checkpoint.path / "model.safetensors")
    loaded = model.state_dict()
    assert loaded.keys() == stored.keys()
    assert [name for name in stored if not torch.equal(loaded[name], stored[name])] == []
    tensors = [*model.named_parameters(), *model.named_buffers()]
    assert [name for name, tensor in tensors if tensor.is_meta] == []
    assert not model.training
    assert [name for name, weight in model.named_parameters() if weight.requires_grad] == []


def test_building_draws_no_random_numbers(tmp_path: Path) -> None:
    checkpoint = tied_checkpoint(tmp_path / "model")
    before = torch.random.get_rng_state()
    load_model(checkpoint)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("stored", FLOATS)
@pytest.mark.parametrize("wanted", [None, torch.float32, torch.float64])
def test_dtypes(tmp_path: Path, stored: torch.dtype, wanted: torch.dtype | None) -> None:
    checkpoint = make_checkpoint(tmp_path / "model", dtype=stored)
    assert stored_dtype(checkpoint) == stored
    model = load_model(checkpoint, wanted)
    assert {parameter.dtype for parameter in model.parameters()} == {wanted or stored}
    on_disk = load_file(checkpoint.path / "model.safetensors")["layers.0.ffn.up.weight"]
    assert torch.equal(model.get_parameter("layers.0.ffn.up.weight"), on_disk.to(wanted or stored))


def test_writing_to_a_parameter_leaves_the_file_alone(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "model")
    path = checkpoint.path / "model.safetensors"
    before = hash_file(path)
    model = load_model(checkpoint)
    for parameter in model.parameters():
        parameter.zero_()
    assert hash_file(path) == before
    assert load_model(checkpoint).get_parameter("embeddings.tokens.weight").any()


def test_ties_survive_as_one_object(tmp_path: Path) -> None:
    model = load_model(tied_checkpoint(tmp_path / "model"))
    assert isinstance(model, Tied)
    assert model.decoder.weight is model.embeddings.weight
    assert model.decoder.weight.data_ptr() == model.embeddings.weight.data_ptr()
    assert len(list(model.parameters())) == 2
    model.embeddings.weight.fill_(2.0)
    assert (model.decoder.weight == 2.0).all()


def test_buffers_that_are_not_stored_are_computed(tmp_path: Path) -> None:
    model = load_model(tied_checkpoint(tmp_path / "model"), torch.float64)
    assert torch.equal(model.get_buffer("places"), torch.arange(7))
    assert torch.equal(model.get_buffer("decay"), torch.linspace(1, 0.25, 4).double())
    assert model(torch.tensor([[1, 2]]))["logits"].dtype == torch.float64


def missing(tensors: dict[str, Tensor]) -> None:
    del tensors["layers.1.ffn.up.bias"]


def extra(tensors: dict[str, Tensor]) -> None:
    tensors["layers.2.ffn.up.bias"] = torch.zeros(96)


def misshaped(tensors: dict[str, Tensor]) -> None:
    tensors["layers.1.ffn.up.bias"] = torch.zeros(95)


@pytest.mark.parametrize(
    "change, message",
    [
        (missing, "layers.1.ffn.up.bias missing"),
        (extra, "layers.2.ffn.up.bias not the model's"),
        (misshaped, "layers.1.ffn.up.bias of a different shape"),
    ],
)
def test_other_weights_are_refused(
    tmp_path: Path, change: Callable[[dict[str, Tensor]], None], message: str
) -> None:
    checkpoint = make_checkpoint(tmp_path / "model")
    path = checkpoint.path / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    change(tensors)
    save_file(tensors, path)
    with pytest.raises(VerificationError, match=message) as caught:
        load_model(checkpoint)
    assert "\n" not in str(caught.value)


def test_both_ends_of_a_tie_are_refused(tmp_path: Path) -> None:
    checkpoint = tied_checkpoint(tmp_path / "model")
    path = checkpoint.path / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    save_file({**tensors, "decoder.weight": torch.zeros(12, 4)}, path)
    with pytest.raises(VerificationError, match=r"decoder\.weight stored twice"):
        load_model(checkpoint)


def test_shards_are_read(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "model")
    path = checkpoint.path / "model.safetensors"
    whole = load_model(checkpoint).state_dict()
    tensors = list(load_file(path).items())
    parts = {"a.safetensors": dict(tensors[:5]), "b.safetensors": dict(tensors[5:])}
    for name, part in parts.items():
        save_file({n: t.clone() for n, t in part.items()}, checkpoint.path / name)
    index = {tensor: name for name, part in parts.items() for tensor in part}
    text = str({"weight_map": index}).replace("'", '"')
    (checkpoint.path / "model.safetensors.index.json").write_text(text)
    path.unlink()
    write_manifest(checkpoint.path)
    loaded = load_model(load_checkpoint(checkpoint.path)).state_dict()
    assert [name for name in whole if not torch.equal(loaded[name], whole[name])] == []


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "model")
    path = checkpoint.path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-64])
    with pytest.raises(VerificationError, match="not a sound safetensors file"):
        load_model(checkpoint)


def test_a_missing_file_is_a_missing_source(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "model")
    (checkpoint.path / "model.safetensors").unlink()
    with pytest.raises(SourceError, match=r"model\.safetensors"):
        load_model(checkpoint)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_flipped_bit_is_refused(tmp_path: Path, name: str) -> None:
    checkpoint = make_checkpoint(tmp_path / "model")
    content = bytearray((checkpoint.path / name).read_bytes())
    content[-2] ^= 1
    (checkpoint.path / name).write_bytes(content)
    with pytest.raises(VerificationError, match=f"{name} is not the file that .*zoo.json"):
        load_model(checkpoint)
