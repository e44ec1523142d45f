"""Hard negatives of many files: the pairs of each become a table with their negatives."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from blake3 import blake3

from zoo.data.many_files.folder import JobFolder, JobResult
from zoo.data.many_files.plan import FileJob, FileStamp
from zoo.errors import UsageError
from zoo.finetuning.embeddings.data import read_text_groups
from zoo.io.json import dump_json
from zoo.io.output.tables import table_writer
from zoo.tasks.retrieval.mining import (
    Mined,
    MiningOptions,
    OutputFormat,
    mine_hard_negatives,
    mined_rows,
)
from zoo.tasks.retrieval.scoring import Ranker

Pairs = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class MinedFormat:
    """Format of the rows that are written; see ``mined_rows``."""

    output_format: OutputFormat
    columns: tuple[str, str]
    scores: bool
    excel_safe: bool


class MinedFiles:
    """Pairs of files with their negatives, which come from the texts of all files.

    Args:
        folder: the folder of the outputs.
        options: which texts become negatives.
        file_format: format of the rows.
        corpus: further texts.
    """

    # Every process reads all files, since any text may become a negative of any pair, and any file
    # may have further texts of a query. It searches only for the queries of its own files.

    def __init__(
        self,
        folder: JobFolder,
        options: MiningOptions,
        file_format: MinedFormat,
        corpus: Sequence[str],
    ) -> None:
        if options.sampling_strategy == "random":
            raise UsageError(
                "random negatives depend on the order of all queries, and files are mined apart",
                "write one file, or leave --sampling-strategy out",
            )
        self._folder = folder
        self._options = options
        self._format = file_format
        self._corpus = corpus
        self._stamps: dict[str, FileStamp] = {}
        self._pairs: dict[str, Pairs] = {}
        for job in folder.plan.jobs:
            self._stamps[job.name] = FileStamp.read(job.source)
            groups = read_text_groups([job.source], file_format.columns)
            self._pairs[job.name] = [(group.texts[0], group.texts[1]) for group in groups]

    def settings(self, models: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the outputs depend on: models, options, and the texts of all files.

        Args:
            models: digests of the models and where they run.
        """
        texts = blake3(dump_json([self._pairs, list(self._corpus)]).encode()).hexdigest()
        return {
            **models,
            "options": asdict(self._options),
            "format": asdict(self._format),
            "set of texts": texts,
        }

    def run(
        self, models: Mapping[str, Any], ranker: Ranker, scorer: Ranker | None
    ) -> tuple[JobResult, Sequence[Mined]]:
        """Write the tables of the shard's files; return the counts and what was mined."""
        remaining_jobs = self._folder.claim(self.settings(models))
        all_mined: list[Mined] = []
        rows = 0
        for job, mined in self._mine(remaining_jobs, ranker, scorer):
            self._stamps[job.name].require_same(job.source, "after the job began")
            rows += self._write(job.output, mined)
            all_mined += mined
        return self._folder.result(written=len(remaining_jobs), rows=rows), all_mined

    def _mine(
        self, jobs: Sequence[FileJob], ranker: Ranker, scorer: Ranker | None
    ) -> Iterator[tuple[FileJob, list[Mined]]]:
        """Yield the negatives of each file, by one search for the queries of all."""
        all_pairs: list[tuple[str, str]] = []
        for pairs in self._pairs.values():
            all_pairs += pairs
        texts_of_query: dict[str, dict[str, None]] = {}
        for query, text in all_pairs:
            texts_of_query.setdefault(query, {})[text] = None
        queries: list[str] = []
        for job in jobs:
            queries += dict.fromkeys(query for query, _ in self._pairs[job.name])
        if not queries:
            return
        results = mine_hard_negatives(
            ranker,
            all_pairs,
            self._options,
            corpus=self._corpus,
            scorer=scorer,
            queries=queries,
        )
        for job in jobs:
            own_pairs = set(self._pairs[job.name])
            mined = []
            for query in dict.fromkeys(query for query, _ in self._pairs[job.name]):
                # A query has a result for each of its texts, also for those of other files.
                for _ in texts_of_query[query]:
                    result = next(results)
                    if (result.query, result.positive) in own_pairs:
                        mined.append(result)
            yield job, mined

    def _write(self, path: Path, mined: Sequence[Mined]) -> int:
        rows = 0
        with table_writer(path, excel_safe=self._format.excel_safe) as write:
            for row in mined_rows(
                mined,
                self._format.output_format,
                self._format.columns,
                self._options.num_negatives,
                scores=self._format.scores,
            ):
                write(row)
                rows += 1
        return rows
