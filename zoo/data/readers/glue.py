"""Files, columns and metrics of GLUE (Wang et al. 2018, arXiv:1804.07461, table 1)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from zoo.errors import SourceError, UsageError, did_you_mean

PREFIX = "glue/"  # The names of tasks begin with it.


@dataclass(frozen=True)
class GlueTask:
    """A task of GLUE."""

    folder: str
    text: str  # column of the text; a number in a file without a header, see ``read_rows``
    label: str  # column of the label
    # metrics whose mean is the score of the task; the first selects checkpoints
    metrics: tuple[str, ...] = ("accuracy",)
    pair: str | None = None  # column of the second text of a pair, or ``None``
    # names of the evaluation files, without suffix. The score is the mean over them
    dev: tuple[str, ...] = ("dev",)
    # names of the texts in the form as text; empty for none, see ``text_forms``
    keys: tuple[str, ...] = ()
    # label -> its word in the form as text; empty for numbers
    words: Mapping[str, str] = field(default_factory=dict)
    # whether published rows are broken, and left out: line breaks in texts cut them in two
    has_broken_rows: bool = False

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the labels; empty for numbers."""
        if self.task == "regression":
            return ()
        return tuple(self.words) or ("0", "1")

    @property
    def task(self) -> str:
        """Name of the task of ``zoo.finetuning`` and ``zoo.evaluation``."""
        return "regression" if "pearson" in self.metrics else "text-classification"


def _words(*names: str) -> dict[str, str]:
    """Return the words of labels that are numbers from 0."""
    return {str(number): name for number, name in enumerate(names)}


def _identity(*names: str) -> dict[str, str]:
    """Return the words of labels that are words."""
    return {name: name for name in names}


SENTENCES = ("sentence1", "sentence2")
ENTAILED = ("entailment", "not_entailment")
# RTE and WNLI have the columns of MNLI, and another name for the label.
GLUE = {
    "cola": GlueTask(
        "CoLA",
        "4",
        "2",
        ("matthews_correlation",),
        keys=("sentence",),
        words=_words("unacceptable", "acceptable"),
    ),
    "sst2": GlueTask(
        "SST-2", "sentence", "label", keys=("sentence",), words=_words("negative", "positive")
    ),
    "mrpc": GlueTask(
        "MRPC",
        "#1 String",
        "Quality",
        ("accuracy", "f1"),
        pair="#2 String",
        keys=SENTENCES,
        words=_words("not_equivalent", "equivalent"),
    ),
    "stsb": GlueTask(
        "STS-B", SENTENCES[0], "score", ("pearson", "spearman"), pair=SENTENCES[1], keys=SENTENCES
    ),
    "qqp": GlueTask(
        "QQP",
        "question1",
        "is_duplicate",
        ("accuracy", "f1"),
        pair="question2",
        keys=("question1", "question2"),
        words=_words("not_duplicate", "duplicate"),
        has_broken_rows=True,
    ),
    "mnli": GlueTask(
        "MNLI",
        SENTENCES[0],
        "gold_label",
        pair=SENTENCES[1],
        dev=("dev_matched", "dev_mismatched"),
        keys=("premise", "hypothesis"),
        words=_identity("entailment", "neutral", "contradiction"),
    ),
    "qnli": GlueTask(
        "QNLI",
        "question",
        "label",
        pair="sentence",
        keys=("question", "sentence"),
        words=_identity(*ENTAILED),
    ),
    "rte": GlueTask(
        "RTE", SENTENCES[0], "label", pair=SENTENCES[1], keys=SENTENCES, words=_identity(*ENTAILED)
    ),
    "wnli": GlueTask("WNLI", SENTENCES[0], "label", pair=SENTENCES[1]),
}


def glue_task(name: str) -> GlueTask:
    """Return the task of a name such as ``glue/cola``."""
    task = GLUE.get(name.removeprefix(PREFIX))
    if task is None:
        names = [f"{PREFIX}{task_name}" for task_name in GLUE]
        raise UsageError(
            f"GLUE has no task {name!r}", did_you_mean(name, names) or f"it has {', '.join(names)}"
        )
    return task


def glue_files(task: GlueTask, data: Path) -> tuple[Path, tuple[Path, ...]]:
    """Return the training file of a task, and its evaluation files.

    The files have the layout of the site's archive: a directory for each task with ``train.tsv``
    and ``dev.tsv``. The test files have no labels.
    """
    (train_file,) = split_files(task, data, ["train"])
    return train_file, split_files(task, data, task.dev)


def split_files(task: GlueTask, data: Path, names: Sequence[str]) -> tuple[Path, ...]:
    """Return the files of a task with some names without suffix, such as ``dev``.

    Args:
        task: the task.
        data: the directory of all tasks, or of this one.
        names: names of the files.

    Raises:
        SourceError: a file is missing.
    """
    folders = []
    for name in (task.folder, task.folder.lower(), task.folder.replace("-", "").lower()):
        folders.append(data / name)
    if (data / "train.tsv").is_file():
        folders.append(data)
    folder = next((path for path in folders if path.is_dir()), folders[0])
    files = tuple(folder / f"{name}.tsv" for name in names)
    for path in files:
        if not path.is_file():
            raise SourceError(
                f"{path} is not there",
                f"give the directory with {task.folder}, as in the archive of GLUE",
            )
    return files
