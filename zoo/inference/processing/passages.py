"""Passages of documents: sentences, paragraphs, or runs of tokens, with their offsets."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from zoo.data.sentences import sentence_spans
from zoo.errors import UsageError
from zoo.inference.processing.records import Passage, RecordKeys, TextExample

if TYPE_CHECKING:
    from zoo.tokenizers import Encoded

Chunks = Literal["sentences", "tokens", "paragraphs"]
Span = tuple[int, int]  # first character, and the character after the last one
CHUNKS: tuple[Chunks, ...] = ("sentences", "tokens", "paragraphs")
CHUNK_SIZE = 256  # default number of tokens of a passage of ``tokens``
PASSAGE_KEYS = ("document", "start", "end")  # keys that name the place of a passage in results
# A paragraph ends at a blank line, which may have white space.
PARAGRAPH_END = re.compile(r"\n[^\S\n]*+\n\s*+")
# Marks that end a sentence without a space: of Chinese and Japanese, of Devanagari, and of Urdu.
UNSPACED_END = re.compile(
    "[\u3002\uff0e\uff01\uff1f\uff61\u0964\u0965\u06d4]++[\u300d\u300f\u201d\u2019\uff09\u3011]*+"
)


def split_sentences(text: str) -> list[Span]:
    """Return the spans of the sentences of a text.

    The rule is ``zoo.data.sentences.sentence_spans``, for languages with spaces and capitals: a
    list of English abbreviations and initials do not end a sentence, and an abbreviation that is
    not in it does. Full stops of Chinese, Japanese, Hindi and Urdu end one as well, and so do blank
    lines.
    """
    spans = []
    for start, end in split_paragraphs(text):
        begin = start
        parts = [match.end() for match in UNSPACED_END.finditer(text, start, end)]
        for stop in (*parts, end):
            if stop == begin:
                continue
            for first, last in sentence_spans(text[begin:stop]):
                spans.append((begin + first, begin + last))
            begin = stop
    return spans


def split_paragraphs(text: str) -> list[Span]:
    """Return the spans of the paragraphs of a text, between blank lines."""
    spans = []
    start = 0
    for match in PARAGRAPH_END.finditer(text):
        spans.append((start, match.start()))
        start = match.end()
    return [*spans, (start, len(text))]


class PassageSplitter:
    """Splits documents into passages.

    Passages of ``sentences`` or ``paragraphs`` are one each, or as many as fit into a size.
    Passages of ``tokens`` end at the last word that fits. A sentence or paragraph that is longer
    than a passage can be is split as ``tokens`` are, so that no passage is truncated.

    Args:
        chunks: where passages may end.
        chunk_size: largest number of tokens of a passage, without special ones. By default one
            sentence or paragraph, or ``CHUNK_SIZE`` tokens.
        room: number of tokens that the model reads of a text; ``None`` for any.
        name: name of the model, for messages.
    """

    def __init__(self, chunks: str, chunk_size: int | None, room: int | None, name: str) -> None:
        if chunks not in CHUNKS:
            raise UsageError(
                f"texts are not split into {chunks!r:.100}", f"give {', '.join(CHUNKS)}"
            )
        if chunk_size is not None and chunk_size < 1:
            raise UsageError(f"a passage of {chunk_size} tokens is not possible", "give 1 or more")
        if room is not None and room < 1:
            raise UsageError(
                f"{name} has no room for text next to the prompt and the special tokens",
                "shorten the prompt, or raise --max-seq-len",
            )
        if chunk_size is not None and room is not None and chunk_size > room:
            raise UsageError(
                f"a passage of {chunk_size} tokens is longer than the {room} that {name} reads "
                "of a text",
                f"give --chunk-size {room} or less",
            )
        limit = chunk_size
        if limit is None and chunks == "tokens":
            limit = CHUNK_SIZE
        if limit is None:
            limit = room
        elif room is not None:
            limit = min(limit, room)
        self.chunks = chunks
        self.limit = limit
        self.joins = chunk_size is not None and chunks != "tokens"

    def split(self, text: str, encoded: "Encoded") -> list[Span]:
        """Return the spans of the passages of a document, one or more, without space around them.

        Args:
            text: the document.
            encoded: its tokens, without truncation, with offsets.
        """
        tokens = TextTokens(encoded)
        units: list[Span] = [(0, len(text))]
        if self.chunks == "sentences":
            units = split_sentences(text)
        elif self.chunks == "paragraphs":
            units = split_paragraphs(text)
        pieces = list[Span]()
        for start, end in units:
            for piece in self._split_unit(start, end, tokens):
                span = strip_span(text, *piece)
                if span is not None:
                    pieces.append(span)
        passages = self._join(pieces, tokens)
        return passages or [(0, len(text))]

    def _split_unit(self, start: int, end: int, tokens: "TextTokens") -> Iterator[Span]:
        """Yield the parts of a sentence or paragraph that are not longer than a passage."""
        first = tokens.number_at(start)
        stop = tokens.number_at(end)
        limit = self.limit
        if limit is None:
            yield start, end
            return
        while stop - first > limit:
            cut = tokens.last_word_start(first, first + limit)
            yield start, tokens.ends[cut - 1]
            start = tokens.starts[cut]
            first = cut
        yield start, end

    def _join(self, pieces: Sequence[Span], tokens: "TextTokens") -> list[Span]:
        """Return passages of as many consecutive pieces as fit, or of one.

        A piece without a token of its own, such as a mark that normalization removes, belongs to
        the passage before it.
        """
        passages = list[Span]()
        for start, end in pieces:
            if passages:
                begin = passages[-1][0]
                stop = tokens.number_at(end)
                is_empty = tokens.number_at(start) == stop
                size = stop - tokens.number_at(begin)
                fits = self.limit is None or size <= self.limit
                if is_empty or (self.joins and fits):
                    passages[-1] = (begin, end)
                    continue
            passages.append((start, end))
        return passages


class TextTokens:
    """Places of the tokens of a text, without special ones and those of a prompt.

    Args:
        encoded: tokens of the text after a prompt, with offsets.
        prompt_length: number of characters of the prompt.
    """

    def __init__(self, encoded: "Encoded", prompt_length: int = 0) -> None:
        import numpy as np

        starts = []
        ends = []
        words = []
        # Number of each token among all tokens, the special ones included.
        self.positions = list[int]()
        places = zip(encoded.offsets, encoded.word_ids, encoded.sequence_ids, strict=True)
        for position, ((start, end), word, sequence) in enumerate(places):
            if sequence is not None and start >= prompt_length:
                self.positions.append(position)
                starts.append(start - prompt_length)
                ends.append(end - prompt_length)
                words.append(word)
        self.count = len(encoded.ids)
        # Parts of one character have the same offsets, and normalization may change their order.
        self.starts: list[int] = np.maximum.accumulate(np.array(starts, np.int64)).tolist()
        self.ends = ends
        self._words = words

    def number_at(self, character: int) -> int:
        """Return the number of the first token that does not begin before a character."""
        from bisect import bisect_left

        return bisect_left(self.starts, character)

    def positions_of(self, passage: Passage) -> tuple[int, int]:
        """Return the position of the first token of a passage, and the one after its last.

        The first passage of a document also has the special tokens and the prompt before it, and
        the last one the special tokens after it.
        """
        first = 0
        stop = self.count
        if not passage.is_first:
            first = self.positions[self.number_at(passage.start)]
        if not passage.is_last:
            stop = self.positions[self.number_at(passage.end)]
        return first, max(stop, first + 1)

    def last_word_start(self, first: int, stop: int) -> int:
        """Return the last token up to ``stop`` that begins a word.

        If the word at ``stop`` also has the token ``first``, it is ``stop`` itself, or a token
        before that does not share a character with the previous one.
        """
        for number in range(stop, first, -1):
            if self._words[number] != self._words[number - 1]:
                return number
        for number in range(stop, first, -1):
            if self.starts[number] > self.starts[number - 1]:
                return number
        return stop


def strip_span(text: str, start: int, end: int) -> Span | None:
    """Return a span without the white space at its ends; ``None`` if nothing is left."""
    part = text[start:end]
    content = part.strip()
    if not content:
        return None
    start += len(part) - len(part.lstrip())
    return start, start + len(content)


def passage_records(
    record: TextExample, keys: RecordKeys, number: int, spans: Sequence[Span]
) -> Iterator[TextExample]:
    """Yield the records of a document's passages, with columns for their places.

    Args:
        record: the document.
        keys: names of the columns of texts without names.
        number: number of the document in the input, from 0.
        spans: the passages.

    Raises:
        UsageError: the document has a column with the name of a key of passages.
    """
    columns = keys.texts(record) if record.columns is None else record.columns
    for key in PASSAGE_KEYS:
        if key in columns or key in record.extra:
            raise UsageError(
                f"{record.location} has the key {key!r}, which --chunks writes itself",
                "rename or remove it",
            )
    for start, end in spans:
        text = record.text[start:end]
        passage_columns = {}
        for name, value in columns.items():
            # All columns but the text's are further keys of the record.
            passage_columns[name] = value if name in record.extra else text
        yield replace(
            record,
            text=text,
            columns=passage_columns,
            extra={**record.extra, "document": number, "start": start, "end": end},
            passage=Passage(
                record.text,
                number,
                start,
                end,
                is_first=start == spans[0][0],
                is_last=end == spans[-1][1],
            ),
        )
