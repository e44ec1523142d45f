"""As much of a large corpus as a tokenizer needs to be trained on, from all over it."""

from collections.abc import Callable, Iterable, Iterator, Sequence

Texts = Callable[[], Iterable[Sequence[str]]]
PIECE_CHARS = 1 << 14  # characters of a long text that are taken or left together


def subsample(texts: Texts, max_chars: int) -> Texts:
    """Return all texts if they are few, and else pieces of them at even distances.

    Which pieces these are follows from the texts alone. They are held in memory, as training
    goes through them several times; texts that are all taken are read again each time.

    Args:
        texts: returns the texts, in lists; it is called several times.
        most: characters; what is returned can have ``PIECE`` more.
    """
    total = sum(len(text) for batch in texts() for text in batch)
    if total <= max_chars:
        return texts
    kept: list[str] = []
    seen = taken = 0
    for piece in _pieces(texts()):
        seen += len(piece)
        if taken * total < seen * max_chars:  # less was taken so far than is to be taken of all
            kept.append(piece)
            taken += len(piece)
    return lambda: [kept]


def _pieces(batches: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield texts; long ones in pieces that end before a space, where there is one."""
    for batch in batches:
        for text in batch:
            at = 0
            while len(text) - at > PIECE_CHARS:
                space = text.rfind(" ", at + 1, at + PIECE_CHARS)
                end = space if space > 0 else at + PIECE_CHARS
                yield text[at:end]
                at = end
            yield text[at:]
