"""The task search: the texts of a corpus that are most similar to a query."""

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from zoo.errors import UsageError, did_you_mean
from zoo.inference.embed import WINDOWS, Embed, check_passage_options, require_passages
from zoo.inference.hybrid_embed import (
    HybridEmbed,
    Representations,
    check_representations,
    make_embed,
    parse_representations,
)
from zoo.inference.processing.inputs import read_records, require_first
from zoo.inference.processing.passages import Chunks
from zoo.inference.processing.records import RecordKeys, TextExample, as_records
from zoo.inference.processing.search import QUERIES, search_vectors
from zoo.inference.processing.table_records import InputColumns
from zoo.inference.processing.windows import WindowPooling, require_window_options
from zoo.inference.task import EncodedExample, Task
from zoo.inference.vector_record import require_same_model, require_same_prompt
from zoo.io.output.vectors import ARRAY
from zoo.overrides import override
from zoo.sentence_models.pooling import Pooling, SimilarityFunction
from zoo.tasks.options import CORPUS_TEXT, QUERY_TEXT
from zoo.tasks.retrieval.approximate import (
    METHODS,
    RECALL_QUERIES,
    RESCORE_MULTIPLIER,
    ApproximateSearch,
    SearchMethod,
    require_faiss,
)
from zoo.tasks.retrieval.index import StoredVectors, VectorIndex, find_index_files, open_index
from zoo.tasks.retrieval.scoring import check_prompts, require_ranker
from zoo.tasks.retrieval.vectors import embedded_corpus
from zoo.tasks.retrieval.window_vectors import WINDOW, WindowVectors

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.checkpoint import Checkpoint
    from zoo.inference.processing.search import BestScores

    Floats = NDArray[np.floating[Any]]
    SearchFunction = Callable[[list[Floats], int], Iterator[BestScores]]

LOG = logging.getLogger("zoo")
# Options that say how the long texts of a corpus are read.
READING_OPTIONS = ("doc_stride", "window_pooling", "chunks", "chunk_size", "late_chunking")


class SearchResults(list[dict[str, Any]]):
    """Results of queries, and how good the search was.

    Attributes:
        recall: share of the best texts of exact search that an approximate search found, measured
            on up to ``RECALL_QUERIES`` queries; ``None`` for exact search and without queries.
    """

    recall: float | None = None


class SearchedCorpus(NamedTuple):
    """What queries are compared with.

    Attributes:
        search: yields the best texts of each block of queries, given their embeddings and a number
            of texts.
        texts: columns of each text; empty if they are not known.
        query_task: embeds the queries.
    """

    search: "SearchFunction"
    texts: Sequence[Mapping[str, Any]]
    query_task: Embed


class Search(Task):
    """Search of a corpus by the similarity of the model's embeddings.

    The texts of the corpus follow the model's prompt of documents, and the others its prompt of
    queries. Results have the key ``results``: for each of the best texts ``corpus_id``, its
    number in the corpus from 0, ``score``, ``text``, and the other keys of its record. Memory
    depends neither on the number of queries nor on the size of vectors, which are in a temporary
    file. Vectors of an index take the place of a corpus; see ``open_index``. The search is exact;
    that of an index may be approximate, and then measures its ``recall``.

    With ``chunks``, the texts are the passages of the corpus: ``corpus_id`` is the number of a
    passage, and ``document``, ``start`` and ``end`` are its place; see ``Embed``. With
    ``doc_stride``, long texts are read in windows, each compared with the query. The score of a
    text is the best window's (``max``), whose characters are ``window``, their ``mean``, or the
    ``first`` one's.
    """

    name: ClassVar[str] = "search"
    heads: ClassVar[tuple[str, ...]] = ("none",)
    output_keys: ClassVar[tuple[str, ...]] = ("results",)

    @classmethod
    @override
    def require_head(cls, checkpoint: "Checkpoint") -> None:
        require_ranker(checkpoint, pairs=False)
        super().require_head(checkpoint)

    @classmethod
    @override
    def check_options(cls, checkpoint: "Checkpoint", options: Mapping[str, Any]) -> None:
        check_prompts(checkpoint, options)
        representation = options.get("representation")
        check_representations(checkpoint, representation)
        if isinstance(representation, str):
            checkpoint = checkpoint.with_representation(representation)
        check_passage_options(options)
        require_window_options(options.get("doc_stride"), options.get("window_pooling"))
        require_passages(checkpoint, options)

    @classmethod
    @override
    def columns(cls, options: dict[str, Any], text: str | None, pair: str | None) -> InputColumns:
        return replace(super().columns(options, text, pair), text_flag=QUERY_TEXT.flags)

    @classmethod
    @override
    def from_command(
        cls, records: Iterator[TextExample], options: dict[str, Any]
    ) -> tuple[Iterator[TextExample], dict[str, Any]]:
        corpus = options["corpus"]
        index = options["index"]
        if corpus is None and index is None:
            raise no_corpus()
        if index is not None:
            require_index(Path(index), corpus)
            refuse_reading_options(options)
        require_method(options["search_method"], index)
        options["representation"] = parse_representations(options["representation"])
        if corpus is not None and str(corpus) != "-":
            require_first(read_corpus(corpus, options["corpus_text"], options["doc_stride"]))
        return records, options

    def __init__(
        self,
        *args: Any,
        corpus: "Iterable[str] | PathLike[str] | None" = None,
        corpus_text: str | None = None,
        index: "str | PathLike[str] | None" = None,
        search_method: SearchMethod = "exact",
        rescore_multiplier: int = RESCORE_MULTIPLIER,
        top_k: int = 10,
        prompt_name: str | None = None,
        prompt: str | None = None,
        corpus_prompt_name: str | None = None,
        corpus_prompt: str | None = None,
        representation: Representations | None = None,
        doc_stride: int | None = None,
        window_pooling: WindowPooling | None = None,
        chunks: Chunks | None = None,
        chunk_size: int | None = None,
        late_chunking: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        check_representations(self.checkpoint, representation)
        reading_options: dict[str, Any] = {
            "doc_stride": doc_stride,
            "window_pooling": window_pooling,
            "chunks": chunks,
            "chunk_size": chunk_size,
            "late_chunking": late_chunking,
        }
        if corpus is None and index is None:
            raise no_corpus()
        if top_k < 1:
            raise UsageError(f"{top_k} results are not possible", "give 1 or more")
        if search_method not in METHODS:
            hint = did_you_mean(search_method, METHODS) or f"it takes {', '.join(METHODS)}"
            raise UsageError(f"search_method is {search_method!r}", hint)
        if rescore_multiplier < 1:
            raise UsageError(f"rescore_multiplier is {rescore_multiplier}", "give 1 or more")
        self.corpus = Path(corpus) if isinstance(corpus, str | PathLike) else corpus
        self.corpus_text = corpus_text
        self.index = None if index is None else Path(index)
        if self.index is not None:
            require_index(self.index, corpus)
            refuse_reading_options(reading_options)
        require_method(search_method, self.index)
        self.search_method = search_method
        self.rescore_multiplier = rescore_multiplier
        self.top_k = top_k
        self.recall: float | None = None
        parts = (self.checkpoint, self.session, self.tokenizer)
        options.pop("tokenizer", None)
        self.query_options: dict[str, Any] = {
            "role": "query",
            "prompt_name": prompt_name,
            "prompt": prompt,
            "representation": representation,
        }
        self.query_task = make_embed(*parts, **self.query_options)
        self.doc_stride = doc_stride
        # Whether the windows of a text have scores of their own, which late chunking does without.
        self.has_windows = doc_stride is not None and not late_chunking
        require_window_options(doc_stride, window_pooling)
        self.window_pooling: WindowPooling = window_pooling or "max"
        if self.has_windows and chunks is None:
            reading_options["window_pooling"] = self.window_pooling
        self.document_task = make_embed(
            *parts,
            representation=representation,
            **options,
            **reading_options,
            role="document",
            prompt_name=corpus_prompt_name,
            prompt=corpus_prompt,
            separate_windows=self.has_windows,
        )

    @override
    def run_chunks(
        self, records: Iterable[TextExample], *, arrays: bool = False, start: int = 0
    ) -> Iterator[Iterator[dict[str, Any]]]:
        with self._open_corpus() as corpus:
            source = iter(records)
            while True:
                chunk = list(itertools.islice(source, QUERIES))
                if not chunk:
                    return
                yield self._answered(chunk, corpus, arrays=arrays)

    @contextmanager
    def _open_corpus(self) -> Iterator["SearchedCorpus"]:
        """Yield the vectors of the corpus or of the index, and the columns of its texts."""
        if self.index is not None:
            with self._open_index(self.index) as corpus:
                yield corpus
            return
        task = self.document_task
        with embedded_corpus(task) as vectors:
            texts = []
            windows = WindowVectors(vectors, self.window_pooling, self.session.dtype)
            with self._show_embedding():
                for item, added in task.stream(self._documents()):
                    if self.has_windows:
                        windows.add(added["embedding"], added[WINDOWS])
                    else:
                        vectors.add(added["embedding"])
                    texts.append(task.keys.columns(item.record))
            if not texts:
                raise UsageError("the corpus has no texts", "give a file with texts to --corpus")
            search = windows.search if self.has_windows else vectors.search
            yield SearchedCorpus(search, texts, self.query_task)

    def _show_embedding(self) -> AbstractContextManager[None]:
        """Show how many texts of the corpus are embedded; the number of passages is not known."""
        if self.document_task.splits_records:
            return self.document_task.show_progress("embedding")
        total = len(self.corpus) if isinstance(self.corpus, Sized) else None
        reread = None
        if isinstance(self.corpus, Path) and str(self.corpus) != "-":
            reread = self._documents
        return self.document_task.show_progress("embedding", total, items=reread)

    @contextmanager
    def _open_index(self, path: Path) -> Iterator["SearchedCorpus"]:
        """Yield the vectors of an index, after checking that they fit the model."""
        has_vector = not (self.query_task.is_multi_vector or self.query_task.is_sparse)
        if not has_vector or isinstance(self.query_task, HybridEmbed):
            raise UsageError(
                f"{self.checkpoint.name} does not have one vector a text, which an index holds",
                "give the texts with --corpus",
            )
        texts = []
        if self.corpus is not None:
            texts = [RecordKeys().columns(record) for record in self._documents()]
        similarity = self.pooling.similarity_fn_name
        with open_index(path, texts, similarity) as index:
            query_task = self._fitting_task(path, index)
            search = exact_search(index.vectors, similarity)
            if self.search_method != "exact":
                approximate = ApproximateSearch(
                    index.vectors,
                    similarity,
                    self.search_method,
                    self.rescore_multiplier,
                    index.digest(),
                )
                search = self._approximate_search(approximate)
            yield SearchedCorpus(search, index.texts, query_task)

    def _approximate_search(self, index: ApproximateSearch) -> "SearchFunction":
        """Return a function that searches an index of FAISS, and first measures its recall.

        For that, some of the first queries are answered exactly as well.
        """

        def search(queries: "list[Floats]", top_k: int) -> "Iterator[BestScores]":
            import numpy as np

            if self.recall is None:
                sample = np.stack(queries[:RECALL_QUERIES])
                self.recall = index.recall(sample, index.search(sample, top_k))
                LOG.info(
                    "%s search: recall %.3f of the best %s texts of exact search, over %s queries",
                    index.method,
                    self.recall,
                    min(top_k, len(index.vectors)),
                    len(sample),
                )
            yield index.search(np.stack(queries), top_k)

        return search

    def _fitting_task(self, path: Path, index: VectorIndex) -> Embed:
        """Return the task that embeds queries as the texts of an index were embedded."""
        (_, dimension) = index.vectors.shape
        record = index.record
        if record is None:
            LOG.warning(
                "warning: %s does not say which model made it: its vectors are taken for those "
                "of %s",
                path,
                self.checkpoint.name,
            )
            if dimension != self.query_task.size:
                raise UsageError(
                    f"{path} has vectors of {dimension} numbers, and {self.checkpoint.name} of "
                    f"{self.query_task.size}",
                    "give the model that embedded the texts",
                )
            return self.query_task
        require_same_model(path, record, self.checkpoint)
        require_same_prompt(path, record, self.document_task.prompt)
        parts = (self.checkpoint, self.session, self.tokenizer)
        dim = None
        if dimension != self.query_task.size:
            dim = dimension
        return Embed(*parts, **self.query_options, dim=dim, normalize=record.normalized)

    @property
    def pooling(self) -> Pooling:
        """Pooling of the checkpoint."""
        return self.query_task.pooling

    def _documents(self) -> Iterator[TextExample]:
        """Return the records of the corpus."""
        assert self.corpus is not None, "checked by the caller"
        if isinstance(self.corpus, Path):
            return read_corpus(self.corpus, self.corpus_text, self.doc_stride)
        return as_records(self.corpus)

    def _answered(
        self,
        chunk: list[TextExample],
        corpus: "SearchedCorpus",
        *,
        arrays: bool,
    ) -> Iterator[dict[str, Any]]:
        """Yield the results of some queries."""
        for record in chunk:
            self.validate(record)
        plain = [TextExample(record.text, location=record.location) for record in chunk]
        corpus.query_task.on_progress = self.on_progress
        embedded = list(corpus.query_task.stream(plain))
        queries = [added["embedding"] for _, added in embedded]
        rows = []
        for best in corpus.search(queries, self.top_k):
            rows += best.results()
        for record, (item, _), row in zip(chunk, embedded, rows, strict=True):
            results = []
            for match in row:
                columns = {}
                if corpus.texts:
                    columns = corpus.texts[match["corpus_id"]]
                results.append({**columns, **match})
            yield self.join_result(
                item._replace(record=record), {"results": results}, arrays=arrays
            )

    @override
    def run_chunk(
        self, items: list[EncodedExample]
    ) -> Iterator[tuple[EncodedExample, dict[str, Any]]]:
        raise NotImplementedError("queries are answered by run_chunks")


def exact_search(vectors: StoredVectors, similarity: SimilarityFunction) -> "SearchFunction":
    """Return a function that compares queries with all vectors."""

    def search(queries: "list[Floats]", top_k: int) -> "Iterator[BestScores]":
        import numpy as np

        return search_vectors(np.stack(queries), vectors, top_k, similarity)

    return search


def require_method(method: str, index: object) -> None:
    """Check that vectors are stored for an approximate search, and that FAISS is installed."""
    if method == "exact":
        return
    if index is None:
        raise UsageError(
            f"--search-method {method} searches stored vectors, and there are none",
            "write them with zoo run embed --output, and give --index FILE",
        )
    require_faiss()


def read_corpus(
    path: Path | str, text: str | None, doc_stride: int | None = None
) -> Iterator[TextExample]:
    """Return the records of a file of texts to search; ``text`` names their column."""
    reserved = ["corpus_id", "score"]
    if doc_stride is not None:
        reserved.append(WINDOW)
    columns = InputColumns(
        text, reserved=tuple(reserved), text_flag=CORPUS_TEXT.flags, pair_flag=""
    )
    return read_records(source=str(path), columns=columns)


def refuse_reading_options(options: Mapping[str, Any]) -> None:
    """Refuse options of long texts for an index, whose texts have been embedded."""
    for name in READING_OPTIONS:
        if options.get(name) not in (None, False):
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(
                f"{flag} says how texts of --corpus are read, and those of an index are embedded",
                f"leave it out, or embed them again: zoo run embed {flag}",
            )


def no_corpus() -> UsageError:
    """Return the error for a search without texts."""
    return UsageError("search needs texts to search", "give --corpus FILE, or --index FILE")


def require_index(path: Path, corpus: object) -> None:
    """Check the files of an index, and that a corpus is given only if they have no texts."""
    first_file = find_index_files(path)[0]
    if corpus is not None and first_file.suffix.lower() != ARRAY:
        raise UsageError(
            f"{path} has its own texts, and --corpus names others", "leave --corpus out"
        )
