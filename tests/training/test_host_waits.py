"""A training step on CUDA asks the device for no value: nothing in it depends on data.

Fake tensors have no values. An operation whose result the host would have to wait for, such as
``nonzero`` or ``item``, is an error with them. They are on the CPU, with the attention of CUDA.
"""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from tests.training.cases import dry
from tests.training.runs import small
from zoo.data.rng import generator
from zoo.nn import transformer
from zoo.nn.kernels import packed_attention
from zoo.nn.packed_attention import attach_offsets, document_offsets
from zoo.training.logging.aggregate import MetricSums
from zoo.training.loss_module import LossModule
from zoo.training.setup import pretrain_setup

pytestmark = pytest.mark.usefixtures("shared_home")


class HostTensors(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Collects tensors that are made of values of the host, whose copies are waited for."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.shapes: list[tuple[int, ...]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket is torch.ops.aten.lift_fresh:
            self.shapes.append(tuple(args[0].shape))
        return func(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def attention_of_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_attention, "supports_offsets", lambda x, document_ids: True)
    monkeypatch.setattr(packed_attention, "_by_document", packed_attention._flash)
    # What only a CPU selects.
    monkeypatch.setattr(transformer, "can_select_queries", lambda *args, **kwargs: False)


def make_fake(module: nn.Module, mode: FakeTensorMode) -> None:
    """Replace parameters and buffers by fake ones; tied ones stay tied."""
    for child in module.modules():
        for tensors in (child._parameters, child._buffers):
            for name, tensor in tensors.items():
                if tensor is not None:
                    tensors[name] = mode.from_tensor(tensor)


def step(family: str, *, attached: bool) -> list[tuple[int, ...]]:
    """Run a step on fake tensors; return the shapes of tensors that come from the host."""
    setup = pretrain_setup(dry(small(family)))
    dataset = setup.objective.dataset(setup.corpus.split("train"), seed=0)
    batch = setup.objective.collate([dataset.example(k, generator(0, k)) for k in range(4)])
    offsets = {}
    for name, tensor in batch.tensors.items():
        if attached and name.endswith("document_ids"):
            offsets[name] = document_offsets(tensor)
    module = LossModule(setup.objective, setup.objective.model(setup.family, setup.model_config))
    with FakeTensorMode() as mode:
        make_fake(module, mode)
        tensors: Mapping[str, Tensor] = {
            name: mode.from_tensor(tensor) for name, tensor in batch.tensors.items()
        }
        for name, values in offsets.items():
            attach_offsets(tensors[name], mode.from_tensor(values))
        with HostTensors() as host_tensors:
            output = module(tensors)
            MetricSums().add(output, batch.counts)
            torch.stack(list(output.sums.values())).sum().backward()  # type: ignore[no-untyped-call]
    shapes: list[tuple[int, ...]] = host_tensors.shapes
    return shapes


@pytest.mark.parametrize("family", ["bert", "gpt", "electra", "t5"])
def test_a_step_waits_for_no_value(family: str) -> None:
    shapes = step(family, attached=True)
    # The buckets of all distances in the encoder and the decoder, which are copied without a wait.
    assert shapes == ([(257,), (257,)] if family == "t5" else [])


def test_attached_offsets_count_until_the_ids_change() -> None:
    document_ids = torch.tensor([[1, 1, 2], [1, 0, 0]])
    assert document_offsets(document_ids).tolist() == [0, 2, 3, 4, 6]
    attach_offsets(document_ids, torch.tensor([0, 6], dtype=torch.int32))
    assert document_offsets(document_ids).tolist() == [0, 6]
    assert document_offsets(document_ids.clone()).tolist() == [0, 2, 3, 4, 6]
    document_ids[0, 1] = 2
    assert document_offsets(document_ids).tolist() == [0, 1, 3, 4, 6]


def test_offsets_that_are_not_attached_are_waited_for() -> None:
    with pytest.raises(DynamicOutputShapeException, match="nonzero"):
        step("bert", attached=False)


@pytest.mark.long
def test_compiled_code_finds_attached_offsets() -> None:
    class Model(nn.Module):
        def forward(self, tensors: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
            doubled = tensors["document_ids"] * 2
            return document_offsets(tensors["document_ids"]), doubled + 1

    model: Any = Model()
    model.compile(backend="eager")
    for length in (6, 6, 5):
        document_ids = torch.ones(1, length, dtype=torch.int64)
        offsets = torch.tensor([0, 2, length], dtype=torch.int32)
        attach_offsets(document_ids, offsets)
        assert model({"document_ids": document_ids})[0] is offsets
