"""Documents to token numbers, many at a time, in this process or in several.

A document is tokenized once, as a whole, and its tokens are then shared out among its sentences
by where they stand in the text. So the tokens of its sentences, one after the other, are the
tokens of the document, also where a token depends on the space before it. A token that reaches
from one sentence into the next is in the first.
"""

import os
import signal
import sys
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from types import ModuleType
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from zoo.data.sentences import sentence_spans
from zoo.errors import UsageError
from zoo.io.untrusted import rust_parsing

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

    from zoo.tokenizers.info import TokenizerInfo

CHUNK_CHARS = 1 << 18  # characters of the documents that are tokenized together
CHUNK_DOCUMENTS = 4096  # of them


@dataclass(frozen=True)
class EncodedDocuments:
    """Documents as tokens.

    Attributes:
        tokens: of all documents, (tokens,), of the encoder's dtype.
        sentences: how many tokens each sentence has, (sentences,), int64.
        documents: how many sentences each document has, (documents,), int64; 0 where a document
            has no tokens.
    """

    tokens: NDArray[Any]
    sentences: NDArray[np.int64]
    documents: NDArray[np.int64]


@dataclass(frozen=True)
class DocumentTokenizer:
    """Turns documents into tokens. It can be sent to another process.

    Attributes:
        json: the contents of ``tokenizer.json``.
        info: what that file does not say.
        sentences: how sentences are found, see ``Reading``.
        dtype: of the tokens.
    """

    json: bytes
    info: "TokenizerInfo"
    sentence_splitter: str
    dtype: str

    @cached_property
    def _tokenizer(self) -> "Tokenizer":
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_buffer(self.json)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True  # a text that spells one is a text
        return tokenizer

    @cached_property
    def _ordinary(self) -> NDArray[Any]:
        """What each id stands for in a text: itself, or the unknown token for a special one.

        Where a vocabulary is of words, a text can spell a special token all the same.
        """
        tokenizer, named = self._tokenizer, self.info.special
        added = tokenizer.get_added_tokens_decoder()
        special = {number for number, token in added.items() if token.special}
        found = (tokenizer.token_to_id(token) for token in named.values())
        special |= {number for number in found if number is not None}
        numbers = np.arange(vocabulary_size(tokenizer), dtype=self.dtype)
        if (unknown := tokenizer.token_to_id(named.get("unk", ""))) is not None:
            numbers[sorted(special)] = unknown
        return numbers

    def encode(self, documents: Sequence[str]) -> EncodedDocuments:
        """Tokenize documents."""
        texts, spans = zip(*(self._laid_out(document) for document in documents), strict=True)
        with rust_parsing("the tokenizer", "a tokenizer"):
            found = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        ids = chain.from_iterable(encoding.ids for encoding in found)
        total = sum(map(len, found))
        cuts = [_lengths(encoding, each) for encoding, each in zip(found, spans, strict=True)]
        return EncodedDocuments(
            tokens=self._ordinary[np.fromiter(ids, np.int64, total)],
            sentences=np.concatenate(cuts),
            documents=np.array([len(cut) for cut in cuts], dtype=np.int64),
        )

    def _laid_out(self, document: str) -> tuple[str, list[tuple[int, int]]]:
        """Return a document as one line, and where its sentences are in it."""
        lines = _lines(document)
        text = " ".join(lines)
        if self.sentence_splitter == "rule":
            return text, sentence_spans(text)
        ends = np.cumsum([len(line) + 1 for line in lines]) - 1
        return text, [
            (end - len(line), end) for line, end in zip(lines, ends.tolist(), strict=True)
        ]


def _lengths(encoding: "Encoding", spans: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """Return how many tokens each sentence has, of those that have any."""
    if len(spans) == 1:
        counts = np.array([len(encoding)], dtype=np.int64)
    else:
        starts = np.fromiter((start for start, _ in encoding.offsets), np.int64, len(encoding))
        starts = np.maximum.accumulate(starts)
        # the space before a sentence is the sentence's
        cuts = np.searchsorted(starts, [end for _, end in spans[:-1]])
        counts = np.diff(cuts, prepend=0, append=len(encoding))
    return counts[counts > 0]


def _lines(document: str) -> list[str]:
    return [line for each in document.split("\n") if (line := each.strip())]


def join_lines(document: str) -> str:
    """Return a document as the line that is tokenized."""
    return " ".join(_lines(document))


def select_documents(found: EncodedDocuments, chosen: NDArray[np.bool_]) -> EncodedDocuments:
    """Return some of the documents; ``chosen`` is (documents,)."""
    sentences = np.repeat(chosen, found.documents)
    tokens = np.repeat(sentences, found.sentences)
    return EncodedDocuments(
        found.tokens[tokens], found.sentences[sentences], found.documents[chosen]
    )


def vocabulary_size(tokenizer: "Tokenizer") -> int:
    """Return one more than the highest id."""
    return max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1


def chunks(documents: Iterable[str]) -> Iterator[list[str]]:
    """Yield documents in lists of moderate size."""
    held: list[str] = []
    size = 0
    for document in documents:
        held.append(document)
        size += len(document)
        if size >= CHUNK_CHARS or len(held) == CHUNK_DOCUMENTS:
            yield held
            held, size = [], 0
    if held:
        yield held


def encode_all(
    tokenizer: DocumentTokenizer, documents: Iterable[str], workers: int
) -> Iterator[EncodedDocuments]:
    """Tokenize documents, in order.

    Args:
        encoder: how.
        documents: as many as there are; few are held at a time.
        workers: how many processes to use besides this one; for 1, this one does it.

    Raises:
        UsageError: a process was killed.
    """
    if workers == 1:
        yield from map(tokenizer.encode, chunks(documents))
        return
    with tempfile.NamedTemporaryFile() as file, _pool(tokenizer, file, workers) as pool:
        todo = chunks(documents)
        doing: deque[Future[EncodedDocuments]] = deque()
        try:
            doing.extend(_begin(pool, chunk) for chunk in islice(todo, 2 * workers))
            while doing:
                found = doing.popleft().result()
                doing.extend(_begin(pool, chunk) for chunk in islice(todo, 1))
                yield found
        except BrokenProcessPool as error:
            raise UsageError(
                "a process that tokenizes was killed, perhaps for its memory",
                "give fewer --workers",
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def _pool(encoder: DocumentTokenizer, file: IO[bytes], workers: int) -> ProcessPoolExecutor:
    """Prepare processes, none of which is started yet.

    They read the tokenizer from a file: through the pipe that starts a process, what is large
    would wait for ever if the process was killed before it reads.
    """
    import multiprocessing

    file.write(encoder.json)
    file.flush()
    what = file.name, replace(encoder, json=b"")
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(workers, context, initializer=_prepare, initargs=what)


def _begin(pool: ProcessPoolExecutor, chunk: list[str]) -> "Future[EncodedDocuments]":
    """Hand a chunk to a process, which is started now if all others are busy.

    A new process would import the program that is run, whose ``__main__`` may well be a script
    that starts all this anew when it is imported. Nothing of it is needed, so it is hidden.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        return pool.submit(_work, chunk)
    finally:
        sys.modules["__main__"] = main


_encoder: DocumentTokenizer | None = None  # of a process that tokenizes


def _prepare(path: str, encoder: DocumentTokenizer) -> None:
    """Set up a process: one thread, no mind of its own about Ctrl-C, no life after its parent."""
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
