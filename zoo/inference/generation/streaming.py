"""Incremental decoding of tokens to text."""

from collections.abc import Callable, Iterable, Iterator, Sequence

UNFINISHED = "\N{REPLACEMENT CHARACTER}"  # decoded from incomplete UTF-8


def stream_text(
    tokens: Iterable[int], decode: Callable[[Sequence[int]], str], before: Sequence[int] = ()
) -> Iterator[str]:
    """Yield the text that each token adds.

    A token may be part of a character, or change the spelling of the text before it; text that
    may still change is held back.
    """
    prefix = list(before)
    length = len(decode(prefix)) if prefix else 0
    text = ""
    for token in tokens:
        prefix.append(token)
        text = decode(prefix)
        if len(text) > length and not text.endswith(UNFINISHED):
            yield text[length:]
            length = len(text)
    if len(text) > length:
        yield text[length:]
