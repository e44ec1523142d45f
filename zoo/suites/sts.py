"""Semantic textual similarity: seven test sets of pairs, without training.

The table of SimCSE (Gao et al. 2021, arXiv:2104.08821, table 5): Spearman's correlation of the
cosine of two embeddings with the score that people gave the pair.

Papers treat the parts of a year, such as headlines and images, in different ways. ``spearman`` is
the correlation over all pairs of a year together, which SimCSE calls "all" and recommends
(appendix B); cosines of different parts are then compared with each other.
``spearman_mean`` is the mean of the parts' correlations, and ``spearman_wmean`` weights them by
their pairs, which older papers report.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.data.readers.sts import (
    SEMEVAL_PARTS,
    ScoredPair,
    find_semeval_files,
    read_semeval_pairs,
    read_sick,
    read_sts_benchmark,
)
from zoo.metrics.ranks import correlations
from zoo.overrides import override
from zoo.suites.base import Suite, SuiteModel, SuiteTask, TaskScore
from zoo.suites.folders import SENTEVAL_PARENTS, find_folder, require_files
from zoo.suites.frozen import FrozenTask, stream_embeddings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class SemEvalTask(FrozenTask):
    """The test set of a year of SemEval, which has several parts."""

    folders: tuple[str, ...]
    parts: tuple[str, ...]

    @override
    def find_files(self, data: Path) -> Sequence[Path]:
        folder = find_folder(data, self.folders, SENTEVAL_PARENTS)
        files: list[Path] = []
        for part in self.parts:
            files += find_semeval_files(folder, part)
        return files

    @override
    def measure(self, model: SuiteModel, files: Sequence[Path]) -> TaskScore:
        import numpy as np

        part_pairs = []
        for pairs_file, scores_file in zip(files[::2], files[1::2], strict=True):
            part_pairs.append(read_semeval_pairs(pairs_file, scores_file)[: model.limit])
        all_pairs = list(itertools.chain.from_iterable(part_pairs))
        cosines = pair_cosines(model, all_pairs)
        scores = np.array([pair.score for pair in all_pairs])
        metrics = _correlations(cosines, scores)
        sizes = [len(pairs) for pairs in part_pairs]
        ends = np.cumsum(sizes)[:-1]
        part_correlations = []
        for part_cosines, part_scores in zip(
            np.split(cosines, ends), np.split(scores, ends), strict=True
        ):
            part_correlations.append(correlations(part_cosines, part_scores)["spearman"])
        metrics["spearman_mean"] = float(np.mean(part_correlations))
        metrics["spearman_wmean"] = float(np.average(part_correlations, weights=sizes))
        return TaskScore(metrics, 100 * metrics["spearman"])


@dataclass(frozen=True, kw_only=True)
class PairsTask(FrozenTask):
    """A test set in one file."""

    folders: tuple[str, ...]
    files: tuple[str, ...]  # Names that the file may have.
    read: Callable[[Path], list[ScoredPair]]

    @override
    def find_files(self, data: Path) -> Sequence[Path]:
        folder = find_folder(data, self.folders, SENTEVAL_PARENTS)
        for name in self.files:
            if (folder / name).is_file():
                return [folder / name]
        return require_files([folder / self.files[0]])

    @override
    def measure(self, model: SuiteModel, files: Sequence[Path]) -> TaskScore:
        import numpy as np

        pairs = self.read(files[0])[: model.limit]
        scores = np.array([pair.score for pair in pairs])
        metrics = _correlations(pair_cosines(model, pairs), scores)
        return TaskScore(metrics, 100 * metrics["spearman"])


def pair_cosines(model: SuiteModel, pairs: Sequence[ScoredPair]) -> "NDArray[np.float64]":
    """Return the cosine of the embeddings of each pair, (pairs,); 0 if one is zero.

    It is the cosine also where the model has another function, as in the papers.
    """
    import numpy as np

    from zoo.inference.processing.similarity import pairwise_similarity

    texts = [text for pair in pairs for text in (pair.first, pair.second)]
    cosines = np.empty(len(pairs))
    vectors = stream_embeddings(model, texts)
    for number in range(len(pairs)):
        first = next(vectors).astype(np.float64)
        second = next(vectors).astype(np.float64)
        cosines[number] = pairwise_similarity(first, second, "cosine")
    return cosines


def _correlations(
    cosines: "NDArray[np.float64]", scores: "NDArray[np.float64]"
) -> dict[str, float]:
    values = correlations(cosines, scores)
    return {"spearman": values["spearman"], "pearson": values["pearson"]}


def _make_tasks() -> tuple[SuiteTask, ...]:
    tasks: list[SuiteTask] = []
    for name, parts in SEMEVAL_PARTS.items():
        title = name.upper()
        folders = (f"{title}-en-test", title)
        tasks.append(SemEvalTask(name=name, title=title, folders=folders, parts=parts))
    tasks.append(
        PairsTask(
            name="sts-benchmark",
            title="STS Benchmark",
            folders=("STSBenchmark", "stsbenchmark", "STS-B"),
            files=("sts-test.csv", "sts-test.tsv"),
            read=read_sts_benchmark,
        )
    )
    tasks.append(
        PairsTask(
            name="sick-r",
            title="SICK-R",
            folders=("SICK",),
            files=("SICK_test_annotated.txt",),
            read=read_sick,
        )
    )
    return tuple(tasks)


SUITE = Suite(
    name="sts",
    title="STS",
    tasks=_make_tasks(),
    source="Gao et al. 2021, arXiv:2104.08821, table 5",
)
