"""CTranslate2: encoders and decoders on CPUs, in float32, half precision and int8."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.exporting.targets.base import ExportTarget, Precision
from zoo.overrides import override

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.conversion.usage import Snippet
    from zoo.families.base import Family
    from zoo.inference.session import Session
    from zoo.sentence_models.pooling import Pooling

CPU = "weights have {} bits; a CPU multiplies in float32"


class CTranslate2(ExportTarget):
    """A model in CTranslate2's format, from the names that its family declares."""

    name = "ctranslate2"
    title = "CTranslate2"
    library = "ctranslate2"
    package = "ctranslate2"
    install = "pip install ctranslate2"
    extra = "ctranslate2"
    precisions: ClassVar[Mapping[str, Precision]] = {
        "float32": Precision(1e-4, "kernels add in another order"),
        "float16": Precision(2e-2, CPU.format(11)),
        "bfloat16": Precision(1e-1, CPU.format(8)),
        "int8": Precision(None, "8-bit weights, a scale a row; activations are scaled by the row"),
    }
    generates = True

    @override
    def refusal(
        self, family: "Family", config: Any, head: str, pooling: "Pooling | None" = None
    ) -> str | None:
        model = family.runtime_model(self.name, config, head)
        return model if isinstance(model, str) else None

    @override
    def write(self, checkpoint: "Checkpoint", directory: Path, precision: str) -> None:
        from zoo.exporting.targets.ctranslate2.write import write_model

        write_model(checkpoint, directory / self.folder, precision)

    @override
    def open(
        self, checkpoint: "Checkpoint", directory: Path, precision: str, threads: int | None = None
    ) -> "Session":
        from zoo.exporting.targets.ctranslate2.session import open_model

        return open_model(checkpoint, directory / self.folder, precision, threads)

    @override
    def tokens(
        self, checkpoint: "Checkpoint", directory: Path, texts: list[str]
    ) -> list[list[int]]:
        from zoo.exporting.targets.ctranslate2.vocabulary import encode

        return encode(checkpoint, directory / self.folder, texts)

    @override
    def snippets(self, checkpoint: "Checkpoint") -> "Iterator[Snippet]":
        from zoo.exporting.targets.ctranslate2.snippets import ctranslate2_snippets

        return ctranslate2_snippets(checkpoint)
