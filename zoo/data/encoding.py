"""Tokenization of documents in batches, in this process or in several."""

import os
import signal
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from zoo.data.sentences import sentence_spans
from zoo.data.word_cache import WordCache
from zoo.errors import UsageError
from zoo.io.processes import exit_with_parent, hidden_main
from zoo.io.scratch import scratch_directory
from zoo.io.untrusted import rust_parsing
from zoo.tokenizers.words import WordEncoding, encode_words

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

    from zoo.tokenizers.info import TokenizerInfo

CHUNK_CHARS = 1 << 18  # characters of the documents that are tokenized together
CHUNK_DOCUMENTS = 4096  # largest number of documents that are tokenized together


@dataclass(frozen=True)
class EncodedDocuments:
    """Tokenized documents."""

    tokens: NDArray[Any]  # token ids of all documents, (tokens,), of the tokenizer's dtype
    sentences: NDArray[np.int64]  # number of tokens of each sentence, (sentences,), int64
    # number of sentences of each document, (documents,), int64; 0 for a document without tokens
    documents: NDArray[np.int64]


@dataclass(frozen=True)
class DocumentTokenizer:
    """Tokenizes documents; it can be pickled for another process.

    A document is tokenized as a whole, and its tokens are assigned to sentences by their offsets in
    the text. The concatenated tokens of the sentences are thus the tokens of the document, even if
    a token depends on the space before it. A token across a sentence boundary belongs to the first
    sentence.
    """

    json: bytes
    info: "TokenizerInfo"  # special tokens of the tokenizer
    sentence_splitter: str  # ``rule`` or ``line``, see ``ReaderConfig``
    dtype: str  # dtype of the token ids

    @cached_property
    def _tokenizer(self) -> "Tokenizer":
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_buffer(self.json)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True  # Special tokens in a text are ordinary text.
        return tokenizer

    @cached_property
    def _ordinary_ids(self) -> NDArray[Any]:
        """Map of token ids in a text, (vocabulary,): special tokens become the unknown token."""
        # With a vocabulary of words, a text can contain a special token as a word.
        tokenizer = self._tokenizer
        special_ids = set()
        for added_id, added_token in tokenizer.get_added_tokens_decoder().items():
            if added_token.special:
                special_ids.add(added_id)
        for token in self.info.special.values():
            token_id = tokenizer.token_to_id(token)
            if token_id is not None:
                special_ids.add(token_id)
        ordinary_ids = np.arange(vocabulary_size(tokenizer), dtype=self.dtype)
        unknown_id = tokenizer.token_to_id(self.info.special.get("unk", ""))
        if unknown_id is not None:
            ordinary_ids[sorted(special_ids)] = unknown_id
        return ordinary_ids

    def encode(self, documents: Sequence[str]) -> EncodedDocuments:
        """Tokenize documents."""
        texts = []
        spans_by_document = []
        for document in documents:
            text, spans = self._join_sentences(document)
            texts.append(text)
            spans_by_document.append(spans)
        with rust_parsing("the tokenizer", "a tokenizer"):
            cached: list[list[bytes] | None] = [None] * len(texts)
            if self._word_cache is not None:
                cached = self._word_cache.encode(texts, spans_by_document)
            encodings = self._encode_remaining(texts, spans_by_document, cached)
        parts: list[bytes] = []
        lengths: list[int] = []
        sentence_counts = []
        for number, (spans, sentences) in enumerate(zip(spans_by_document, cached, strict=True)):
            if sentences is None:
                encoding = encodings[number]
                ids = np.fromiter(encoding.ids, np.int64, len(encoding))
                parts.append(self._ordinary_ids[ids].tobytes())
                sentence_lengths = _sentence_lengths(encoding, spans).tolist()
            else:
                sentences = list(filter(None, sentences))
                parts += sentences
                size = self._ordinary_ids.itemsize
                sentence_lengths = [len(ids) // size for ids in sentences]
            lengths += sentence_lengths
            sentence_counts.append(len(sentence_lengths))
        return EncodedDocuments(
            tokens=np.frombuffer(b"".join(parts), self._ordinary_ids.dtype),
            sentences=np.array(lengths, dtype=np.int64),
            documents=np.array(sentence_counts, dtype=np.int64),
        )

    @cached_property
    def _word_cache(self) -> WordCache | None:
        """Token ids of words that have occurred; ``None`` if texts are not split at spaces."""
        if self.info.splitter is not None:
            return None
        return WordCache.for_tokenizer(self._tokenizer, self.json, self._ordinary_ids)

    def _encode_remaining(
        self,
        texts: Sequence[str],
        spans_by_text: Sequence[Sequence[tuple[int, int]]],
        cached: Sequence[object],
    ) -> dict[int, Any]:
        """Tokenize texts without special tokens; return number of the text -> its encoding.

        Args:
            texts: the texts.
            spans_by_text: the sentences of each; only of several, the offsets of tokens are needed.
            cached: of each text, ``None`` if it is to be tokenized.
        """
        encodings: dict[int, Any] = {}
        for needs_offsets in (False, True):
            numbers = []
            for number, spans in enumerate(spans_by_text):
                if cached[number] is None and (len(spans) > 1) == needs_offsets:
                    numbers.append(number)
            if numbers:
                selected_texts = [texts[number] for number in numbers]
                batch = self._encode(selected_texts, needs_offsets=needs_offsets)
                encodings.update(zip(numbers, batch, strict=True))
        return encodings

    def _encode(
        self, texts: list[str], *, needs_offsets: bool
    ) -> "Sequence[Encoding | WordEncoding]":
        if self.info.splitter is not None:
            return encode_words(self._tokenizer, self.info.splitter, texts, special_tokens=False)
        encode = self._tokenizer.encode_batch
        if not needs_offsets:
            encode = self._tokenizer.encode_batch_fast
        encodings: list[Encoding] = encode(texts, add_special_tokens=False)
        return encodings

    def _join_sentences(self, document: str) -> tuple[str, list[tuple[int, int]]]:
        """Return a document as one line, and the start and end of each sentence in it."""
        lines = _lines(document)
        text = " ".join(lines)
        if self.sentence_splitter == "rule":
            return text, sentence_spans(text)
        spans = []
        start = 0
        for line in lines:
            end = start + len(line)
            spans.append((start, end))
            start = end + 1
        return text, spans


def _sentence_lengths(encoding: "Encoding", spans: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """Return the number of tokens of each sentence, without empty sentences."""
    if len(spans) == 1:
        counts = np.array([len(encoding)], dtype=np.int64)
    else:
        starts = np.fromiter((start for start, _ in encoding.offsets), np.int64, len(encoding))
        starts = np.maximum.accumulate(starts)
        # A token that starts in the space between two sentences belongs to the second one.
        cuts = np.searchsorted(starts, [end for _, end in spans[:-1]])
        counts = np.diff(cuts, prepend=0, append=len(encoding))
    return counts[counts > 0]


def _lines(document: str) -> list[str]:
    stripped_lines = (line.strip() for line in document.split("\n"))
    return [line for line in stripped_lines if line]


def join_lines(document: str) -> str:
    """Return a document as one line, the text that is tokenized."""
    return " ".join(_lines(document))


def select_documents(
    encoded: EncodedDocuments, document_mask: NDArray[np.bool_]
) -> EncodedDocuments:
    """Return a subset of the documents, by a mask, (documents,), bool."""
    sentence_mask = np.repeat(document_mask, encoded.documents)
    token_mask = np.repeat(sentence_mask, encoded.sentences)
    return EncodedDocuments(
        encoded.tokens[token_mask],
        encoded.sentences[sentence_mask],
        encoded.documents[document_mask],
    )


def vocabulary_size(tokenizer: "Tokenizer") -> int:
    """Return the highest token id plus 1, added tokens included."""
    return max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1


def chunks(documents: Iterable[str]) -> Iterator[list[str]]:
    """Yield lists of documents of about ``CHUNK_CHARS`` characters, at most ``CHUNK_DOCUMENTS``."""
    chunk: list[str] = []
    size = 0
    for document in documents:
        chunk.append(document)
        size += len(document)
        if size >= CHUNK_CHARS or len(chunk) == CHUNK_DOCUMENTS:
            yield chunk
            chunk = []
            size = 0
    if chunk:
        yield chunk


def encode_all(
    tokenizer: DocumentTokenizer, documents: Iterable[str], workers: int
) -> Iterator[EncodedDocuments]:
    """Yield tokenized documents, in order."""
    if workers == 1:
        yield from map(tokenizer.encode, chunks(documents))
        return
    with scratch_directory() as scratch, _pool(tokenizer, scratch, workers) as pool:
        remaining_chunks = chunks(documents)
        futures: deque[Future[EncodedDocuments]] = deque()
        try:
            for chunk in islice(remaining_chunks, 2 * workers):
                futures.append(_submit(pool, chunk))
            while futures:
                encoded = futures.popleft().result()
                for chunk in islice(remaining_chunks, 1):
                    futures.append(_submit(pool, chunk))
                yield encoded
        except BrokenProcessPool as error:
            raise UsageError(
                "a process that tokenizes was killed, perhaps for its memory",
                "give fewer --workers",
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def _pool(encoder: DocumentTokenizer, scratch: Path, workers: int) -> ProcessPoolExecutor:
    """Return a pool of worker processes, which are started on demand."""
    # Workers read the tokenizer from a file: a large object in the pipe that starts a process would
    # block forever if the process is killed before it reads.
    import multiprocessing

    file = scratch / "tokenizer.json"
    file.write_bytes(encoder.json)
    arguments = (str(file), replace(encoder, json=b""))
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(workers, context, initializer=_initialize_worker, initargs=arguments)


def _submit(pool: ProcessPoolExecutor, chunk: list[str]) -> "Future[EncodedDocuments]":
    """Submit a chunk; a process is started if all others are busy."""
    with hidden_main():
        return pool.submit(_encode_chunk, chunk)


_encoder: DocumentTokenizer | None = None  # A global of each worker process.


def _initialize_worker(path: str, encoder: DocumentTokenizer) -> None:
    """Initialize a worker: one thread, Ctrl-C ignored, exit with its parent."""
    global _encoder
    _encoder = replace(encoder, json=Path(path).read_bytes())
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    exit_with_parent()


def _encode_chunk(chunk: list[str]) -> EncodedDocuments:
    assert _encoder is not None, "_initialize_worker ran"
    return _encoder.encode(chunk)
