"""Loading of pretrained weights into a model, and detection of parameters that were not loaded."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from zoo.checkpoint import MANIFEST, Checkpoint
from zoo.errors import SourceError, UsageError
from zoo.families.config import Config
from zoo.objectives.base import TrainedModel
from zoo.weights.names import inside, outermost_parts


class MissingWeights:
    """The parameters of a model that were not loaded from a checkpoint."""

    def __init__(
        self, model: nn.Module, filled: Mapping[int, Tensor], settled: Sequence[Tensor]
    ) -> None:
        names: dict[int, list[str]] = {}
        for name, tensor in model.state_dict(keep_vars=True).items():
            names.setdefault(id(tensor), []).append(name)
        known = filled.keys() | {id(tensor) for tensor in settled}
        self.names = [aliases[0] for number, aliases in names.items() if number not in known]
        # tensors that two models share are no evidence that a module of the second one was loaded
        self._loaded = [n[0] for number, n in names.items() if number in filled and len(n) == 1]

    def validate(self, allowed: Sequence[str], reference: str, objective: str) -> None:
        """Check that only parameters of the allowed modules were not loaded."""
        for part in allowed:
            if not any(inside(name, part) for name in self.names):
                raise UsageError(
                    f"init_from.new_modules has {part!r}, and nothing of that name is missing",
                    "leave it out",
                )
        rest = [name for name in self.names if not any(inside(name, part) for part in allowed)]
        if parts := self.modules(rest):
            simpler, plus, _ = objective.partition("+")
            new = ",".join([*allowed, *parts])
            raise UsageError(
                f"{reference} has no {', '.join(parts)}, which {objective} needs",
                (f"--objective {simpler} needs less; " if plus else "")
                + f"--set init_from.new_modules=[{new}] begins with new weights there",
            )

    def modules(self, names: Sequence[str]) -> list[str]:
        """Return the outermost modules around parameters from which nothing was loaded."""
        return outermost_parts(names, self._loaded)


def config_differences(wanted: Config, actual: Config) -> Iterator[str]:
    """Yield a message for each integer field in which two configurations differ."""
    # The vocabulary size and token ids are not compared.
    for name in wanted.__struct_fields__:
        expected = getattr(wanted, name)
        value = getattr(actual, name)
        counted = type(expected) is int and name != "vocab_size" and not name.endswith("_token_id")
        if counted and expected != value:
            yield f"{name} is {value}, not {expected}"


def loaded_parameters(
    checkpoint: Checkpoint, network: TrainedModel, *, skip: Sequence[str] = ()
) -> list[Tensor]:
    """Return the parameters of a model that ``copy_weights`` sets as a whole."""
    targets = network.module.state_dict(keep_vars=True)
    with checkpoint.open_weights() as reader:
        shapes = {name: info.shape for name, info in reader.tensors.items()}
    return [
        targets[target]
        for name, target in checkpoint.sources_in(network.config, network.head).items()
        if target in targets
        and shapes.get(name) == targets[target].shape
        and not any(inside(target, part) for part in skip)
    ]


def copy_weights(
    reference: str,
    checkpoint: Checkpoint,
    network: TrainedModel,
    filled: dict[int, Tensor],  # tensors that were loaded, by ``id``; this call adds its own
    *,
    skip: Sequence[str] = (),  # modules of the model that keep their values
    new_rows: int = 0,  # last rows of the embeddings, which the checkpoint lacks: kept
) -> list[str]:
    """Copy the tensors of a checkpoint into a model; return the names of those that it lacks."""
    # Tensors correspond if the same tensors of the Hub's checkpoint are their sources.
    differ = next(config_differences(network.config, checkpoint.config), None)
    if differ is not None:
        raise UsageError(f"{reference} cannot be started with as it is: {differ}", _WIDTH)
    targets = network.module.state_dict(keep_vars=True)
    target_names = checkpoint.sources_in(network.config, network.head)
    left = []
    for name, value in _stored(checkpoint):
        target = target_names.get(name, "")
        place = targets.get(target)
        if place is None or any(inside(target, part) for part in skip):
            left.append(name)
            continue
        if new_rows and value.dim() and place.shape == (len(value) + new_rows, *value.shape[1:]):
            place = place[: len(value)]  # new rows are at the end
        if place.shape != value.shape:
            raise UsageError(
                f"{reference}: {name} is of shape {tuple(value.shape)}, not {tuple(place.shape)}"
            )
        number = id(targets[target])
        if number in filled and not torch.equal(place, value.to(place)):
            raise UsageError(
                f"{reference}: {name} is shared with the other network, whose values differ",
                "--set objective_args.embedding_sharing=none",
            )
        filled[number] = place.copy_(value)
    return left


_WIDTH = (
    "objective_args.generator_width_ratio and objective_args.generator_depth_ratio set the "
    "generator's size"
)


def _stored(checkpoint: Checkpoint) -> Iterator[tuple[str, Tensor]]:
    """Yield name and tensor of a checkpoint, after the digest of each file was verified."""
    from safetensors import safe_open

    from zoo.io.digests.verified import require_blake3
    from zoo.io.paths import check_unicode

    check_unicode(checkpoint.path, "the directory of the model")
    for path in checkpoint.weight_files():
        if not path.is_file():
            raise SourceError(f"{path} is not there", "give a checkpoint with weights")
        known = checkpoint.manifest.files.get(path.name)
        require_blake3(path, known.blake3 if known else None, checkpoint.path / MANIFEST)
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 (an open file, not a dict)
                yield name, file.get_tensor(name)
