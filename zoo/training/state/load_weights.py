"""Loading of pretrained weights into a model, and detection of parameters that were not loaded."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from zoo.checkpoint import MANIFEST, Checkpoint
from zoo.errors import SourceError, UsageError
from zoo.objectives.base import TrainedModel
from zoo.training.config.init_checkpoint import config_differences
from zoo.weights.names import inside, outermost_parts


class MissingWeights:
    """The parameters of a model that were not loaded from a checkpoint.

    Args:
        model: the module to train.
        filled: tensors of ``model`` that were loaded from a checkpoint, by ``id``.
        settled: tensors that have their values although no checkpoint has them.
    """

    def __init__(
        self, model: nn.Module, filled: Mapping[int, Tensor], settled: Sequence[Tensor]
    ) -> None:
        aliases_by_id: dict[int, list[str]] = {}
        for name, tensor in model.state_dict(keep_vars=True).items():
            aliases_by_id.setdefault(id(tensor), []).append(name)
        settled_ids = {id(tensor) for tensor in settled}
        self.names: list[str] = []
        self._loaded_names: list[str] = []
        for tensor_id, aliases in aliases_by_id.items():
            if tensor_id not in filled and tensor_id not in settled_ids:
                self.names.append(aliases[0])
            # A tensor that two models share does not show that a module of the second was loaded.
            if tensor_id in filled and len(aliases) == 1:
                self._loaded_names.append(aliases[0])

    def validate(self, allowed: Sequence[str], reference: str, objective: str) -> None:
        """Check that only parameters of the allowed modules were not loaded."""
        for part in allowed:
            if not any(inside(name, part) for name in self.names):
                raise UsageError(
                    f"init_from.new_modules has {part!r}, and nothing of that name is missing",
                    "leave it out",
                )
        remaining_names = []
        for name in self.names:
            if not any(inside(name, part) for part in allowed):
                remaining_names.append(name)
        parts = self.modules(remaining_names)
        if parts:
            raise missing_modules_error(reference, parts, objective, allowed)

    def modules(self, names: Sequence[str]) -> list[str]:
        """Return the outermost modules around parameters from which nothing was loaded."""
        return outermost_parts(names, self._loaded_names)


def missing_modules_error(
    reference: str, modules: Sequence[str], objective: str, allowed: Sequence[str]
) -> UsageError:
    """Return the error for modules that an objective trains and a checkpoint lacks."""
    new_modules = ",".join([*allowed, *modules])
    return UsageError(
        f"{reference} has no {', '.join(modules)}, which {objective} needs",
        f"--set init_from.new_modules=[{new_modules}] begins with new weights there",
    )


def missing_modules(checkpoint: Checkpoint, head: str) -> list[str]:
    """Return the modules of the checkpoint's model with a head that the checkpoint lacks.

    Only the names of tensors are read.
    """
    needed_names = checkpoint.family.weights(checkpoint.config, head).targets().values()
    with checkpoint.open_weights() as reader:
        stored_names = set(reader.tensors)
    loaded_names = set()
    for source, target in checkpoint.sources_in(checkpoint.config, head).items():
        if source in stored_names:
            loaded_names.add(target)
    missing_names = [name for name in needed_names if name not in loaded_names]
    return outermost_parts(missing_names, loaded_names)


def loaded_parameters(
    checkpoint: Checkpoint, network: TrainedModel, *, skip: Sequence[str] = ()
) -> list[Tensor]:
    """Return the parameters of a model that ``copy_weights`` sets as a whole."""
    targets = network.module.state_dict(keep_vars=True)
    with checkpoint.open_weights() as reader:
        shapes = {name: info.shape for name, info in reader.tensors.items()}
    parameters = []
    for name, target in checkpoint.sources_in(network.config, network.head).items():
        if target not in targets or any(inside(target, part) for part in skip):
            continue
        if shapes.get(name) == targets[target].shape:
            parameters.append(targets[target])
    return parameters


def copy_weights(
    reference: str,
    checkpoint: Checkpoint,
    network: TrainedModel,
    filled: dict[int, Tensor],
    *,
    skip: Sequence[str] = (),
    new_rows: int = 0,
) -> list[str]:
    """Copy the tensors of a checkpoint into a model.

    Tensors correspond if the same tensors of the Hub's checkpoint are their sources.

    Args:
        reference: name of the checkpoint in messages.
        checkpoint: the checkpoint to read.
        network: the model to fill.
        filled: tensors that were loaded, by ``id``; this call adds its own.
        skip: modules of the model that keep their values.
        new_rows: number of last rows of the embeddings that the checkpoint lacks. They keep their
            values.

    Returns:
        Names of the tensors of the checkpoint that were not copied.
    """
    difference = next(config_differences(network.config, checkpoint.config), None)
    if difference is not None:
        raise UsageError(
            f"{reference} cannot be started with as it is: {difference}", _GENERATOR_SIZE_HINT
        )
    targets = network.module.state_dict(keep_vars=True)
    target_names = checkpoint.sources_in(network.config, network.head)
    unused_names = []
    for name, value in _read_tensors(checkpoint):
        target_name = target_names.get(name, "")
        target = targets.get(target_name)
        if target is None or any(inside(target_name, part) for part in skip):
            unused_names.append(name)
            continue
        tensor_id = id(target)
        if new_rows and value.dim() and target.shape == (len(value) + new_rows, *value.shape[1:]):
            target = target[: len(value)]  # The new rows are at the end.
        if target.shape != value.shape:
            raise UsageError(
                f"{reference}: {name} is of shape {tuple(value.shape)}, not {tuple(target.shape)}"
            )
        if tensor_id in filled and not torch.equal(target, value.to(target)):
            raise UsageError(
                f"{reference}: {name} is shared with the other network, whose values differ",
                "--set objective_args.embedding_sharing=none",
            )
        filled[tensor_id] = target.copy_(value)
    return unused_names


_GENERATOR_SIZE_HINT = (
    "objective_args.generator_width_ratio and objective_args.generator_depth_ratio set the "
    "generator's size"
)


def _read_tensors(checkpoint: Checkpoint) -> Iterator[tuple[str, Tensor]]:
    """Yield name and tensor of a checkpoint, after the digest of each file was verified."""
    from safetensors import safe_open

    from zoo.io.digests.verified import require_blake3
    from zoo.io.paths import check_unicode

    check_unicode(checkpoint.path, "the directory of the model")
    for path in checkpoint.weight_files():
        if not path.is_file():
            raise SourceError(f"{path} is not there", "give a checkpoint with weights")
        digest = checkpoint.manifest.files.get(path.name)
        expected_blake3 = None
        if digest is not None:
            expected_blake3 = digest.blake3
        require_blake3(path, expected_blake3, checkpoint.path / MANIFEST)
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 (an open file, not a dict)
                yield name, file.get_tensor(name)
