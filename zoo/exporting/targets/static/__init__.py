"""Static embeddings: vectors of tokens that are distilled from an encoder, and their mean."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.errors import UsageError
from zoo.exporting.targets.base import ExportSettings, ExportTarget, Precision, TargetOptions
from zoo.exporting.targets.static.options import StaticOptions
from zoo.overrides import override

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.conversion.usage import Snippet
    from zoo.exporting.targets.base import WrittenModel
    from zoo.families.base import Family
    from zoo.inference.session import Session
    from zoo.sentence_models.pooling import Pooling

HIDDEN = "last_hidden_state"
REASON = (
    "an approximation: vectors of single tokens and their mean take the place of the model, and "
    "only rank texts alike"
)


class Static(ExportTarget):
    """Another model, which is made of the exported one: the files of a ``StaticEmbedding``.

    Its outputs are not those of the encoder in another runtime: the encoder reads each token of the
    vocabulary by itself, and vectors of tokens, weighted by Zipf's law, take the place of its
    layers (see ``vectors``). ``write`` makes that model and returns it, so that the record and the
    card are those of every target; since ``runs_weights`` is false, the gate compares how both
    models rank texts.
    """

    name = "static"
    title = "static embeddings"
    library = "sentence-transformers"
    precisions: ClassVar[Mapping[str, Precision]] = {
        "float32": Precision(None, REASON, max_drop=0.6),
        "float16": Precision(None, REASON, max_drop=0.6),
    }
    options_type: ClassVar[type[TargetOptions]] = StaticOptions
    options: StaticOptions
    runs_weights = False

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
    def check_model(self, checkpoint: "Checkpoint", settings: ExportSettings) -> None:
        if settings.quantization is not None and settings.quantization.metric is not None:
            raise UsageError(
                "static embeddings are compared on texts, and not by a metric",
                "give --eval a text file",
            )

    @override
    def write(
        self, checkpoint: "Checkpoint", directory: Path, precision: str
    ) -> "WrittenModel[Any]":
        from zoo.exporting.targets.static.export import write_vectors  # imports torch

        return write_vectors(checkpoint, directory, self.options, precision)

    @override
    def open(
        self, checkpoint: "Checkpoint", directory: Path, precision: str, threads: int | None = None
    ) -> "Session":
        from zoo.exporting.targets.static.session import StaticSession

        return StaticSession(checkpoint, directory, precision)

    @override
    def snippets(self, checkpoint: "Checkpoint") -> "Iterator[Snippet]":
        from zoo.conversion.usage import library_snippets
        from zoo.exporting.snippets import sentence_transformers_snippet

        yield sentence_transformers_snippet(checkpoint)
        yield from library_snippets(checkpoint.family)
