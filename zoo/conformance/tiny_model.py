"""The tiny model that the checks of a family share, and the errors that they raise."""

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
import torch
from torch import Tensor, nn

from zoo.errors import UsageError, VerificationError
from zoo.exporting.graph.trace import Example
from zoo.families.base import Family
from zoo.families.random_inputs import random_inputs, randomize_weights
from zoo.nn.layers.skip_init import SkipInit

LENGTHS = (7, 3, 1)  # tokens of the rows of a batch: odd, padded, and a single token
TOLERANCE = 1e-12  # of differences in float64 between two ways to the same result
VOCABULARY = 1000  # tokens of the models of checks that do not train


class NotApplicable(UsageError):
    """A check that has nothing to check, which the tests show as skipped."""


def smaller(config: Any) -> Any:
    """Return a configuration whose checks are quick, with dropout for the check of it."""
    values = msgspec.structs.asdict(config)
    changes: dict[str, Any] = {}
    token_ids = [0]
    for name, value in values.items():
        if name.endswith("_id") and isinstance(value, int):
            token_ids.append(value)
        if name.endswith("dropout") and (value is None or isinstance(value, float)):
            # Without dropout, its use in evaluation would go unnoticed.
            changes[name] = value or 0.1
    if "vocab_size" in values:
        smallest = max(VOCABULARY, *token_ids) + 1
        changes["vocab_size"] = min(values["vocab_size"], smallest)
    return msgspec.structs.replace(config, **changes)


def require(condition: object, message: str) -> None:
    """Raise an error if a condition is false."""
    if not condition:
        raise VerificationError(message)


def largest_difference(first: Tensor, second: Tensor) -> float:
    """Return the largest absolute difference of the elements of two tensors."""
    return float((first - second).abs().max())


def require_finite(outputs: Mapping[str, Tensor], label: str) -> None:
    """Check that all outputs are finite."""
    for name, tensor in outputs.items():
        require(tensor.isfinite().all(), f"{name} is not finite {label}")


class TinyModel:
    """Models and inputs of a family's size ``tiny``."""

    family: ClassVar[Family]

    @property
    def config(self) -> Any:
        """The configuration of the models that are built; a subclass may have another."""
        return self.family.sizes()["tiny"]

    def model(self, head: str, dtype: torch.dtype = torch.float64) -> nn.Module:
        """Return a model in evaluation mode with random weights."""
        with SkipInit():
            model = self.family.model(self.config, head).to(dtype).eval()
        randomize_weights(model)
        return model

    def _require_reference(self, head: str) -> None:
        if not self.family.has_reference(self.config, head):
            raise UsageError(f"no reference has {self.family.name} with head {head}")

    def _require_recipe(self) -> None:
        try:
            self.family.recipe("tiny")
        except UsageError as error:
            raise NotApplicable(f"no recipe: {error}") from error

    def inputs(self, head: str, **options: Any) -> dict[str, Tensor]:
        """Return a batch of three rows of different lengths; see ``random_inputs``."""
        return random_inputs(self.family.onnx(self.config, head), self.config, LENGTHS, **options)

    def run(self, model: nn.Module, inputs: Example) -> dict[str, Tensor]:
        """Run a model without gradients."""
        with torch.no_grad():
            return model(**inputs)  # type: ignore[no-any-return]
