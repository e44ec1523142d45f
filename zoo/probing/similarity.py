"""Similarity of the layers of two models, or of two checkpoints of a run, over many texts."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from zoo.errors import UsageError
from zoo.inference.processing.numbers import short_floats
from zoo.inference.task_checks import token_limits
from zoo.io.scratch import scratch_directory
from zoo.metrics.representations import (
    EXPLAINED_VARIANCE,
    CentredRepresentation,
    similarity_matrices,
)
from zoo.probing.layers import LayerReader, LayerVectors
from zoo.probing.tasks.base import ProbedText

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint

LOG = logging.getLogger("zoo")
Unit = Literal["tokens", "words", "sentences"]
UNITS: tuple[Unit, ...] = ("tokens", "words", "sentences")
MAX_VECTORS = 8000  # Vectors of a layer that are compared; of more, every k-th one is.
Floats = NDArray[np.float64]
TITLES = {
    "cka": "Linear CKA",
    "svcca": f"SVCCA, {EXPLAINED_VARIANCE:.0%} of variance",
    "pwcca": "PWCCA",
}


@dataclass(frozen=True)
class LayerSimilarity:
    """The similarity of each layer of a model to each layer of another one.

    Attributes:
        models: references of both models.
        layers: names of the layers of each.
        unit: what has a vector: ``tokens``, ``words`` or ``sentences``.
        texts: number of texts.
        vectors: number of vectors that were compared.
        matrices: ``cka``, ``svcca`` and ``pwcca`` -> (layers of the first, layers of the second),
            float64; NaN where all vectors of a layer are equal.
        warnings: what limits the meaning of the numbers.
    """

    models: tuple[str, str]
    layers: tuple[list[str], list[str]]
    unit: Unit
    texts: int
    vectors: int
    matrices: dict[str, Floats]
    warnings: list[str]

    def to_json(self) -> dict[str, Any]:
        """Return all numbers; ``null`` where they are not defined."""
        return {
            "models": list(self.models),
            "layers": [list(names) for names in self.layers],
            "unit": self.unit,
            "texts": self.texts,
            "vectors": self.vectors,
            **{name: short_floats(matrix) for name, matrix in self.matrices.items()},
            "warnings": list(self.warnings),
        }

    def to_svg(self) -> str:
        """Return a picture with a matrix for each measure: rows are layers of the first model."""
        from zoo.inspection.picture import draw_panels, matrix_panel

        panels = []
        for name, matrix in self.matrices.items():
            panel = matrix_panel(TITLES[name], *self.layers, np.nan_to_num(matrix), float)
            panels.append(panel)
        return draw_panels(f"layers of {self.models[0]} and {self.models[1]}", panels)

    def to_html(self) -> str:
        """Return a page with the picture."""
        from zoo.report import html

        first, second = self.models
        return html.render(
            "similarity.html",
            title="Similarity of layers",
            lead=f"rows: {first}; columns: {second}",
            note=f"{self.vectors:,} {self.unit} of {self.texts:,} texts",
            warnings=self.warnings,
            url=html.image_url(self.to_svg()),
        )

    def _repr_html_(self) -> str:
        """Return the page in a frame, for notebooks."""
        from zoo.report.cells import page_cell

        return page_cell("similarity of layers", self.to_html())


def compare_layers(
    names: tuple[str, str],
    checkpoints: "tuple[Checkpoint, Checkpoint]",
    texts: Sequence[str],
    *,
    unit: Unit | None = None,
    max_tokens: int | None = None,
    device: str | None = None,
) -> LayerSimilarity:
    """Return the similarity of the layers of two models; see ``zoo.api.layers.layer_similarity``.

    Args:
        names: references of the models.
        checkpoints: the models; if both are the same object, it reads the texts once.
        texts: the texts that both read.
        unit: what has a vector; by default tokens, or words where the tokens differ.
        max_tokens: length at which texts are cut; by default the shorter limit of both models.
        device: the device.
    """
    from zoo.checkpoint import load_text_tokenizer
    from zoo.inference.torch_session import TorchSession

    limits = [limit for checkpoint in checkpoints for limit in token_limits(checkpoint)]
    limit = min([*limits, *([] if max_tokens is None else [max_tokens])], default=None)
    is_same = checkpoints[0] is checkpoints[1]
    readers = []
    for checkpoint in checkpoints[:1] if is_same else checkpoints:
        session = TorchSession(checkpoint, device=device)
        tokenizer = load_text_tokenizer(checkpoint)
        readers.append(LayerReader(checkpoint, session, tokenizer, max_tokens=limit))
    unit, read_texts = _texts_to_read(readers, texts, unit)
    with ExitStack() as stack:
        folder = stack.enter_context(scratch_directory(is_only_folder=False))
        vectors = []
        for number, reader in enumerate(readers):
            inner_folder = folder / str(number)
            inner_folder.mkdir()
            vectors.append(reader.read(read_texts, "mean", inner_folder))
        rows = _compared_rows(vectors)
        representations = list(_representations(vectors[0], rows))
        other_representations: Iterable[CentredRepresentation] = representations
        if not is_same:
            other_representations = _representations(vectors[1], rows)
        matrices = similarity_matrices(representations, other_representations)
        widths = [array.shape[1] for model in vectors for array in model.arrays]
        layers = (vectors[0].names, vectors[-1].names)
    warnings = list(_warnings(unit, len(rows), max(widths), matrices))
    for warning in warnings:
        LOG.warning("warning: %s", warning)
    return LayerSimilarity(names, layers, unit, len(texts), len(rows), matrices, warnings)


def _texts_to_read(
    readers: Sequence[LayerReader], texts: Sequence[str], unit: Unit | None
) -> tuple[Unit, list[ProbedText]]:
    """Return what has a vector, and the texts with its places; raises ``UsageError``."""
    if unit == "sentences":
        return unit, [ProbedText(text, (), _location(number)) for number, text in _numbered(texts)]
    if unit != "words":
        tokens = _common_tokens(readers, texts)
        if tokens is not None:
            read_texts = []
            for (number, text), positions in zip(_numbered(texts), tokens, strict=True):
                if positions:  # A text of special tokens only has none.
                    read_texts.append(ProbedText(text, (), _location(number), tokens=positions))
            return "tokens", read_texts
        if unit == "tokens":
            raise UsageError(
                "the models cut the texts into different tokens", "give --unit words or sentences"
            )
    read_texts = []
    for number, text in _numbered(texts):
        words = tuple(text.split())
        spans = tuple((place, place + 1) for place in range(len(words)))
        read_texts.append(
            ProbedText(" ".join(words), (), _location(number), words=words, spans=spans)
        )
    return "words", read_texts


def _numbered(texts: Sequence[str]) -> Iterator[tuple[int, str]]:
    return enumerate(texts, 1)


def _location(number: int) -> str:
    return f"text {number}"


def _common_tokens(
    readers: Sequence[LayerReader], texts: Sequence[str]
) -> list[tuple[int, ...]] | None:
    """Return the places of the tokens of each text, without special ones; ``None`` if they differ.

    Equal ids are not enough: the same number may be another token.
    """
    encodings = [
        reader.tokenizer.encode(list(texts), max_tokens=reader.max_tokens) for reader in readers
    ]
    positions = []
    for one, other in zip(encodings[0], encodings[-1], strict=True):
        if list(one.ids) != list(other.ids) or list(one.tokens) != list(other.tokens):
            return None
        special = one.special
        positions.append(tuple(place for place in range(len(one.ids)) if not special[place]))
    return positions


def _compared_rows(vectors: Sequence[LayerVectors]) -> NDArray[np.int64]:
    """Return the vectors that both models have, at most ``MAX_VECTORS``."""
    rows = np.flatnonzero(vectors[0].has_tokens & vectors[-1].has_tokens)
    if len(rows) < 2:
        raise UsageError(
            f"layers are compared over two vectors or more, and the texts have {len(rows)}",
            "give more texts",
        )
    if len(rows) > MAX_VECTORS:
        rows = rows[np.linspace(0, len(rows) - 1, MAX_VECTORS).astype(np.int64)]
    return rows


def _representations(
    vectors: LayerVectors, rows: NDArray[np.int64]
) -> Iterator[CentredRepresentation]:
    for array in vectors.arrays:
        yield CentredRepresentation.from_vectors(array[rows])


def _warnings(unit: Unit, count: int, width: int, matrices: dict[str, Floats]) -> Iterator[str]:
    """Yield what limits the meaning of the numbers."""
    if count <= width:
        yield (
            f"{count:,} {unit} are no more than the {width:,} dimensions of a layer, and canonical "
            "correlations are then 1 or near it for any vectors; give more texts"
        )
    if np.isnan(matrices["cka"]).any():
        yield f"a layer has equal vectors for all {unit}, and its similarity is not defined"
