"""Declarations of tasks: plain data that commands, tables of the docs and model cards derive from.

A declaration imports nothing of the task it describes. It names the classes that run, train and
evaluate the task, which are imported when they are used.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Part = Literal["predict", "train", "evaluate"]
# What the values of a column are: a text, a list of texts, a number, a class (a text or a number),
# or anything.
ColumnValues = Literal["text", "texts", "number", "class", "any"]
# What the labels of rows of logits are: the index of a class, int64, (n,), with ``IGNORED`` for
# rows without one; a number, float32, (n,); or a number from 0 to 1 for each class, float32,
# (n, classes).
LabelType = Literal["classes", "numbers", "probabilities"]


@dataclass(frozen=True)
class TaskOption:
    """An option of a task on the command line.

    Attributes:
        name: argument of the class that gets the value, with underscores.
        help: one line.
        type: ``str``, ``int``, ``float``, ``bool`` for a flag, or ``Path`` for a file, which
            shells complete.
        flag: the option; by default ``--`` and the name with hyphens. ``--a/--no-a`` for a flag
            that is neither on nor off by default.
        minimum: smallest value of a number.
        maximum: largest value.
        exclusive: whether ``minimum`` and ``maximum`` themselves are excluded.
        choices: all allowed values, or empty.
        default: value where the option is not given; help shows it unless it is ``None``.
        metavar: placeholder of the value in help.
        multiple: whether the option may be repeated.
        setting: for fine-tuning, the setting that the option stands for, such as
            ``data.negatives``.
    """

    name: str
    help: str
    type: type = str
    flag: str = ""
    minimum: Any = None
    maximum: Any = None
    exclusive: bool = False
    choices: tuple[str, ...] = ()
    default: Any = None
    metavar: str | None = None
    multiple: bool = False
    setting: str = ""

    @property
    def flags(self) -> str:
        """The option as it is declared, such as ``--top-k``."""
        return self.flag or f"--{self.name.replace('_', '-')}"


@dataclass(frozen=True)
class TaskColumn:
    """A column of the tables that a task is trained and evaluated on.

    Attributes:
        name: default name; empty if only an option names the column.
        values: what the values are.
        required: whether each table has the column.
        aliases: further default names.
    """

    name: str = ""
    values: ColumnValues = "text"
    required: bool = True
    aliases: tuple[str, ...] = ()

    @property
    def default_names(self) -> tuple[str, ...]:
        """The names under which the column is recognized without an option."""
        return (self.name, *self.aliases) if self.name else ()


@dataclass(frozen=True)
class ModelField:
    """A field of a model's ``config.json`` that a task sets, and that no class of the Hub has."""

    name: str
    effect: str  # what the model does if it is set, after "the model"
    setting: str  # of fine-tuning that leads to it


@dataclass(frozen=True)
class SmokeTest:
    """A run of seconds that checks that a family learns a task."""

    steps: int  # of the optimizer
    batch_size: int  # rows of a step
    # returns a row of the table from its number, a word, whether the word is of the first kind, and
    # a word of the other kind
    row: Callable[[int, str, bool, str], Mapping[str, Any]]


@dataclass(frozen=True)
class TaskSpec:
    """Declaration of a task.

    Attributes:
        name: name of the task, as the Hub's where it has one: ``question-answering``.
        summary: one line, imperative: what a model of the task does.
        verb: short name that ``zoo run`` lists, such as ``answer``; heads list it as theirs. Tasks
            may share a verb: the head of a model decides which one runs. By default the name.
        synonyms: further names by which commands know the task.
        heads: names of the heads that the task trains.
        output: axes of the output that the task reads, such as ``batch choices``, where these
            tell tasks of one verb apart.
        predict: ``module:Class``, a ``zoo.inference.task.Task`` that ``zoo run`` uses; empty for
            none.
        train: ``module:NAME``, a ``zoo.finetuning.task.FineTuningTask`` that ``zoo finetune``
            uses.
        evaluate: ``module:Class``, a ``zoo.evaluation.base.Evaluation`` that ``zoo eval`` uses.
        run_options: options of ``zoo run``.
        input_flag: another name of ``--input`` of ``zoo run``, such as ``--queries``.
        text_flag: another name of ``--text`` of ``zoo run``, such as ``--query-text``.
        train_options: options of ``zoo finetune``, each with its setting.
        losses: ``module:function`` that returns the losses of ``task_args.loss``, classes with a
            ``name`` and ``summary``, for help; empty if help has none.
        settings: further settings of fine-tuning that not every task reads.
        columns: option -> column of the tables that the task is trained and evaluated on; a column
            without an option has a name of its own. Empty if the task reads no table.
        file_patterns: names of files, or of files in a directory, that the task reads and that are
            not such tables, such as ``*.json``.
        eval_columns: columns for evaluations that read different tables than training, and only
            tables.
        eval_options: options of ``zoo eval``.
        metrics: metrics by which models of the task are compared, as by ``zoo export --eval``; the
            first that an evaluation has is used. Empty if none is.
        model_fields: fields of ``config.json`` that only models of the task have.
        pipeline_tag: tag of the Hub for models with a head of the task.
        tokenizer_call: arguments of transformers' tokenizer in the snippet of a model card, for
            tags that no pipeline of transformers has.
        model_call: what that snippet prints, from ``model`` and ``inputs``.
        verb_summary: one line on all tasks of the verb, on the first of them.
        examples: examples and formats in the help of ``zoo run``; by default for texts.
        smoke: run of seconds for tests of families.
        internal: whether commands neither list nor suggest the task.
    """

    name: str
    summary: str
    verb: str = ""
    synonyms: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()
    output: str = ""
    predict: str = ""
    train: str = ""
    evaluate: str = ""
    run_options: tuple[TaskOption, ...] = ()
    input_flag: str = ""
    text_flag: str = ""
    train_options: tuple[TaskOption, ...] = ()
    losses: str = ""
    settings: tuple[str, ...] = ()
    columns: Mapping[str, TaskColumn] = field(default_factory=dict)
    file_patterns: tuple[str, ...] = ()
    eval_columns: Mapping[str, TaskColumn] = field(default_factory=dict)
    eval_options: tuple[TaskOption, ...] = ()
    metrics: tuple[str, ...] = ()
    model_fields: tuple[ModelField, ...] = ()
    pipeline_tag: str = ""
    tokenizer_call: str = '"A text."'
    model_call: str = "model(**inputs)"
    verb_summary: str = ""
    examples: str = ""
    smoke: SmokeTest | None = None
    internal: bool = False

    @property
    def command(self) -> str:
        """Name of the command of ``zoo run``."""
        return self.verb or self.name

    def known_as(self, name: str) -> bool:
        """Return whether a name is the task's name, its verb or a synonym."""
        return name in (self.name, self.verb, *self.synonyms)

    def has(self, part: Part) -> bool:
        """Return whether the task can be run, trained or evaluated."""
        return bool(getattr(self, part))
