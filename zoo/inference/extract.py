"""The difference of two models as a LoRA adapter of the first one."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from zoo.adapters.lora import LoRA
from zoo.adapters.registry import adapter_settings
from zoo.adapters.targets import AdaptableModel, Site, list_names
from zoo.adapters.write import base_record, write_adapter
from zoo.checkpoint import AdapterRecord, Checkpoint
from zoo.errors import UsageError
from zoo.inference.load_model import load_model
from zoo.io.sizes import size_problem
from zoo.io.tensors.finite import require_finite
from zoo.nn.layers.skip_init import init_empty_weights


@dataclass(frozen=True)
class ExtractReport:
    """What an extracted adapter holds of the difference, in relative Frobenius norms."""

    path: Path
    rank: int
    matrices: int  # number of matrices with an update
    error: float  # part of the matrices' difference that the updates do not have
    outside: float  # part of the whole difference that is in other tensors
    left: list[str]  # other tensors that differ
    largest_error: float  # largest error of a matrix
    largest_in: str  # that matrix
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
    """Write the difference of two models as an adapter of the first."""
    # The best approximation of a matrix by one of rank r is its singular value decomposition with
    # the r largest singular values (Eckart and Young 1936, Psychometrika 1).
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
    after = {name: t.double() for name, t in load_model(tuned).state_dict().items()}
    places = base.sources_in(config, head)
    before = {
        places[name]: tensor.double()
        for name, tensor in load_model(base).state_dict().items()
        if name in places
    }
    _require_same_shapes(base, tuned, before, after)
    for checkpoint, weights in ((base, before), (tuned, after)):
        require_finite(weights, checkpoint.path, "give a model whose weights are finite")
    tensors = dict[str, Tensor]()
    errors = dict[str, float]()
    squares = dict[str, float]()
    lost = 0.0
    for site in adaptable.find_sites(list_names(method.target_modules)):
        name = f"{site.module}.weight"
        difference = after[name] - before[name]
        squares[name] = float(difference.square().sum())
        for number, part in site.parts.items():
            piece = difference[part.rows.start : part.rows.stop]
            rest = _add_update(tensors, site, number, piece, rank)
            norm = float(piece.norm())
            errors[part.name] = float(rest.norm()) / norm if norm else 0.0
            lost += float(rest.square().sum())
    changed = {
        name: float((after[name] - value).square().sum())
        for name, value in before.items()
        if name not in squares and not torch.equal(after[name], value)
    }
    own = {name: tensor.float() for name, tensor in after.items() if name not in before}
    inside = sum(squares.values())
    whole = inside + sum(changed.values())
    worst = max(errors, key=errors.__getitem__)
    write_adapter(
        path,
        tuned.model,
        {**tensors, **own},
        AdapterRecord(adapter_settings(method), base_record(reference, base)),
        sources=[base.path, tuned.path],
        force=force,
        modules=tuned.module_weights(),
        training={"extracted_from": str(tuned.path), "relative_error": _ratio(lost, inside)},
    )
    return ExtractReport(
        path,
        rank,
        len(errors),
        _ratio(lost, inside),
        _ratio(sum(changed.values()), whole),
        sorted(changed),
        errors[worst],
        worst,
        errors,
    )


def _add_update(
    tensors: dict[str, Tensor], site: Site, number: str, difference: Tensor, rank: int
) -> Tensor:
    """Add the update of a matrix to the tensors of an adapter; return what it does not have."""
    u, s, v = torch.linalg.svd(difference, full_matrices=False)
    kept = min(rank, len(s))
    root = s[:kept].sqrt()
    a = difference.new_zeros(rank, v.shape[1])
    b = difference.new_zeros(len(u), rank)
    a[:kept] = root[:, None] * v[:kept]
    b[:, :kept] = u[:, :kept] * root
    prefix = f"{site.module}.adapter"
    tensors[f"{prefix}.lora_A.{number}"] = a.float()
    tensors[f"{prefix}.lora_B.{number}"] = b.float()
    return difference - b @ a


def _require_same_shapes(
    base: Checkpoint, tuned: Checkpoint, before: Mapping[str, Tensor], after: Mapping[str, Tensor]
) -> None:
    for name, tensor in before.items():
        if name in after and after[name].shape != tensor.shape:
            raise UsageError(
                f"{name} is of shape {tuple(tensor.shape)} in {base.path}, and of "
                f"{tuple(after[name].shape)} in {tuned.path}",
                "give a model and one that was trained from it",
            )


def _ratio(part: float, whole: float) -> float:
    return math.sqrt(part / whole) if whole else 0.0
