"""The configuration of a fine-tuning run; see ``zoo.finetuning``."""

import math
from typing import Any, ClassVar, Literal, Self

import msgspec

from zoo.errors import UsageError
from zoo.families.recipe import LRSchedulerConfig, OptimizerConfig
from zoo.io.limits import MAX_ROW_TOKENS, MAX_RUN_NUMBER
from zoo.training.config.schema import FSDPConfig, InitConfig, check_run_numbers
from zoo.training.config.sources import MAX_TEMPERATURE


class TableConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Labelled data of a run."""

    train: tuple[str, ...]  # Files to train on.
    eval: tuple[str, ...] = ()  # Files to evaluate on; empty to hold out a part of ``train``.
    unlabelled: tuple[str, ...] = ()  # Files of texts without labels, for tasks that read them.
    # Fraction of the samples to hold out, selected by a hash of their contents.
    eval_fraction: float = 0.1
    text: str = "text"  # Column of the text; its number, from 1, in a file without a header.
    pair: str | None = None  # Column of the second text of a pair; ``None`` for single texts.
    # Columns of texts that do not belong to the first, for sentence embeddings.
    negatives: tuple[str, ...] = ()
    # Column of the score of pairs of texts in ``eval``, for sentence embeddings that are trained
    # without scores; ``None`` where ``eval`` has the columns of ``train``.
    eval_score: str | None = None
    # Column of the label, or of a target text; ``None`` for the task's, mostly ``label``.
    label: str | None = None
    # Column of lists of choices, or one column for each choice, for multiple choice; empty to find
    # them by their names.
    choices: tuple[str, ...] = ()
    # All labels, in the order of the model's outputs; ``None`` for the training data's,
    # sorted, integers as numbers.
    labels: tuple[str, ...] | None = None
    label_separator: str = ","  # Separator of the labels of a sample of multi-label classification.
    # Text before each source of a text-to-text task, also by name of the data set. The default is
    # ``NAME: `` for files that are given as ``NAME=FILE``, and none for others; with ``pair``,
    # ``NAME TEXT: `` with the name of the column of the text.
    prefix: str | dict[str, str] | None = None
    # Text between the two texts of a text-to-text task with ``pair``, also by name of the data set.
    # The default is ``PAIR: ``, the name of the column of the second text.
    pair_prefix: str | dict[str, str] | None = None
    # Number of rows of a data set that an epoch over several has at most, the limit K of
    # examples-proportional mixing (Raffel et al. 2020, arXiv:1910.10683, section 3.5.2); ``None``
    # for all.
    mixing_limit: int | None = None
    # Source -> its share of the rows of a run, if ``train`` has ``NAME=FILE``; they add up to 1.
    weights: dict[str, float] | msgspec.UnsetType = msgspec.UNSET
    # Then, in place of weights: shares are proportional to the number of rows of each source, or to
    # ``mixing_limit`` if that is less, to the power of 1 / ``temperature`` (same section).
    temperature: float | msgspec.UnsetType = msgspec.UNSET
    # Leave out and count the rows that cannot be used, instead of refusing them.
    skip_invalid: bool = False

    def __post_init__(self) -> None:
        if not self.train:
            raise ValueError("train names no file")
        for path in (*self.train, *self.eval, *self.unlabelled):
            if "\0" in path:
                raise ValueError(f"{path!r} is not a path: it contains a NUL")
        if not 0 < self.eval_fraction < 1:
            raise ValueError(f"eval_fraction is {self.eval_fraction}, not between 0 and 1")
        if not self.label_separator:
            raise ValueError("label_separator is empty")
        if self.mixing_limit is not None and self.mixing_limit < 1:
            raise ValueError(f"mixing_limit is {self.mixing_limit}, not positive")
        if self.weights and self.mixing_limit is not None:
            raise ValueError("mixing_limit and weights both decide the shares: leave one out")
        if self.temperature is msgspec.UNSET:
            return
        if not 0 < self.temperature <= MAX_TEMPERATURE:
            raise ValueError(
                f"temperature is {self.temperature}, and above 0 to {MAX_TEMPERATURE:g} is accepted"
            )
        if self.weights:
            raise ValueError("temperature and weights both decide the shares: leave one out")

    @property
    def has_shares(self) -> bool:
        """Whether weights or a temperature decide the shares of named sources."""
        return bool(self.weights) or self.temperature is not msgspec.UNSET

    @property
    def settings_of_shares(self) -> tuple[str, ...]:
        """Names of settings that are read for the shares, whatever the task reads."""
        return () if self.temperature is msgspec.UNSET else ("data.mixing_limit",)

    @property
    def label_column(self) -> str:
        """Column of the label."""
        return "label" if self.label is None else self.label


class FineTuneConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of a fine-tuning run. A name that transformers has means the same there."""

    batch_option: ClassVar[str] = "batch_size"
    seq_len_warmup_steps: ClassVar[int] = 0

    task: str  # Name of the task, see ``zoo.plugins.tasks``.
    task_args: dict[str, Any] = msgspec.field(default_factory=dict)  # Options of the task.
    family: str
    # Pretrained weights to start from; ``None`` for new weights. Modules named in ``new_modules``
    # get new weights even if the checkpoint has some.
    init_from: InitConfig | None = None
    # Take only configuration and tokenizer from ``init_from``, and begin with new weights.
    random_weights: bool = False
    # Method and settings of an adapter, which is trained in place of the model, with a head of
    # labels; see ``zoo.adapters``. ``None`` to train the model.
    adapter: dict[str, Any] | None = None
    size: str | None = None  # Model size of the family, for new weights.
    # Checkpoint whose tokenizer is used, or ``train`` for one that is trained on the texts, for new
    # weights.
    tokenizer: str | None = None
    # Whether a tokenizer that is trained lower-cases texts.
    lowercase: bool = False
    # Whether a tokenizer that is trained removes accents; ``None`` to do so if it lower-cases.
    strip_accents: bool | None = None
    # Vocabulary size of a tokenizer that is trained; ``None`` for the size's.
    vocab_size: int | None = None
    # Fields of the model's configuration to change; of a pretrained model, only dropout
    # and the tokens with global attention.
    config: dict[str, Any] = msgspec.field(default_factory=dict)
    data: TableConfig  # The labelled data.
    # Name of the preset that the defaults are from, see ``Family.presets``.
    preset: str | None = None
    # Number of tokens that texts are truncated to, at most the model's limit.
    max_seq_len: int = 128
    batch_size: int = 32  # Number of samples per step, over all micro-batches and ranks.
    # Number of samples per forward pass; ``None`` for the whole step, or for 8 on a CPU if rows are
    # not packed there and samples are not compared with others.
    micro_batch_size: int | None = None
    num_train_epochs: float = 3.0  # Number of passes over the data, unless ``max_steps`` is given.
    max_steps: int = 0  # Number of optimizer steps; 0 to compute it from ``num_train_epochs``.
    # Fraction of the steps that are warm-up, unless ``lr_scheduler.warmup_steps`` is given.
    warmup_ratio: float = 0.0
    optimizer: OptimizerConfig  # Settings of the optimizer, with ``layerwise_lr_decay``.
    lr_scheduler: LRSchedulerConfig = LRSchedulerConfig()  # Learning-rate schedule.
    # Decay of an exponential moving average of the weights, or ``None``.
    ema_decay: float | None = None
    # Number of lowest layers of each stack that are not trained, and with them the embeddings; 0 to
    # train all.
    freeze_layers: int = 0
    # Number of highest layers of each stack, and the pooler, that get new weights (Zhang et al.
    # 2021, arXiv:2006.05987, section 5).
    reinit_layers: int = 0
    # Weight of each label in the loss: ``balanced`` for weights in inverse proportion to the
    # labels' frequencies, with a mean of 1 over the samples; or a weight for each label. The loss
    # is the weighted mean, as in ``torch.nn.CrossEntropyLoss``.
    class_weights: Literal["balanced"] | dict[str, float] | None = None
    # Metrics of evaluations in addition to the task's, such as ``bleu`` or, with a setting,
    # ``bleu:lowercase=true``.
    metrics: tuple[str, ...] = ()
    # Value of an evaluation that selects the best checkpoint, which becomes the final model:
    # ``loss``, or a metric; ``None`` for the task's.
    metric_for_best_model: str | None = None
    # Whether a higher value is better; ``None`` to decide by its name.
    greater_is_better: bool | None = None
    # Number of evaluations in a row without a better value after which the run ends; ``None`` to
    # train to the last step.
    early_stopping_patience: int | None = None
    # The fields below without a comment are those of ``TrainConfig``.

    seed: int = 0
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    compile: bool = False
    deterministic: bool = False
    gradient_checkpointing: bool = False
    fsdp: bool = False
    fsdp_config: FSDPConfig | None = None
    logging_steps: int = 10
    eval_steps: int = 0  # Number of steps between evaluations; 0 for an epoch.
    save_steps: int = 0  # Number of steps between checkpoints; 0 for ``eval_steps``.
    save_total_limit: int = 1  # Number of last checkpoints to keep, besides the best one.
    async_save: bool = True
    # Keep the optimizer's state when the run ends, for ``--continue-from``; a run that has not
    # ended always has it.
    keep_optimizer: bool = False
    report_to: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        positive = ("batch_size", "micro_batch_size", "early_stopping_patience")
        from_zero = ("max_steps", "freeze_layers", "reinit_layers", "eval_steps", "save_steps")
        ranges = {name: (1, MAX_RUN_NUMBER) for name in positive}
        ranges |= {name: (0, MAX_RUN_NUMBER) for name in from_zero}
        check_run_numbers(self, {**ranges, "max_seq_len": (1, MAX_ROW_TOKENS)})
        if not 0 < self.num_train_epochs < math.inf:
            raise ValueError(f"num_train_epochs is {self.num_train_epochs}, not positive")
        if not 0 <= self.warmup_ratio < 1:
            raise ValueError(f"warmup_ratio is {self.warmup_ratio}, which is not in [0, 1)")
        if self.save_steps and self.eval_steps % self.save_steps:
            raise ValueError(
                f"save_steps is {self.save_steps}, and does not divide eval_steps: the best "
                "evaluation has to have a checkpoint"
            )

    @property
    def run_name(self) -> str:
        """Name of the default directory of a run."""
        return f"{self.family}-{self.task.replace('/', '-')}"

    def step_sizes(self) -> list[int]:
        """Return the numbers of rows that a step may have."""
        return [self.batch_size]

    def resolved(self, rows: int, **changes: Any) -> Self:
        """Return the configuration with the numbers of steps that follow from the data."""
        steps = self.max_steps or math.ceil(self.num_train_epochs * rows / self.batch_size)
        eval_steps = self.eval_steps or min(steps, math.ceil(rows / self.batch_size))
        schedule = self.lr_scheduler
        warmup = math.ceil(self.warmup_ratio * steps)
        if not schedule.warmup_steps and warmup:
            schedule = msgspec.structs.replace(schedule, warmup_steps=warmup)
        try:
            return msgspec.structs.replace(
                self,
                max_steps=steps,
                eval_steps=eval_steps,
                save_steps=self.save_steps or eval_steps,
                lr_scheduler=schedule,
                **changes,
            )
        except ValueError as error:
            raise UsageError(str(error), f"eval_steps is {eval_steps} by default") from error
