"""Tokenization of documents in batches, in this process or in several."""

import os
import signal
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from zoo.data.sentences import sentence_spans
from zoo.errors import UsageError
from zoo.io.scratch import scratch_directory
from zoo.io.untrusted import rust_parsing

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
    """Tokenizes documents; it can be pickled for another process."""

    # A document is tokenized as a whole, and its tokens are assigned to sentences by their offsets
    # in the text. The concatenated tokens of the sentences are thus the tokens of the document,
    # even if a token depends on the space before it. A token across a sentence boundary belongs to
    # the first sentence.

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
        tokenizer.encode_special_tokens = True  # special tokens in a text are ordinary text
        return tokenizer

    @cached_property
    def _ordinary(self) -> NDArray[Any]:
        """Map of token ids in a text, (vocabulary,): special tokens become the unknown token."""
        # With a vocabulary of words, a text can contain a special token as a word
        tokenizer = self._tokenizer
        named = self.info.special
        added = tokenizer.get_added_tokens_decoder()
        special = {number for number, token in added.items() if token.special}
        token_ids = (tokenizer.token_to_id(token) for token in named.values())
        special |= {number for number in token_ids if number is not None}
        numbers = np.arange(vocabulary_size(tokenizer), dtype=self.dtype)
        if (unknown := tokenizer.token_to_id(named.get("unk", ""))) is not None:
            numbers[sorted(special)] = unknown
        return numbers

    def encode(self, documents: Sequence[str]) -> EncodedDocuments:
        """Tokenize documents."""
        texts, spans = zip(*(self._laid_out(document) for document in documents), strict=True)
        with rust_parsing("the tokenizer", "a tokenizer"):
            encodings = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        ids = chain.from_iterable(encoding.ids for encoding in encodings)
        total = sum(map(len, encodings))
        cuts = [
            _lengths(encoding, bounds) for encoding, bounds in zip(encodings, spans, strict=True)
        ]
        return EncodedDocuments(
            tokens=self._ordinary[np.fromiter(ids, np.int64, total)],
            sentences=np.concatenate(cuts),
            documents=np.array([len(cut) for cut in cuts], dtype=np.int64),
        )

    def _laid_out(self, document: str) -> tuple[str, list[tuple[int, int]]]:
        """Return a document as one line, and the start and end of each sentence in it."""
        lines = _lines(document)
        text = " ".join(lines)
        if self.sentence_splitter == "rule":
            return text, sentence_spans(text)
        ends = np.cumsum([len(line) + 1 for line in lines]) - 1
        return text, [
            (end - len(line), end) for line, end in zip(lines, ends.tolist(), strict=True)
        ]


def _lengths(encoding: "Encoding", spans: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """Return the number of tokens of each sentence, without empty sentences."""
    if len(spans) == 1:
        counts = np.array([len(encoding)], dtype=np.int64)
    else:
        starts = np.fromiter((start for start, _ in encoding.offsets), np.int64, len(encoding))
        starts = np.maximum.accumulate(starts)
        # a token that starts in the space between two sentences belongs to the second one
        cuts = np.searchsorted(starts, [end for _, end in spans[:-1]])
        counts = np.diff(cuts, prepend=0, append=len(encoding))
    return counts[counts > 0]


def _lines(document: str) -> list[str]:
    return [line for row in document.split("\n") if (line := row.strip())]


def join_lines(document: str) -> str:
    """Return a document as one line, the text that is tokenized."""
    return " ".join(_lines(document))


def select_documents(encoded: EncodedDocuments, chosen: NDArray[np.bool_]) -> EncodedDocuments:
    """Return a subset of the documents, by a mask, (documents,), bool."""
    sentences = np.repeat(chosen, encoded.documents)
    tokens = np.repeat(sentences, encoded.sentences)
    return EncodedDocuments(
        encoded.tokens[tokens], encoded.sentences[sentences], encoded.documents[chosen]
    )


def vocabulary_size(tokenizer: "Tokenizer") -> int:
    """Return the highest token id plus 1, added tokens included."""
    return max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1


def chunks(documents: Iterable[str]) -> Iterator[list[str]]:
    """Yield lists of documents of about ``CHUNK_CHARS`` characters, at most ``CHUNK_DOCUMENTS``."""
    held: list[str] = []
    size = 0
    for document in documents:
        held.append(document)
        size += len(document)
        if size >= CHUNK_CHARS or len(held) == CHUNK_DOCUMENTS:
            yield held
            held = []
            size = 0
    if held:
        yield held


def encode_all(
    tokenizer: DocumentTokenizer, documents: Iterable[str], workers: int
) -> Iterator[EncodedDocuments]:
    """Yield tokenized documents, in order."""
    if workers == 1:
        yield from map(tokenizer.encode, chunks(documents))
        return
    with scratch_directory() as scratch, _pool(tokenizer, scratch, workers) as pool:
        todo = chunks(documents)
        doing: deque[Future[EncodedDocuments]] = deque()
        try:
            doing.extend(_begin(pool, chunk) for chunk in islice(todo, 2 * workers))
            while doing:
                encoded = doing.popleft().result()
                doing.extend(_begin(pool, chunk) for chunk in islice(todo, 1))
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
    # block forever if the process is killed before it reads
    import multiprocessing

    file = scratch / "tokenizer.json"
    file.write_bytes(encoder.json)
    arguments = str(file), replace(encoder, json=b"")
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(workers, context, initializer=_prepare, initargs=arguments)


def _begin(pool: ProcessPoolExecutor, chunk: list[str]) -> "Future[EncodedDocuments]":
    """Submit a chunk; a process is started if all others are busy."""
    # A spawned process imports ``__main__``, which may be a script that builds a corpus without a
    # guard, and would run again. Workers do not need it, so it is hidden meanwhile
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        return pool.submit(_work, chunk)
    finally:
        sys.modules["__main__"] = main


_encoder: DocumentTokenizer | None = None  # global of a worker process


def _prepare(path: str, encoder: DocumentTokenizer) -> None:
    """Initialize a worker: one thread, Ctrl-C ignored, exit with its parent."""
    import multiprocessing
    import threading

    global _encoder
    _encoder = replace(encoder, json=Path(path).read_bytes())
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None, "this runs in a child"

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _work(chunk: list[str]) -> EncodedDocuments:
    assert _encoder is not None, "_prepare ran"
    return _encoder.encode(chunk)
