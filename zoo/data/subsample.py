"""Subsampling of a large corpus for the training of a tokenizer."""

from collections.abc import Callable, Iterable, Iterator, Sequence

Texts = Callable[[], Iterable[Sequence[str]]]
PIECE_CHARS = 1 << 14  # largest number of characters per piece


def subsample(texts: Texts, max_chars: int) -> Texts:
    """Return all texts if they are few, else evenly spaced pieces of them.

    The selection only depends on the texts. It is held in memory, since training reads it several
    times; texts that are not subsampled are read again each time.
    """
    total = sum(len(text) for batch in texts() for text in batch)
    if total <= max_chars:
        return texts
    sample: list[str] = []
    seen = taken = 0
    for piece in _pieces(texts()):
        seen += len(piece)
        if taken * total < seen * max_chars:  # the selected fraction is below the target
            sample.append(piece)
            taken += len(piece)
    return lambda: [sample]


def _pieces(batches: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield texts, long ones in pieces that end before a space if possible."""
    for batch in batches:
        for text in batch:
            at = 0
            while len(text) - at > PIECE_CHARS:
                space = text.rfind(" ", at + 1, at + PIECE_CHARS)
                end = space if space > 0 else at + PIECE_CHARS
                yield text[at:end]
                at = end
            yield text[at:]
