"""Taking a network's weights from a checkpoint, and finding those that no checkpoint has."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from zoo.checkpoint import MANIFEST, Checkpoint
from zoo.errors import SourceError, UsageError
from zoo.families.config import Config
from zoo.objectives.base import TrainedModel


class MissingWeights:
    """The weights of a learner that were not taken from anywhere.

    Args:
        model: what is trained.
        filled: its tensors that were taken from checkpoints, by identity.
        settled: those that follow from these.

    Attributes:
        names: theirs.
    """

    def __init__(
        self, model: nn.Module, filled: Mapping[int, Tensor], settled: Sequence[Tensor]
    ) -> None:
        names: dict[int, list[str]] = {}
        for name, tensor in model.state_dict(keep_vars=True).items():
            names.setdefault(id(tensor), []).append(name)
        known = filled.keys() | {id(tensor) for tensor in settled}
        self.names = [each[0] for number, each in names.items() if number not in known]
        # what two networks share does not make a part of the other one
        self._loaded = [n[0] for number, n in names.items() if number in filled and len(n) == 1]

    def validate(self, allowed: Sequence[str], reference: str, objective: str) -> None:
        """Refuse weights that are new and were not said to be, and the other way round.

        Args:
            said: modules that may be new.
            reference: what the others were taken from.
            objective: what needs them.

        Raises:
            UsageError: names them.
        """
        for part in allowed:
            if not any(_inside(name, part) for name in self.names):
                raise UsageError(
                    f"init_from.new_modules has {part!r}, and nothing of that name is missing",
                    "leave it out",
                )
        rest = [name for name in self.names if not any(_inside(name, part) for part in allowed)]
        parts = list(dict.fromkeys(map(self._part, rest)))
        if parts:
            raise UsageError(
                f"{reference} has no {', '.join(parts)}, which {objective} needs",
                f"--set init_from.new_modules=[{','.join([*allowed, *parts])}] begins with new "
                "weights there",
            )

    def _part(self, name: str) -> str:
        """Return the largest module around a weight that nothing was taken for."""
        pieces = name.split(".")
        around = (".".join(pieces[:size]) for size in range(1, len(pieces)))
        return next((p for p in around if not any(_inside(n, p) for n in self._loaded)), name)


def _inside(name: str, part: str) -> bool:
    return name == part or name.startswith(f"{part}.")


def config_differences(wanted: Config, found: Config) -> Iterator[str]:
    """Name the whole numbers in which two shapes differ, vocabularies left out."""
    for name in wanted.__struct_fields__:
        one, other = getattr(wanted, name), getattr(found, name)
        counted = type(one) is int and name != "vocab_size" and not name.endswith("_token_id")
        if counted and one != other:
            yield f"{name} is {other}, not {one}"


def copy_weights(
    reference: str, checkpoint: Checkpoint, network: TrainedModel, filled: dict[int, Tensor]
) -> list[str]:
    """Copy a checkpoint's tensors into a network, and return the names of those left over.

    Args:
        reference: for messages.
        checkpoint: what is read.
        network: what gets it.
        filled: the tensors that were set so far, by identity; more are added.
    """
    differ = next(config_differences(network.config, checkpoint.config), None)
    if differ is not None:
        raise UsageError(f"{reference} cannot be started with as it is: {differ}", _WIDTH)
    places = network.module.state_dict(keep_vars=True)
    meant = _same_sources(checkpoint, network)
    left = []
    for name, value in _stored(checkpoint):
        place = places.get(meant.get(name, ""))
        if place is None:
            left.append(name)
            continue
        if place.shape != value.shape:
            raise UsageError(
                f"{reference}: {name} is of shape {tuple(value.shape)}, not {tuple(place.shape)}"
            )
        if id(place) in filled and not torch.equal(place, value.to(place)):
            raise UsageError(
                f"{reference}: {name} is shared with the other network, whose values differ",
                "--set objective_args.embedding_sharing=none",
            )
        filled[id(place)] = place.copy_(value)
    return left


_WIDTH = (
    "objective_args.generator_width_ratio and objective_args.generator_depth_ratio set the "
    "generator's size"
)


def _same_sources(checkpoint: Checkpoint, network: TrainedModel) -> dict[str, str]:
    """Return a checkpoint's name -> the network's for what is the same tensor on the Hub."""
    wanted = checkpoint.family.weights(network.config, network.head).entries()
    names = {entry.sources: entry.target for entry in wanted}
    return {
        entry.target: names[entry.sources]
        for entry in checkpoint.weights.entries()
        if entry.sources in names
    }


def _stored(checkpoint: Checkpoint) -> Iterator[tuple[str, Tensor]]:
    """Yield a checkpoint's tensors, from files that are still what the manifest says.

    Raises:
        SourceError: there are no weights.
        VerificationError: a file was changed.
    """
    from safetensors import safe_open

    from zoo.io.digests.verified import require_blake3

    for path in checkpoint.weight_files():
        if not path.is_file():
            raise SourceError(f"{path} is not there", "give a checkpoint with weights")
        known = checkpoint.manifest.files.get(path.name)
        require_blake3(path, known.blake3 if known else None, checkpoint.path / MANIFEST)
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 (an open file, not a dict)
                yield name, file.get_tensor(name)
