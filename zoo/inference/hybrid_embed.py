"""Embeddings of several representations of a text, from one run of the model."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from zoo.errors import UsageError
from zoo.families.onnx import EMBEDDING
from zoo.inference.embed import Embed
from zoo.inference.processing.batching import EncodedBatch
from zoo.inference.task import EncodedExample
from zoo.overrides import override

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint

Representations = str | Mapping[str, float]  # One of a model's, or several with weights.


class HybridEmbed(Embed):
    """Embeddings of several representations; a result has one for each name.

    Two texts are compared by the weighted mean of the similarities of their representations, as
    ``compute_score`` of FlagEmbedding does.
    """

    offers_windows = False

    def __init__(self, *args: Any, representation: Mapping[str, float], **options: Any) -> None:
        for name in ("doc_stride", "chunks"):
            if options.get(name) is not None:
                raise UsageError(
                    "windows and passages have one representation each",
                    f"name one representation, or leave --{name.replace('_', '-')} out",
                )
        super().__init__(*args, **options)
        self.weights_of_scores = dict(representation)
        if EMBEDDING in self.session.outputs:
            raise UsageError(
                f"{self.checkpoint.name} pools tokens itself, and has only one representation",
                "export it without --pooled",
            )
        options.pop("tokenizer", None)
        parts = (self.checkpoint, self.session, self.tokenizer)
        self.tasks: dict[str, Embed] = {}
        for name in self.weights_of_scores:
            self.tasks[name] = Embed(*parts, representation=name, **options)

    @override
    def compute(self, items: list[EncodedExample], batch: EncodedBatch) -> list[dict[str, Any]]:
        hidden = self.output(self.pooling.output, items, batch)
        embeddings: list[dict[str, Any]] = [{} for _ in items]
        for name, task in self.tasks.items():
            rows = task.embed_hidden(hidden, items, batch)
            for embedding, row in zip(embeddings, rows, strict=True):
                embedding[name] = row["embedding"]
        return [{"embedding": embedding} for embedding in embeddings]

    @override
    def compare(self, first: Any, second: Any) -> float:
        score = 0.0
        for name, weight in self.weights_of_scores.items():
            score += weight * self.tasks[name].compare(first[name], second[name])
        return score / sum(self.weights_of_scores.values())


def make_embed(*args: Any, representation: Representations | None = None, **options: Any) -> Embed:
    """Return the task that embeds texts by one representation, or by several with weights."""
    if isinstance(representation, Mapping):
        return HybridEmbed(*args, representation=representation, **options)
    return Embed(*args, representation=representation, **options)


def parse_representations(values: Sequence[str]) -> Representations | None:
    """Return the representations that options name, such as ``sparse=0.3``."""
    weights: dict[str, float] = {}
    for value in values:
        name, separator, number = value.partition("=")
        try:
            weight = float(number) if separator else 1.0
        except ValueError:
            weight = -1.0
        if not 0 < weight < float("inf"):
            raise UsageError(
                f"--representation {value!r:.100} has no positive weight",
                "give NAME or NAME=WEIGHT",
            )
        if name in weights:
            raise UsageError(f"--representation names {name!r:.100} twice", "give it once")
        weights[name] = weight
    if len(weights) > 1:
        return weights
    return next(iter(weights), None)


def check_representations(checkpoint: "Checkpoint", representation: Any) -> None:
    """Check that a model has representations, named by options or arguments."""
    if isinstance(representation, tuple | list):
        representation = parse_representations(representation)
    if representation is None or isinstance(representation, str):
        checkpoint.with_representation(representation)
        return
    if not representation:
        raise UsageError("no representation is named", "name one or more")
    for name, weight in representation.items():
        checkpoint.with_representation(name)
        if not 0 < weight < float("inf"):
            raise UsageError(
                f"the weight of the representation {name} is {weight}", "give a positive number"
            )
