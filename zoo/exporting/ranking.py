"""How alike two models rank texts, for the gate of a model that was made from another one."""

from typing import TYPE_CHECKING

import numpy as np

from zoo.checkpoint import Checkpoint
from zoo.errors import UsageError
from zoo.exporting.quantization.agreement import Summary, rank_correlation
from zoo.exporting.report import Agreement, at_least_0
from zoo.inference.embed import Embed
from zoo.inference.processing.records import as_records

if TYPE_CHECKING:
    from zoo.inference.session import Session


def ranking_agreement(
    original: Checkpoint,
    original_session: "Session",
    derived: Checkpoint,
    derived_session: "Session",
    texts: list[str],
) -> Agreement:
    """Return how alike two models rank texts by the cosine of their embeddings."""
    expected = _embed(original, original_session, texts)
    actual = _embed(derived, derived_session, texts)
    correlation = rank_correlation([expected], [actual], "cosine")
    if correlation is None:
        raise UsageError(
            f"{original.name} gives all texts the same similarities, which ranks nothing",
            "give --eval FILE with other texts",
        )
    return Agreement(
        texts=len(texts),
        measure="ranking",
        drop=at_least_0(1 - correlation),
        ranking=correlation,
    )


def _embed(checkpoint: Checkpoint, session: "Session", texts: list[str]) -> Summary:
    task = Embed(checkpoint, session)
    vectors = [added["embedding"] for _, added in task.stream(as_records(texts))]
    nothing = np.zeros(0)  # embeddings have no logits
    return Summary(np.stack(vectors).astype(np.float64), nothing.astype(np.int64), nothing, nothing)
