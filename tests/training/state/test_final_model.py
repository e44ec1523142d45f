"""Final models of runs: weights that are not finite are not written."""

from pathlib import Path

import pytest
import torch

from tests.inference.making import make_checkpoint
from zoo.errors import VerificationError
from zoo.training.state.final_model import save_final_model


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_weights_that_diverged_in_the_last_steps(value: float, tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "base", num_layers=1)
    weights = {"embeddings.tokens.weight": torch.tensor([[1.0, value]])}
    modules = {"2_Dense.linear.weight": torch.tensor([[1.0, value]])}
    for broken, more in ((weights, {}), ({}, modules)):
        with pytest.raises(VerificationError, match="weight holds NaN or infinity; the last steps"):
            save_final_model(tmp_path / "model", checkpoint.model, None, broken, {}, more)
        assert not (tmp_path / "model").exists()
