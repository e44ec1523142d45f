"""The tensors of a checkpoint under the names of a runtime's format."""

from typing import TYPE_CHECKING, Any

from zoo.adapted_models.checkpoint import AdaptedCheckpoint
from zoo.checkpoint import Checkpoint
from zoo.conversion.dtypes import cast
from zoo.errors import UsageError
from zoo.families.runtimes import RuntimeModel

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def runtime_tensors(
    checkpoint: Checkpoint, model: RuntimeModel
) -> "dict[str, NDArray[np.float32]]":
    """Return the weights in float32 by the format's names."""
    if isinstance(checkpoint, AdaptedCheckpoint):  # one that could be merged is a whole model here
        raise UsageError(
            f"{checkpoint.name} cannot be merged, and the format holds weights of the model alone",
            "--to onnx and --to openvino write the adapter into the graph",
        )
    tensors: dict[str, Any] = {}
    with checkpoint.open_weights() as reader:

        def read(name: str) -> Any:
            return cast(reader.read(name), reader.tensors[name].dtype, "F32", name)

        for entry in model.weights.entries():
            parts = entry.op.to_hub(read(entry.target))
            tensors |= dict(zip(entry.sources, parts, strict=True))
        for theirs, ours in model.copies.items():
            tensors[theirs] = read(ours)
    for name, values in model.constants.items():
        tensors[name] = values()
    return tensors
