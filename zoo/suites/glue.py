"""GLUE: nine tasks of classification and regression of texts and pairs (Wang et al. 2018)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from zoo.data.readers.glue import GLUE, PREFIX, GlueTask, split_files
from zoo.overrides import override
from zoo.suites.base import TEXT_TO_TEXT, Suite, SuiteModel, SuiteTask, TaskScore

# Metric of classifiers -> its name in results of generated texts, where they differ.
GENERATED_METRICS = {"accuracy": "exact_match"}


@dataclass(frozen=True, kw_only=True)
class GlueSuiteTask(SuiteTask):
    """A task of GLUE, on its development files.

    A metric is the mean over the files, and the score the mean of the metrics: MNLI, with two
    files, counts once, and F1 and accuracy, or two correlations, are averaged (section 3.4).
    """

    task: GlueTask

    @override
    def find_files(self, data: Path) -> Sequence[Path]:
        return split_files(self.task, data, self.task.dev)

    @override
    def obstacle(self, model: SuiteModel) -> str:
        if model.is_text_to_text and not self.task.keys:
            return "it has no text-to-text form"
        return ""

    @override
    def evaluate(self, model: SuiteModel, files: Sequence[Path]) -> TaskScore:
        names: Mapping[str, str] = {}
        results = []
        for file in files:
            if model.is_text_to_text:
                names = GENERATED_METRICS
                named_file = Path(f"{PREFIX}{self.name}={file}")
                results.append(model.evaluate(TEXT_TO_TEXT, [named_file]))
            else:
                columns = {
                    "text": self.task.text,
                    "pair": self.task.pair,
                    "label": self.task.label,
                }
                results.append(model.evaluate(self.task.task, [file], **columns))
        metrics = {}
        for metric in self.task.metrics:
            values = [result.metrics[names.get(metric, metric)] for result in results]
            if len(files) == 1:
                metrics[metric] = values[0]
                continue
            for file, value in zip(files, values, strict=True):
                metrics[f"{metric}_{file.stem.partition('_')[2]}"] = value
        return TaskScore(metrics, 100 * mean(metrics.values()))


def _make_tasks() -> tuple[SuiteTask, ...]:
    """Return the tasks, in the order of the paper's table 1."""
    tasks = []
    for name, task in GLUE.items():
        tasks.append(GlueSuiteTask(name=name, title=task.folder, task=task))
    return tuple(tasks)


SUITE = Suite(
    name="glue",
    title="GLUE",
    tasks=_make_tasks(),
    source="Wang et al. 2018, arXiv:1804.07461",
    is_finetuned=True,
)
