"""The task search: the texts of a corpus that are most similar to a query."""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.errors import UsageError
from zoo.inference.embed import Embed
from zoo.inference.processing.inputs import read_records, require_first
from zoo.inference.processing.records import TextExample, as_records
from zoo.inference.processing.search import QUERIES
from zoo.inference.processing.table_records import InputColumns
from zoo.inference.task import EncodedExample, Task
from zoo.overrides import override
from zoo.sentence_models.pooling import Pooling
from zoo.tasks.options import CORPUS_TEXT, QUERY_TEXT
from zoo.tasks.retrieval.scoring import require_ranker
from zoo.tasks.retrieval.vectors import CorpusVectors, corpus_vectors

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.inference.processing.search import BestScores


class Search(Task):
    """Exact search of a corpus by the similarity of the model's embeddings.

    The texts of the corpus follow the model's prompt of documents, and the others its prompt of
    queries. Results have the key ``results``: for each of the best texts ``corpus_id``, its
    number in the corpus from 0, ``score``, ``text``, and the other keys of its record. Memory
    depends neither on the number of queries nor on the size of vectors, which are in a temporary
    file.
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
    def columns(cls, options: dict[str, Any], text: str | None, pair: str | None) -> InputColumns:
        return replace(super().columns(options, text, pair), text_flag=QUERY_TEXT.flags)

    @classmethod
    @override
    def from_command(
        cls, records: Iterator[TextExample], options: dict[str, Any]
    ) -> tuple[Iterator[TextExample], dict[str, Any]]:
        corpus = options["corpus"]
        if corpus is None:
            raise no_corpus()
        if str(corpus) != "-":
            require_first(read_corpus(corpus, options["corpus_text"]))
        return records, options

    def __init__(
        self,
        *args: Any,
        corpus: "Path | str | Iterable[str] | None" = None,
        corpus_text: str | None = None,
        top_k: int = 10,
        prompt_name: str | None = None,
        prompt: str | None = None,
        corpus_prompt_name: str | None = None,
        corpus_prompt: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        if corpus is None:
            raise no_corpus()
        if top_k < 1:
            raise UsageError(f"{top_k} results are not possible", "give 1 or more")
        self.corpus = corpus
        self.corpus_text = corpus_text
        self.top_k = top_k
        parts = (self.checkpoint, self.session, self.tokenizer)
        options.pop("tokenizer", None)
        self.query_task = Embed(*parts, role="query", prompt_name=prompt_name, prompt=prompt)
        self.document_task = Embed(
            *parts,
            **options,
            role="document",
            prompt_name=corpus_prompt_name,
            prompt=corpus_prompt,
        )

    @override
    def run_chunks(
        self, records: Iterable[TextExample], *, arrays: bool = False, start: int = 0
    ) -> Iterator[Iterator[dict[str, Any]]]:
        with corpus_vectors(self.checkpoint.model.pooling or Pooling()) as vectors:
            texts = []
            for item, added in self.document_task.stream(self._documents()):
                vectors.add(added["embedding"])
                texts.append(self.document_task.keys.columns(item.record))
            if not texts:
                raise UsageError("the corpus has no texts", "give a file with texts to --corpus")
            source = iter(records)
            while True:
                chunk = list(itertools.islice(source, QUERIES))
                if not chunk:
                    return
                yield self._answered(chunk, vectors, texts, arrays=arrays)

    def _documents(self) -> Iterator[TextExample]:
        """Return the records of the corpus."""
        if isinstance(self.corpus, str | Path):
            return read_corpus(self.corpus, self.corpus_text)
        return as_records(self.corpus)

    def _answered(
        self,
        chunk: list[TextExample],
        vectors: CorpusVectors,
        texts: list[dict[str, Any]],
        *,
        arrays: bool,
    ) -> Iterator[dict[str, Any]]:
        """Yield the results of some queries."""
        for record in chunk:
            self.validate(record)
        plain = [TextExample(record.text, location=record.location) for record in chunk]
        embedded = list(self.query_task.stream(plain))
        best: list[BestScores] = list(
            vectors.search([added["embedding"] for _, added in embedded], self.top_k)
        )
        rows = (row for part in best for row in part.results())
        for record, (item, _), row in zip(chunk, embedded, rows, strict=True):
            results = [{**texts[match["corpus_id"]], **match} for match in row]
            yield self._joined(item._replace(record=record), {"results": results}, arrays=arrays)

    @override
    def run_chunk(
        self, items: list[EncodedExample]
    ) -> Iterator[tuple[EncodedExample, dict[str, Any]]]:
        raise NotImplementedError("queries are answered by run_chunks")


def read_corpus(path: Path | str, text: str | None) -> Iterator[TextExample]:
    """Return the records of a file of texts to search; ``text`` names their column."""
    columns = InputColumns(
        text, reserved=("corpus_id", "score"), text_flag=CORPUS_TEXT.flags, pair_flag=""
    )
    return read_records(source=str(path), columns=columns)


def no_corpus() -> UsageError:
    """Return the error for a search without texts."""
    return UsageError("search needs texts to search", "give --corpus FILE")
