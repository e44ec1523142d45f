"""Text from tokens as they come: a character is told when all of its tokens are there."""

from collections.abc import Callable, Iterable, Iterator, Sequence

UNFINISHED = "\N{REPLACEMENT CHARACTER}"  # what decoders write for bytes that are no character


def stream_text(
    tokens: Iterable[int], decode: Callable[[Sequence[int]], str], before: Sequence[int] = ()
) -> Iterator[str]:
    """Return what each token adds to a text; together they are the text.

    A token may be a part of a character only, or change how the one before is written: what may
    still change is held back.

    Args:
        tokens: the tokens.
        decode: from all tokens to their text.
        before: tokens that stand before them, and are not told.
    """
    seen = list(before)
    told = len(decode(seen)) if seen else 0
    text = ""
    for token in tokens:
        seen.append(token)
        text = decode(seen)
        if len(text) > told and not text.endswith(UNFINISHED):
            yield text[told:]
            told = len(text)
    if len(text) > told:
        yield text[told:]
