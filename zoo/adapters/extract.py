"""The difference of two models as a LoRA adapter of the first one."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from zoo.adapted_models.registry import adapter_settings
from zoo.adapted_models.targets import AdaptableModel, Site, list_names
from zoo.adapted_models.write import base_record, write_adapter
from zoo.adapters.lora import LoRA
from zoo.checkpoint import AdapterRecord, Checkpoint
from zoo.errors import UsageError
from zoo.inference.load_model import load_model
from zoo.io.paths import readable_name
from zoo.io.sizes import size_problem
from zoo.io.tensors.finite import require_finite
from zoo.nn.layers.skip_init import init_empty_weights


@dataclass(frozen=True)
class ExtractReport:
    """What an extracted adapter holds of the difference, in relative Frobenius norms."""

    path: Path
    rank: int
    matrices: int  # number of matrices with an update
    error: float  # share of the matrices' difference that the updates do not have
    outside: float  # share of the full difference that is in other tensors
    left: list[str]  # other tensors that differ
    largest_error: float  # largest error of a matrix
    largest_in: str  # the matrix with the largest error
    error_of: dict[str, float]  # matrix on the Hub -> its error

    def to_dict(self) -> dict[str, Any]:
        """Return the report for JSON."""
        return {**vars(self), "path": str(self.path)}


@torch.no_grad()
def extract(
    reference: str,
    base: Checkpoint,
    tuned: Checkpoint,
    path: Path,
    *,
    rank: int,
    targets: tuple[str, ...],
    force: bool = False,
) -> ExtractReport:
    """Write the difference of two models as an adapter of the first.

    The best approximation of a matrix by one of rank r is its singular value decomposition with
    the r largest singular values (Eckart and Young 1936, Psychometrika 1).
    """
    if base.family.name != tuned.family.name:
        raise UsageError(
            f"{base.path} is of the family {base.family.name}, and {tuned.path} of "
            f"{tuned.family.name}",
            "give two models of one family",
        )
    family = tuned.family
    config = tuned.config
    head = tuned.head_name
    with init_empty_weights():
        empty = family.model(config, head)
    adaptable = AdaptableModel.from_model(empty, family, config, head)
    largest = max(min(site.entry.shape) for site in adaptable.sites)
    problem = size_problem("--rank", rank, largest, least=1)
    if problem is not None:
        raise UsageError(f"{problem}: no matrix of {tuned.path} has a larger rank")
    method = LoRA(rank=rank, alpha=float(rank), target_modules=targets).resolved(adaptable)
    base_weights, tuned_weights = _load_weights(base, tuned)
    tensors = dict[str, Tensor]()
    errors = dict[str, float]()
    # Squared Frobenius norms of what changed: in the matrices, in other tensors of the base, and
    # the part of the matrices' difference that the updates lose.
    matrix_squares = dict[str, float]()
    other_squares = dict[str, float]()
    lost_square = 0.0
    for site in adaptable.find_sites(list_names(method.target_modules)):
        name = f"{site.module}.weight"
        difference = tuned_weights[name] - base_weights[name]
        matrix_squares[name] = float(difference.square().sum())
        for number, part in site.parts.items():
            part_difference = difference[part.rows.start : part.rows.stop]
            remainder = _add_update(tensors, site, number, part_difference, rank)
            norm = float(part_difference.norm())
            errors[part.name] = float(remainder.norm()) / norm if norm else 0.0
            lost_square += float(remainder.square().sum())
    for name, tensor in base_weights.items():
        if name not in matrix_squares and not torch.equal(tuned_weights[name], tensor):
            other_squares[name] = float((tuned_weights[name] - tensor).square().sum())
    for name, tensor in tuned_weights.items():
        if name not in base_weights:
            tensors[name] = tensor.float()
    matrix_square = sum(matrix_squares.values())
    other_square = sum(other_squares.values())
    error = _norm_ratio(lost_square, matrix_square)
    worst = max(errors, key=errors.__getitem__)
    write_adapter(
        path,
        tuned.model,
        tensors,
        AdapterRecord(adapter_settings(method), base_record(reference, base)),
        sources=[base.path, tuned.path],
        force=force,
        modules=tuned.module_weights(),
        training={"extracted_from": readable_name(tuned.path), "relative_error": error},
    )
    return ExtractReport(
        path=path,
        rank=rank,
        matrices=len(errors),
        error=error,
        outside=_norm_ratio(other_square, matrix_square + other_square),
        left=sorted(other_squares),
        largest_error=errors[worst],
        largest_in=worst,
        error_of=errors,
    )


def _load_weights(
    base: Checkpoint, tuned: Checkpoint
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the weights of both models by their names in the tuned one, in float64."""
    tuned_weights = {}
    for name, tensor in load_model(tuned).state_dict().items():
        tuned_weights[name] = tensor.double()
    base_weights = {}
    places = base.sources_in(tuned.config, tuned.head_name)
    for name, tensor in load_model(base).state_dict().items():
        if name in places:
            base_weights[places[name]] = tensor.double()
    _require_same_shapes(base, tuned, base_weights, tuned_weights)
    for checkpoint, weights in ((base, base_weights), (tuned, tuned_weights)):
        require_finite(weights, checkpoint.path, "give a model whose weights are finite")
    return base_weights, tuned_weights


def _add_update(
    tensors: dict[str, Tensor], site: Site, number: str, difference: Tensor, rank: int
) -> Tensor:
    """Add the update of a matrix to the tensors of an adapter; return what it does not have."""
    u, s, v = torch.linalg.svd(difference, full_matrices=False)
    count = min(rank, len(s))
    root = s[:count].sqrt()
    a = difference.new_zeros(rank, v.shape[1])
    b = difference.new_zeros(len(u), rank)
    a[:count] = root[:, None] * v[:count]
    b[:, :count] = u[:, :count] * root
    prefix = f"{site.module}.adapter"
    tensors[f"{prefix}.lora_A.{number}"] = a.float()
    tensors[f"{prefix}.lora_B.{number}"] = b.float()
    return difference - b @ a


def _require_same_shapes(
    base: Checkpoint,
    tuned: Checkpoint,
    base_weights: Mapping[str, Tensor],
    tuned_weights: Mapping[str, Tensor],
) -> None:
    for name, tensor in base_weights.items():
        if name in tuned_weights and tuned_weights[name].shape != tensor.shape:
            raise UsageError(
                f"{name} is of shape {tuple(tensor.shape)} in {base.path}, and of "
                f"{tuple(tuned_weights[name].shape)} in {tuned.path}",
                "give a model and one that was trained from it",
            )


def _norm_ratio(part_square: float, full_square: float) -> float:
    return math.sqrt(part_square / full_square) if full_square else 0.0
