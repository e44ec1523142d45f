"""Readers of retrieval data: texts with an id, and relevance in TREC's format or BEIR's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo.data.readers.delimited import find_dialect
from zoo.data.readers.documents import expand_paths
from zoo.data.readers.problems import RowError, RowProblems
from zoo.data.readers.tables import Row, column_names, read_rows
from zoo.data.readers.text_io import read_lines
from zoo.errors import SourceError, UsageError, did_you_mean
from zoo.io.numbers import parse_float

IDS = ("_id", "id")  # names of the column of ids
SPLIT = "test"
BEIR_HEADER = ("query-id", "corpus-id", "score")
SHOWN = 3  # ids that a message names


@dataclass(frozen=True)
class RetrievalFiles:
    """Files of retrieval data."""

    corpus: tuple[Path, ...]
    queries: Path
    qrels: Path

    @classmethod
    def find(
        cls, data: Sequence[Path], queries: str | None, qrels: str | None, split: str | None
    ) -> "RetrievalFiles":
        """Return the files of a BEIR folder, or of a corpus with queries and relevance."""
        folder = Path(data[0]).expanduser()
        if len(data) == 1 and folder.is_dir() and queries is None and qrels is None:
            files = cls(
                (folder / "corpus.jsonl",),
                folder / "queries.jsonl",
                folder / "qrels" / f"{split or SPLIT}.tsv",
            )
            for file in (*files.corpus, files.queries, files.qrels):
                if not file.is_file():
                    remedy = "a BEIR folder has corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv"
                    splits = sorted(path.stem for path in file.parent.glob("*.tsv"))
                    if file.parent.name == "qrels" and splits:
                        remedy = f"--split is one of {', '.join(splits)}"
                    raise SourceError(f"{file} does not exist", remedy)
            return files
        if split is not None:
            raise UsageError("--split is for a BEIR folder", "leave it out")
        if queries is None or qrels is None:
            raise UsageError(
                "retrieval needs queries and their relevant texts",
                "name them with --queries and --qrels, or give a BEIR folder",
            )
        corpus = expand_paths(list(data))
        return cls(tuple(corpus), *(expand_paths([file])[0] for file in (queries, qrels)))

    @property
    def all(self) -> list[Path]:
        """All files."""
        return [*self.corpus, self.queries, self.qrels]


@dataclass(frozen=True)
class RetrievalData:
    """Queries, texts and relevance."""

    queries: Mapping[str, str]  # id -> text of the queries that have a relevant text
    texts: Mapping[str, str]  # id -> text of the corpus
    # for each query, the number of a text in the corpus -> its grade
    relevance: Sequence[Mapping[int, float]]
    unanswered: int  # number of judged queries without a relevant text

    @classmethod
    def read(cls, files: RetrievalFiles, limit: int | None = None) -> "RetrievalData":
        """Read the files; ``limit`` is a number of queries."""
        queries = read_texts([files.queries])
        texts = read_texts(files.corpus)
        judged = read_qrels(files.qrels)
        _require_known(judged, queries, files.qrels, f"queries of {files.queries}")
        corpus = ", ".join(map(str, files.corpus))
        for grades in judged.values():
            _require_known(grades, texts, files.qrels, f"texts of {corpus}")
        answered = [name for name, grades in judged.items() if max(grades.values()) > 0][:limit]
        if not answered:
            raise UsageError(f"{files.qrels} has no relevant text", "give a grade over 0 to some")
        numbers = {name: number for number, name in enumerate(texts)}
        return cls(
            {name: queries[name] for name in answered},
            texts,
            [{numbers[text]: grade for text, grade in judged[name].items()} for name in answered],
            sum(max(grades.values()) <= 0 for grades in judged.values()),
        )


def _require_known(
    names: Mapping[str, Any], known: Mapping[str, str], qrels: Path, which: str
) -> None:
    unknown = [name for name in names if name not in known]
    if not unknown:
        return
    listed = ", ".join(map(repr, unknown[:SHOWN]))
    more = f" and {len(unknown) - SHOWN:,} more" if len(unknown) > SHOWN else ""
    verb = "are not" if unknown[1:] else "is not among the"
    raise UsageError(
        f"{qrels} judges {listed}{more}, which {verb} {which}",
        did_you_mean(unknown[0], list(known)[:10_000]) or "give the files that belong together",
    )


def read_texts(paths: Sequence[Path]) -> dict[str, str]:
    """Return id -> text of tables with the columns ``_id`` or ``id``, ``text``, and ``title``."""
    # A title precedes its text, as in BEIR.
    texts: dict[str, str] = {}
    with RowProblems() as problems:
        for path in paths:
            columns = column_names(path)
            key = next((name for name in IDS if name in columns), IDS[0])

            def add(row: Row, key: str = key) -> None:
                location = row.location
                values = row.values
                name = str(values[key])
                text = row.text("text")
                title = row.text("title") if values.get("title") else ""
                if name in texts:
                    raise RowError(f"{location}: the id {name!r} occurs twice", "rename one")
                texts[name] = f"{title} {text}".strip()

            for _ in problems.checked(read_rows(path, [key, "text"], problems, others=True), add):
                pass
    if not texts:
        raise UsageError(f"{', '.join(map(str, paths))} has no texts", "give a table with rows")
    return texts


def read_qrels(path: Path) -> dict[str, dict[str, float]]:
    """Return query -> text -> grade, by ids."""
    # A line has a query, a text and a grade (BEIR, with a header and tabs), or a query, a number
    # that is ignored, a text and a grade (TREC). BEIR's may have other separators than tabs.
    judged: dict[str, dict[str, float]] = {}
    dialect = find_dialect(path, ".tsv", BEIR_HEADER)
    delimiter = dialect.delimiter

    def add(numbered: tuple[int, str]) -> None:
        number, line = numbered
        cells = line.split(delimiter) if line.count(delimiter) == 2 else line.split()
        if tuple(cells) == BEIR_HEADER:
            return
        grade = parse_float(cells[-1]) if len(cells) in (3, 4) else None
        if grade is None:
            raise RowError(
                f"{path}:{number} is {line[:80]!r}, not a judgement",
                "a line is 'QUERY 0 TEXT GRADE' as in TREC, or 'QUERY TEXT GRADE' as in BEIR",
            )
        query = cells[0]
        text = cells[-2]
        if text in judged.setdefault(query, {}):
            raise RowError(f"{path}:{number} judges {text!r} for {query!r} again", "remove one")
        judged[query][text] = grade

    with RowProblems() as problems:
        lines = enumerate(read_lines(path), 1)
        numbered = ((k, line) for k, line in lines if line.strip() and k > dialect.skipped_lines)
        for _ in problems.checked(numbered, add):
            pass
    if not judged:
        raise UsageError(f"{path} has no judgements", "give a file with relevance")
    return judged
