"""The small corpora of BEIR (Thakur et al. 2021, arXiv:2104.08663), which fit into memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from zoo.overrides import override
from zoo.suites.base import Suite, SuiteModel, SuiteTask, TaskScore
from zoo.suites.folders import find_folder
from zoo.tasks.retrieval.data import RetrievalFiles

METRICS = ("ndcg_at_10", "recall_at_100", "map")
PARENTS = ("", "datasets")  # BEIR's examples download into ``datasets``.


@dataclass(frozen=True, kw_only=True)
class BeirTask(SuiteTask):
    """The test queries of a corpus.

    BEIR's code leaves a text out that has the id of its query, in all corpora. That is right for
    ArguAna, whose queries are texts of its corpus. In FiQA and others, an equal number is chance,
    and no text is left out, as MTEB does it.
    """

    ignores_identical_ids: bool = False

    @override
    def find_files(self, data: Path) -> Sequence[Path]:
        folder = find_folder(data, (self.name,), PARENTS)
        RetrievalFiles.find([folder], None, None, None)
        return [folder]

    @override
    def evaluate(self, model: SuiteModel, files: Sequence[Path]) -> TaskScore:
        options = {"ignore_identical_ids": True} if self.ignores_identical_ids else {}
        result = model.evaluate("retrieval", files, **options)
        metrics = {name: result.metrics[name] for name in METRICS}
        return TaskScore(metrics, 100 * metrics["ndcg_at_10"])


SUITE = Suite(
    name="beir-small",
    title="BEIR (small)",
    tasks=(
        BeirTask(name="nfcorpus", title="NFCorpus"),
        BeirTask(name="scifact", title="SciFact"),
        BeirTask(name="arguana", title="ArguAna", ignores_identical_ids=True),
        BeirTask(name="scidocs", title="SCIDOCS"),
        BeirTask(name="fiqa", title="FiQA"),
        BeirTask(name="trec-covid", title="TREC-COVID"),
    ),
    source="Thakur et al. 2021, arXiv:2104.08663",
)
