"""The export target ``program``: a model as ``torch.export`` writes it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from zoo.errors import VerificationError
from zoo.exporting.targets.base import ExportTarget, Precision
from zoo.exporting.targets.session import TargetSession
from zoo.families.random_inputs import random_inputs
from zoo.inference.load_model import load_model
from zoo.overrides import override

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.checkpoint import Checkpoint
    from zoo.families.base import Family
    from zoo.inference.session import Session
    from zoo.sentence_models.pooling import Pooling

FILE = "model.pt2"
TRACED = [8, 5]  # tokens of the rows of the traced batch


class Program(ExportTarget):
    """One file with the graph and the weights."""

    name = "program"
    title = "torch.export"
    library = "pytorch"
    package = "torch"
    install = "pip install torch"
    precisions: ClassVar[Mapping[str, Precision]] = {
        "float32": Precision(1e-5, "the same kernels"),
    }

    @override
    def refusal(
        self, family: "Family", config: Any, head: str, pooling: "Pooling | None" = None
    ) -> str | None:
        axes = {axis for names in family.onnx(config, head).inputs.values() for axis in names}
        return None if axes == {"batch", "tokens"} else "it takes one row of tokens for each text"

    @override
    def write(self, checkpoint: "Checkpoint", directory: Path, precision: str) -> None:
        spec = checkpoint.family.onnx(checkpoint.config, checkpoint.head_name)
        inputs = random_inputs(spec, checkpoint.config, TRACED)
        batch = torch.export.Dim("batch")
        tokens = torch.export.Dim("tokens", max=spec.limits.get("tokens"))
        program = torch.export.export(
            load_model(checkpoint, torch.float32),
            (),
            inputs,
            dynamic_shapes={name: {0: batch, 1: tokens} for name in inputs},
        )
        torch.export.save(program, directory / FILE)

    @override
    def open(
        self, checkpoint: "Checkpoint", directory: Path, precision: str, threads: int | None = None
    ) -> "Session":
        return ProgramSession(checkpoint, directory / FILE)


class ProgramSession(TargetSession):
    """A program in torch."""

    def __init__(self, checkpoint: "Checkpoint", file: Path) -> None:
        super().__init__(checkpoint, "program", "float32")
        try:
            self._module = torch.export.load(file).module()
        except Exception as error:
            raise VerificationError(f"{file} is damaged: {error}", "export it again") from error

    @override
    def compute(
        self, arrays: "Mapping[str, NDArray[np.int64]]", names: Sequence[str]
    ) -> "Mapping[str, NDArray[Any]]":
        with torch.inference_mode():
            outputs = self._module(**{n: torch.from_numpy(a) for n, a in arrays.items()})
        return {name: outputs[name].numpy() for name in names}
