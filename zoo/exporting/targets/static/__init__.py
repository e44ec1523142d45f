"""Static embeddings: vectors of tokens that are distilled from an encoder, and their mean."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.errors import UsageError
from zoo.exporting.targets.base import ExportSettings, ExportTarget, Precision, TargetOptions
from zoo.exporting.targets.static.options import StaticOptions
from zoo.overrides import override

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.exporting.report import ExportReport
    from zoo.families.base import Family
    from zoo.inference.session import Session
    from zoo.sentence_models.pooling import Pooling

HIDDEN = "last_hidden_state"
REASON = (
    "an approximation: vectors of single tokens and their mean take the place of the model, and "
    "only rank texts alike"
)


class Static(ExportTarget):
    """Another model, which is made of the one that is given: the files of a ``StaticEmbedding``."""

    # Its gate is Spearman's correlation between the similarities of texts in both models.

    name = "static"
    title = "static embeddings"
    library = "sentence-transformers"
    precisions: ClassVar[Mapping[str, Precision]] = {
        "float32": Precision(None, REASON),
        "float16": Precision(None, REASON),
    }
    options_type: ClassVar[type[TargetOptions]] = StaticOptions
    options: StaticOptions
    runs_weights = False
    max_drop = 0.6

    @override
    def refusal(
        self, family: "Family", config: Any, head: str, pooling: "Pooling | None" = None
    ) -> str | None:
        from zoo.sentence_models.sentence_transformers_files import STATIC

        spec = family.onnx(config, head)
        if family.sentence_module == STATIC:
            return "it is static already"
        if HIDDEN not in spec.outputs or "input_ids" not in spec.inputs:
            return "it does not return hidden states of tokens"
        if pooling is not None and pooling.model_type != "SentenceTransformer":
            return "its texts have no vector of a fixed size that stands for their meaning"
        return None

    @override
    def export(
        self, checkpoint: "Checkpoint", directory: Path, settings: ExportSettings
    ) -> "ExportReport":
        from zoo.exporting.targets.static.export import export_static  # imports torch

        return export_static(self, self.options, checkpoint, directory, settings)

    @override
    def write(self, checkpoint: "Checkpoint", directory: Path, precision: str) -> None:
        raise UsageError("static embeddings are written with their comparison", "call export")

    @override
    def open(
        self, checkpoint: "Checkpoint", directory: Path, precision: str, threads: int | None = None
    ) -> "Session":
        from zoo.exporting.targets.static.session import StaticSession

        return StaticSession(checkpoint, directory, precision)

    @override
    def usage(self, checkpoint: "Checkpoint", report: "ExportReport") -> list[str]:
        from zoo.hub.upload.plan import PLACEHOLDER

        return [
            "",
            "With sentence-transformers:",
            "",
            "```python",
            "from sentence_transformers import SentenceTransformer",
            "",
            f'model = SentenceTransformer("{PLACEHOLDER}")',
            'embeddings = model.encode(["A text.", "Another text."])',
            "print(model.similarity(embeddings, embeddings))",
            "```",
        ]
