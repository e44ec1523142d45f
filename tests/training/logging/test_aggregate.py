"""Predictions of an evaluation, collected without keeping the tensors of its batches."""

import gc
from typing import Any

import pytest
import torch

from zoo.training.logging.aggregate import Predictions


@pytest.mark.parametrize(
    "dtype", [torch.int64, torch.int32, torch.float32, torch.bfloat16, torch.bool]
)
@pytest.mark.parametrize("shape", [(), (3,), (2, 4)])
def test_predictions_are_those_of_all_batches(dtype: Any, shape: tuple[int, ...]) -> None:
    batches = [(torch.randn(count, *shape) * 9).to(dtype) for count in (4, 0, 1, 7)]
    predictions = Predictions()
    for batch in batches:
        predictions.add({"values": batch, "turned": batch.flip(0)})
    found = predictions.tensors()
    assert torch.equal(found["values"], torch.cat(batches))
    assert torch.equal(found["turned"], torch.cat([batch.flip(0) for batch in batches]))
    assert found["values"].dtype == dtype


def test_predictions_of_no_row_keep_their_shape() -> None:
    predictions = Predictions()
    assert predictions.tensors() == {}
    predictions.add({"values": torch.zeros(0, 2, dtype=torch.int64)})
    assert predictions.tensors()["values"].shape == (0, 2)
    assert predictions.tensors()["values"].dtype == torch.int64


def test_no_tensor_of_a_batch_is_kept() -> None:
    def count() -> int:
        gc.collect()
        return sum(isinstance(item, torch.Tensor) for item in gc.get_objects())

    predictions = Predictions()
    predictions.add({"values": torch.arange(5)})
    before = count()
    for _ in range(50):
        predictions.add({"values": torch.arange(5)})
    assert count() == before
    assert len(predictions.tensors()["values"]) == 255
