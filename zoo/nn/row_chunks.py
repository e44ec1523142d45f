"""Limits of the number of logits that are held, and the parts of a batch that keep to them."""

from collections.abc import Iterator

from torch import Tensor

from zoo.nn.heads import VocabularyProjection

Logits = Tensor | VocabularyProjection

LOGITS_AT_ONCE = 1 << 26  # 256 MB in float32
LOGITS_IN_CACHE = 1 << 18  # 1 MB in float32: what the cache of a CPU core holds


def fits_at_once(positions: int, vocabulary: int) -> bool:
    """Return whether all logits of a batch are held at once."""
    # The logits of n positions and a vocabulary of V tokens are n V numbers, and as many again for
    # their gradient: 6.6 GB each, in float32, for 32,768 positions and 50,257 tokens. Above
    # ``LOGITS_AT_ONCE``, they are computed for some positions at a time. Only the shapes decide, so
    # that a run that is resumed takes the same path.
    return positions * vocabulary <= LOGITS_AT_ONCE


def chunks(positions: int, vocabulary: int) -> Iterator[slice]:
    """Yield stretches of positions with at most ``LOGITS_AT_ONCE`` logits each."""
    return _stretches(positions, vocabulary, LOGITS_AT_ONCE)


def cache_chunks(positions: int, vocabulary: int) -> Iterator[slice]:
    """Yield stretches of positions with at most ``LOGITS_IN_CACHE`` logits each."""
    return _stretches(positions, vocabulary, LOGITS_IN_CACHE)


def _stretches(positions: int, vocabulary: int, limit: int) -> Iterator[slice]:
    size = max(1, limit // vocabulary)
    for start in range(0, positions, size):
        yield slice(start, start + size)


def all_logits(logits: Logits) -> Tensor:
    """Return the logits of all rows, (n, classes)."""
    return logits if isinstance(logits, Tensor) else logits.logits()


def logits_of_rows(logits: Logits, rows: slice) -> Tensor:
    """Return the logits of some rows."""
    return all_logits(select_rows(logits, rows))


def select_rows(logits: Logits, rows: slice | Tensor) -> Logits:
    """Return some rows, a stretch or by indices, of a projection without their logits."""
    if isinstance(logits, Tensor):
        return logits[rows]
    return logits._replace(hidden=logits.hidden[rows])


def chunked_logits(projection: VocabularyProjection) -> Iterator[tuple[slice, Tensor]]:
    """Yield stretches of positions and their logits, (positions, vocabulary), float32."""
    for rows in chunks(len(projection.hidden), len(projection.weight)):
        yield rows, logits_of_rows(projection, rows).float()
