"""Copies of tensors for checkpoints of FSDP; those of DTensors are tested by whole runs."""

import math

import pytest
import torch

from zoo.training.state.shard_stager import ShardStager
from zoo.training.trainer import all_finite


def test_copies_keep_their_memory_and_not_the_tensors() -> None:
    tensors = {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(1, dtype=torch.int64)}
    stager = ShardStager(on_gpu=False)
    first = stager.stage(tensors)
    tensors["a"] += 1
    assert first["a"].tolist() == [[0, 1, 2], [3, 4, 5]]
    pointers = {name: copy.data_ptr() for name, copy in first.items()}
    second = stager.stage({"a": tensors["a"].clone(), "b": torch.tensor([7])})
    assert second["a"].tolist() == [[1, 2, 3], [4, 5, 6]]
    assert second["b"].tolist() == [7]
    assert {name: copy.data_ptr() for name, copy in second.items()} == pointers
    stager.close()


@pytest.mark.parametrize(
    "changed",
    [
        {"a": torch.zeros(3)},
        {"a": torch.zeros(2, dtype=torch.float64)},
        {"a": torch.zeros(2), "b": torch.zeros(1)},
        {"b": torch.zeros(2)},
    ],
)
def test_other_tensors_have_new_copies(changed: dict[str, torch.Tensor]) -> None:
    stager = ShardStager(on_gpu=False)
    stager.stage({"a": torch.ones(2)})
    copies = stager.stage(changed)
    assert copies.keys() == changed.keys()
    for name, tensor in changed.items():
        torch.testing.assert_close(copies[name], tensor)
    stager.close()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_one_value_that_is_not_finite_is_noticed(value: float, dtype: torch.dtype) -> None:
    tensors = [torch.zeros(0), torch.randn(5), torch.ones(40, 50, dtype=dtype)]
    tensors[2][17, 23] = value
    parameters = [torch.nn.Parameter(tensor) for tensor in tensors]
    assert all_finite(parameters) == math.isfinite(value)
    assert all_finite([])
