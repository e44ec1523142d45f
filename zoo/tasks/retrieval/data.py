"""Readers of retrieval data: texts with an id, and relevance in TREC's format or BEIR's."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo.data.readers.delimited import find_dialect
from zoo.data.readers.documents import expand_paths
from zoo.data.readers.problems import RowError, RowProblems
from zoo.data.readers.tables import Row, column_names, read_rows, suffix_of
from zoo.data.readers.text_io import read_lines
from zoo.errors import SourceError, UsageError, did_you_mean
from zoo.inference.processing.inputs import read_records
from zoo.inference.processing.table_records import find_text_column
from zoo.io.numbers import parse_float
from zoo.tasks.options import CORPUS_TEXT, QUERY_TEXT

LOG = logging.getLogger("zoo")
IDS = ("_id", "id")  # names of the column of ids
TEXT = "text"  # usual name of the column of texts
TITLE = "title"
SPLIT = "test"
BEIR_HEADER = ("query-id", "corpus-id", "score")
PLAIN_TEXT = ".txt"
NUMBERED = "its texts are numbered from 0, like corpus_id of zoo run search"
MAX_IDS_SHOWN = 3  # ids that a message names


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
            return cls._find_beir(folder, split or SPLIT)
        if split is not None:
            raise UsageError("--split is for a BEIR folder", "leave it out")
        if queries is None or qrels is None:
            raise UsageError(
                "retrieval needs queries and their relevant texts",
                "name them with --queries and --qrels, or give a BEIR folder",
            )
        corpus = expand_paths(list(data))
        return cls(tuple(corpus), expand_paths([queries])[0], expand_paths([qrels])[0])

    @classmethod
    def _find_beir(cls, folder: Path, split: str) -> "RetrievalFiles":
        files = cls(
            (folder / "corpus.jsonl",),
            folder / "queries.jsonl",
            folder / "qrels" / f"{split}.tsv",
        )
        for file in files.all:
            if not file.is_file():
                remedy = "a BEIR folder has corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv"
                splits = sorted(path.stem for path in file.parent.glob("*.tsv"))
                if file.parent.name == "qrels" and splits:
                    remedy = f"--split is one of {', '.join(splits)}"
                raise SourceError(f"{file} does not exist", remedy)
        return files

    def require_columns(self, query_text: str | None, corpus_text: str | None) -> None:
        """Check the columns of queries and texts, by the first rows; raises ``UsageError``."""
        _require_columns(self.queries, query_text, QUERY_TEXT.flags)
        for path in self.corpus:
            _require_columns(path, corpus_text, CORPUS_TEXT.flags)

    @property
    def all(self) -> list[Path]:
        """All files."""
        return [*self.corpus, self.queries, self.qrels]


def _require_columns(path: Path, column: str | None, flag: str) -> None:
    names = [name for name in find_columns(path, column, flag) if name is not None]
    if names:
        next(read_rows(path, names), None)


@dataclass(frozen=True)
class RetrievalData:
    """Queries, texts and relevance."""

    queries: Mapping[str, str]  # id -> text of the queries that have a relevant text
    texts: Mapping[str, str]  # id -> text of the corpus
    # For each query, the number of a text in the corpus -> its grade.
    relevance: Sequence[Mapping[int, float]]
    unanswered: int  # number of judged queries without a relevant text

    @classmethod
    def read(
        cls,
        files: RetrievalFiles,
        limit: int | None = None,
        *,
        query_text: str | None = None,
        corpus_text: str | None = None,
    ) -> "RetrievalData":
        """Read the files.

        Args:
            files: the files.
            limit: largest number of queries.
            query_text: column of the queries; see ``read_texts``.
            corpus_text: column of the texts.
        """
        queries = read_texts([files.queries], query_text, flag=QUERY_TEXT.flags)
        texts = read_texts(files.corpus, corpus_text, flag=CORPUS_TEXT.flags)
        judgements = read_qrels(files.qrels)
        hint = _explain_ids([files.queries])
        _require_ids(judgements, queries, files.qrels, f"queries of {files.queries}", hint)
        hint = _explain_ids(files.corpus)
        corpus = ", ".join(map(str, files.corpus))
        for grades in judgements.values():
            _require_ids(grades, texts, files.qrels, f"texts of {corpus}", hint)
        answered = []
        unanswered = 0
        for name, grades in judgements.items():
            if max(grades.values()) > 0:
                answered.append(name)
            else:
                unanswered += 1
        answered = answered[:limit]
        if not answered:
            raise UsageError(f"{files.qrels} has no relevant text", "give a grade over 0 to some")
        numbers = {name: number for number, name in enumerate(texts)}
        answered_queries = {}
        relevance = []
        for name in answered:
            answered_queries[name] = queries[name]
            grades = judgements[name]
            relevance.append({numbers[text]: grade for text, grade in grades.items()})
        return cls(answered_queries, texts, relevance, unanswered)


def _explain_ids(paths: Sequence[Path]) -> str:
    """Log that the texts of files without ids are numbered, and return that as a hint."""
    if any(find_id_column(path) is not None for path in paths):
        return ""
    LOG.info("%s has no column _id or id: %s", ", ".join(map(str, paths)), NUMBERED)
    return NUMBERED


def _require_ids(
    names: Mapping[str, Any], ids: Mapping[str, str], qrels: Path, description: str, hint: str
) -> None:
    """Check that the judged names are ids of queries or of texts."""
    unknown_names = [name for name in names if name not in ids]
    if not unknown_names:
        return
    hint = hint or did_you_mean(unknown_names[0], list(ids)[:10_000])
    examples = ", ".join(map(repr, unknown_names[:MAX_IDS_SHOWN]))
    if len(unknown_names) > MAX_IDS_SHOWN:
        examples += f" and {len(unknown_names) - MAX_IDS_SHOWN:,} more"
    verb = "is not among the" if len(unknown_names) == 1 else "are not"
    raise UsageError(
        f"{qrels} judges {examples}, which {verb} {description}",
        hint or "give the files that belong together",
    )


def read_texts(
    paths: Sequence[Path],
    column: str | None = None,
    *,
    flag: str = CORPUS_TEXT.flags,
    use_ids: bool = True,
    use_titles: bool = True,
) -> dict[str, str]:
    """Return id -> text of tables, or of files with one text a line.

    The ids are the column ``_id`` or ``id``. If no file has one, they are the numbers of the texts
    from 0, over all files, which are also the ``corpus_id`` of ``zoo run search``.

    Args:
        paths: the files.
        column: column of the texts; by default ``text``, ``sentence`` or the only one.
        flag: the option that names the column, for messages.
        use_ids: whether columns of ids are read; otherwise texts are numbered.
        use_titles: whether a column ``title`` precedes its text, as in BEIR.
    """
    texts: dict[str, str] = {}
    columns = [find_columns(path, column, flag) for path in paths]
    is_numbered = not use_ids or all(key is None for key, _ in columns)
    with RowProblems() as problems:
        for path, (key, text_column) in zip(paths, columns, strict=True):
            if is_numbered:
                key = None
            elif key is None:  # Another file has ids: this one is reported without.
                key = IDS[0]
            if text_column is None and key is None:
                for record in read_records(source=str(path)):
                    texts[str(len(texts))] = record.text.strip()
                continue
            if text_column is None:
                text_column = TEXT
            names = [text_column] if key is None else [key, text_column]

            def add(row: Row, key: str | None = key, text_column: str = text_column) -> None:
                location = row.location
                values = row.values
                name = str(len(texts)) if key is None else str(values[key])
                text = row.text(text_column)
                if use_titles and text_column != TITLE and values.get(TITLE):
                    text = f"{row.text(TITLE)} {text}"
                if name in texts:
                    raise RowError(f"{location}: the id {name!r} occurs twice", "rename one")
                texts[name] = text.strip()

            rows = read_rows(path, names, problems, others=True)
            for _ in problems.checked(rows, add):
                pass
    if not texts:
        raise UsageError(f"{', '.join(map(str, paths))} has no texts", "give a table with rows")
    return texts


def find_id_column(path: Path) -> str | None:
    """Return the column of ids of a table, if there is one."""
    names = column_names(path)
    return next((name for name in IDS if name in names), None)


def find_columns(path: Path, column: str | None, flag: str) -> tuple[str | None, str | None]:
    """Return the columns of ids, if there is one, and of texts; see ``read_texts``.

    A ``.txt`` file without a column of ids has no columns, unless one is named.
    """
    key = find_id_column(path)
    if column is not None:
        return key, column
    if key is None and suffix_of(path) == PLAIN_TEXT:
        return None, None
    names = column_names(path)
    if not names:  # An empty table is reported as one without texts.
        return key, TEXT
    candidates = [name for name in names if name not in (*IDS, TITLE)]
    if len(candidates) == 1:
        return key, candidates[0]
    return key, find_text_column(path, names, TEXT, flag)


def read_qrels(path: Path) -> dict[str, dict[str, float]]:
    """Return query -> text -> grade, by ids.

    A line has a query, a text and a grade (BEIR, with a header and tabs), or a query, a number
    that is ignored, a text and a grade (TREC). BEIR's may have other separators than tabs.
    """
    judgements: dict[str, dict[str, float]] = {}
    dialect = find_dialect(path, ".tsv", BEIR_HEADER)
    delimiter = dialect.delimiter

    def add(numbered: tuple[int, str]) -> None:
        number, line = numbered
        cells = line.split(delimiter) if line.count(delimiter) == 2 else line.split()
        if tuple(cells) == BEIR_HEADER:
            return
        grade = None
        if len(cells) in (3, 4):
            grade = parse_float(cells[-1])
        if grade is None:
            raise RowError(
                f"{path}:{number} is {line[:80]!r}, not a judgement",
                "a line is 'QUERY 0 TEXT GRADE' as in TREC, or 'QUERY TEXT GRADE' as in BEIR",
            )
        query = cells[0]
        text = cells[-2]
        grades = judgements.setdefault(query, {})
        if text in grades:
            raise RowError(f"{path}:{number} judges {text!r} for {query!r} again", "remove one")
        grades[text] = grade

    def numbered_lines() -> Iterator[tuple[int, str]]:
        for number, line in enumerate(read_lines(path), 1):
            if number > dialect.skipped_lines and line.strip():
                yield number, line

    with RowProblems() as problems:
        for _ in problems.checked(numbered_lines(), add):
            pass
    if not judgements:
        raise UsageError(f"{path} has no judgements", "give a file with relevance")
    return judgements
