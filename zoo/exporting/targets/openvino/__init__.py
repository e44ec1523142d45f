"""OpenVINO, for Intel's CPUs: the IR files that sentence-transformers and Optimum read."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.exporting.targets.base import ExportTarget, Precision
from zoo.overrides import override

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.conversion.usage import Snippet
    from zoo.exporting.quantization.search import MixedPrecisionModel
    from zoo.families.base import Family
    from zoo.inference.session import Session
    from zoo.sentence_models.pooling import Pooling


class OpenVino(ExportTarget):
    """OpenVINO IR, made from the ONNX graph without a key-value cache."""

    name = "openvino"
    title = "OpenVINO"
    library = "openvino"
    package = "openvino"
    install = "pip install openvino"
    extra = "openvino"
    precisions: ClassVar[Mapping[str, Precision]] = {
        "float32": Precision(1e-4, "kernels add in another order"),
        "float16": Precision(2e-2, "weights have 11 bits; products are in float32"),
        "int8": Precision(None, "8-bit weights, a scale a row; activations in groups of 128"),
    }

    @override
    def refusal(
        self, family: "Family", config: Any, head: str, pooling: "Pooling | None" = None
    ) -> str | None:
        return family.runtime_refusal(self.name, config, head)

    @override
    def write(self, checkpoint: "Checkpoint", directory: Path, precision: str) -> None:
        from zoo.exporting.targets.openvino.write import write_ir

        write_ir(checkpoint, directory / self.folder, precision)

    @override
    def open(
        self, checkpoint: "Checkpoint", directory: Path, precision: str, threads: int | None = None
    ) -> "Session":
        from zoo.exporting.targets.openvino.session import OpenVinoSession

        return OpenVinoSession(checkpoint, directory / self.folder, precision, threads)

    @override
    def mixed_precision(
        self, checkpoint: "Checkpoint", precision: str
    ) -> "MixedPrecisionModel[str] | None":
        from zoo.exporting.targets.openvino.write import MixedPrecisionIr

        return MixedPrecisionIr(checkpoint, self.folder)

    @override
    def snippets(self, checkpoint: "Checkpoint") -> "Iterator[Snippet]":
        from zoo.exporting.targets.openvino.snippets import openvino_snippets

        return openvino_snippets(checkpoint)
