"""The configuration of a run, and its construction from recipe, file and options."""

import contextlib
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import msgspec

from zoo.adapted_models.registry import require_packed_documents, with_adapter
from zoo.data.readers.documents import ReaderConfig
from zoo.errors import SourceError, UsageError
from zoo.families.recipe import OptimizerConfig, Recipe
from zoo.io.limits import MAX_LANES, MAX_NEW_VOCABULARY, MAX_ROW_TOKENS, MAX_RUN_NUMBER
from zoo.training.config.init_checkpoint import (
    config_differences,
    config_similarity,
    resolve_init_checkpoint,
)
from zoo.training.config.overrides import (
    ConfigDict,
    check_keys,
    check_tables,
    deep_merge,
    merge_settings,
    with_location,
    wrong_entry,
)
from zoo.training.config.sources import (
    MAX_TEMPERATURE,
    CurriculumStage,
    Mixing,
    SourceConfig,
    check_sources,
)
from zoo.training.config.synonyms import ALTERNATIVES
from zoo.training.optim.optimizers import optimizer_method

if TYPE_CHECKING:
    from zoo.families.base import Family


# Field -> least and largest value.
_RANGES = {
    "vocab_size": (1, MAX_NEW_VOCABULARY),
    "logging_steps": (1, MAX_RUN_NUMBER),
    "save_total_limit": (1, MAX_RUN_NUMBER),
    "seed": (-(2**63), 2**64 - 1),
}


def check_run_numbers(config: Any, ranges: Mapping[str, tuple[int, int]]) -> None:
    """Check the numbers of a configuration."""
    check_ranges(config, {**_RANGES, **ranges})
    if config.ema_decay is not None and not 0 <= config.ema_decay < 1:
        raise ValueError(f"ema_decay is {config.ema_decay}, which is not in [0, 1)")
    check_fsdp(config)


def check_ranges(settings: Any, ranges: Mapping[str, tuple[int, int]]) -> None:
    """Check the numbers of settings by name -> least and largest value."""
    for name, (least, most) in ranges.items():
        value = getattr(settings, name)
        if value is not None and not least <= value <= most:
            raise ValueError(f"{name} is {value}, and {least:,} to {most:,} is accepted")


StructT = TypeVar("StructT", bound=msgspec.Struct)
# A run may change the fields whose names end so, also of a pretrained model.
DROPOUT = "dropout"


class FSDPConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How FSDP2 shards a model; the names are those of ``torch.distributed.fsdp``.

    ``dp_replicate_size`` is named as in transformers' ``parallelism_config``.
    """

    # Number of groups of processes, each of which has all weights, sharded over its processes
    # (hybrid sharding): weights are gathered within a group, such as a machine, and gradients are
    # averaged over all groups. 1 to shard over all processes.
    dp_replicate_size: int = 1
    # Free the gathered weights of a block after its forward pass, and gather them again for the
    # backward pass. Otherwise they stay until the end of a step's last backward pass, which takes
    # the memory of all weights, and gathers them once for all micro-batches.
    reshard_after_forward: bool = True
    # Number of blocks ahead whose weights are gathered while a block computes in the forward pass.
    forward_prefetch: int = 0
    # The same in the backward pass.
    backward_prefetch: int = 1
    # Dtype in which weights are gathered and used, with ``precision: bfloat16``; the optimizer
    # updates them in float32.
    param_dtype: Literal["float32", "bfloat16"] = "float32"
    # Dtype in which gradients are summed over processes, and over micro-batches.
    reduce_dtype: Literal["float32", "bfloat16"] = "float32"

    def __post_init__(self) -> None:
        least_values = {"dp_replicate_size": 1, "forward_prefetch": 0, "backward_prefetch": 1}
        ranges = {name: (least, MAX_RUN_NUMBER) for name, least in least_values.items()}
        check_ranges(self, ranges)
        if self.reduce_dtype == "bfloat16" and self.param_dtype == "float32":
            raise ValueError("reduce_dtype is bfloat16, which needs param_dtype bfloat16")


def check_fsdp(config: Any) -> None:
    """Check that the settings of FSDP go with the others of a run."""
    if config.fsdp_config is None:
        return
    if not config.fsdp:
        raise ValueError("fsdp_config is set, and needs fsdp")
    if config.fsdp_config.param_dtype == "bfloat16" and config.precision != "bfloat16":
        raise ValueError(
            f"fsdp_config.param_dtype is bfloat16, and precision is {config.precision}: it needs "
            "bfloat16"
        )


class StreamConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the training data is read with ``data.streaming``, or sources that are streams."""

    # Number of parts in which the files are read side by side. Each process of a run reads the
    # lanes of its rows: a multiple of the number of processes, and a divisor of the rows of a step.
    lanes: int = 8
    # Number of documents of a lane that are shuffled together. A lane reads more of them if they
    # fill less than 64 rows, and fewer if they have over a million characters.
    shuffle_buffer: int = 256
    # Number of documents that are held out for evaluation, the first ones of the files; 0 if
    # ``data.eval_paths`` has others. Of several sources, each without ``eval_paths`` has so many.
    eval_documents: int = 0

    def __post_init__(self) -> None:
        check_ranges(
            self,
            {
                "lanes": (1, MAX_LANES),
                "shuffle_buffer": (1, MAX_RUN_NUMBER),
                "eval_documents": (0, MAX_RUN_NUMBER),
            },
        )


class DataConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Training and evaluation data."""

    # Files, directories, patterns, or one prebuilt corpus; empty for the small corpus of the
    # package.
    paths: tuple[str, ...] = ()
    eval_paths: tuple[str, ...] = ()  # Held-out files; empty to hold out a part of ``paths``.
    # Reference to a checkpoint whose tokenizer is used, or ``train``; ``None`` for the pretrained
    # model's, or a new one if there is none.
    tokenizer: str | None = None
    # Whether a tokenizer that is trained lower-cases texts.
    lowercase: bool = False
    # Whether a tokenizer that is trained removes accents; ``None`` to do so if it lower-cases.
    strip_accents: bool | None = None
    reader: ReaderConfig = ReaderConfig()  # Separation of files into documents and sentences.
    # Read ``paths`` while training on them, without a corpus; with ``sources``, all that do not
    # have a setting of their own.
    streaming: bool = False
    stream: StreamConfig = StreamConfig()  # How they are read then.
    # Name -> a source of text, in place of ``paths``: rows of several sources are mixed.
    sources: dict[str, SourceConfig] | msgspec.UnsetType = msgspec.UNSET
    # What decides how often sources are read: their share of the ``tokens``, which ``weight`` of
    # each source sets and is the default; the ``epochs`` of each source; or their size and a
    # ``temperature``.
    mixing: Mixing | msgspec.UnsetType = msgspec.UNSET
    # Shares are proportional to the sizes of the sources to the power of 1 / ``temperature``; 1 by
    # default, higher for more equal shares (Raffel et al. 2020, arXiv:1910.10683, section 3.5.2).
    temperature: float | msgspec.UnsetType = msgspec.UNSET
    # Number of tokens up to which the size of a source counts for ``mixing: temperature``, the
    # limit K of the same section; all by default.
    mixing_limit: int | msgspec.UnsetType = msgspec.UNSET
    # Stages of a curriculum: other weights of the sources, each from a step on.
    curriculum: tuple[CurriculumStage, ...] | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        _check_names(*self.paths, *self.eval_paths, self.tokenizer)
        if self.temperature is not msgspec.UNSET and not 0 < self.temperature <= MAX_TEMPERATURE:
            raise ValueError(
                f"temperature is {self.temperature}, and above 0 to {MAX_TEMPERATURE:g} is accepted"
            )
        if self.mixing_limit is not msgspec.UNSET and self.mixing_limit < 1:
            raise ValueError(f"mixing_limit is {self.mixing_limit}, not positive")
        has_stream = self.streaming or bool(self.streamed_sources())
        if not has_stream and self.stream != StreamConfig():
            raise ValueError("stream is set, and needs streaming")
        if not self.streaming or self.sources:
            return
        if not self.paths:
            raise ValueError("streaming is set, and paths names no files")
        if bool(self.eval_paths) == bool(self.stream.eval_documents):
            raise ValueError(
                "a stream takes either eval_paths or stream.eval_documents, to evaluate on"
            )

    def streamed_sources(self) -> list[str]:
        """Return the names of the sources that are streams."""
        names = []
        for name, source in (self.sources or {}).items():
            is_streamed = source.streaming
            if is_streamed is msgspec.UNSET:
                is_streamed = self.streaming
            if is_streamed:
                names.append(name)
        return names


class InitConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pretrained checkpoint that a run starts with; see ``zoo.training.state.pretrained``."""

    model: str  # Reference to the checkpoint.
    # Reference to the generator's checkpoint, for objectives with two models.
    generator: str | None = None
    # Names of modules that may have new weights because no checkpoint has them.
    new_modules: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_names(self.model, self.generator)


def _check_names(*names: str | None) -> None:
    for name in names:
        if name is not None and "\0" in name:
            raise ValueError(f"{name!r} is not a path: it contains a NUL")


class TrainConfig(Recipe, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of a pretraining run, in addition to ``Recipe``."""

    batch_option: ClassVar[str] = "--global-batch-tokens"

    family: str  # Name of the model family.
    # Model size of the family; with ``init_from``, by default the most similar one.
    size: str = "tiny"
    # Pretrained weights to start from; ``None`` for new weights.
    init_from: InitConfig | None = None
    # Method and settings of an adapter, which is trained in place of the model, with a head of
    # labels; see ``zoo.adapters``. ``None`` to train the model.
    adapter: dict[str, Any] | None = None
    data: DataConfig = DataConfig()  # Training and evaluation data.
    seed: int = 0  # Seed of all random numbers.
    # Number of tokens per forward pass, padding included; gradients of a larger step are
    # accumulated. ``None`` for the whole step at once.
    micro_batch_tokens: int | None = None
    # Dtype of autocast; weights are always float32. ``auto`` is bfloat16 on CUDA devices that
    # support it, and float32 elsewhere.
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    compile: bool = False  # Compile the model with ``torch.compile``.
    # Use only kernels whose result is the same each time, which CUDA's faster ones are not; a run
    # on CUDA then resumes bit for bit, as on a CPU.
    deterministic: bool = False
    # Recompute the activations of each block in the backward pass.
    gradient_checkpointing: bool = False
    fsdp: bool = False  # Shard weights and optimizer state over ranks instead of replicating them.
    fsdp_config: FSDPConfig | None = None  # How they are sharded; ``None`` for the defaults.
    # What is trained: ``all``, or only ``embeddings``, the weights with a row for each token, as
    # for a new vocabulary; with an adapter, ``embeddings`` trains them as well.
    trainable: Literal["all", "embeddings"] = "all"
    logging_steps: int = 10  # Number of steps between training records of the log.
    eval_steps: int = 100  # Number of steps between evaluations.
    eval_sequences: int = 64  # Number of rows per evaluation.
    save_steps: int = 100  # Number of steps between checkpoints.
    save_total_limit: int = 2  # Number of last checkpoints to keep, besides the best one.
    # Write checkpoints while training goes on, from a copy of weights and optimizer state in
    # memory.
    async_save: bool = True
    # Keep the optimizer's state when the run ends, for ``--continue-from``; a run that has not
    # ended always has it.
    keep_optimizer: bool = False
    # Names of loggers besides ``metrics.jsonl``: ``tensorboard``, ``wandb``, ``mlflow`` or a
    # plugin's; ``None`` for TensorBoard if it is installed.
    report_to: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        positive = (
            "global_batch_tokens",
            "micro_batch_tokens",
            "max_steps",
            "eval_steps",
            "eval_sequences",
            "save_steps",
        )
        ranges = {name: (1, MAX_RUN_NUMBER) for name in positive}
        check_run_numbers(self, {**ranges, "seq_len": (1, MAX_ROW_TOKENS)})
        for name in ("global_batch_tokens", "micro_batch_tokens"):
            tokens = getattr(self, name)
            if tokens is not None and tokens < self.seq_len:
                raise ValueError(f"{name} is {tokens}, less than a row of {self.seq_len}")
        warmup = self.seq_len_warmup
        if warmup is None:
            return
        if not 0 < warmup.seq_len < self.seq_len:
            raise ValueError(
                f"seq_len_warmup.seq_len is {warmup.seq_len}, not below {self.seq_len}"
            )
        if not 0 < warmup.fraction < 1:
            raise ValueError(
                f"seq_len_warmup.fraction is {warmup.fraction}, which is not between 0 and 1"
            )

    @property
    def run_name(self) -> str:
        """Name of the default directory of a run."""
        return f"{self.family}-{self.size}"

    def step_sizes(self) -> list[int]:
        """Return the numbers of rows that a step may have."""
        sizes = [self.batch_size(self.seq_len)]
        if self.seq_len_warmup is not None:
            sizes.append(self.batch_size(self.seq_len_warmup.seq_len))
        return sizes

    @property
    def global_batch_size(self) -> int:
        """Number of rows of ``seq_len`` tokens per step, over all micro-batches and ranks."""
        return self.global_batch_tokens // self.seq_len

    @property
    def seq_len_warmup_steps(self) -> int:
        """Number of steps with shorter rows, at most all but the last."""
        if self.seq_len_warmup is None:
            return 0
        return min(round(self.seq_len_warmup.fraction * self.max_steps), self.max_steps - 1)

    def batch_size(self, length: int) -> int:
        """Return the number of rows of a length, in tokens, per step; see ``SeqLenWarmup.keep``."""
        warmup = self.seq_len_warmup
        if warmup is not None and warmup.keep == "tokens" and length == warmup.seq_len:
            return self.global_batch_tokens // length
        return self.global_batch_size

    def micro_batch_size(self, length: int) -> int:
        """Return the number of rows of a length, in tokens, per forward pass."""
        if self.micro_batch_tokens is None:
            return self.batch_size(length)
        return self.micro_batch_tokens // length


class EpochsConfig(TrainConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of a pretraining run whose number of steps follows from the corpus."""

    num_train_epochs: float  # Passes over the corpus, instead of ``max_steps``.

    def __post_init__(self) -> None:
        super().__post_init__()
        check_epochs(self.num_train_epochs)

    def resolved(self, tokens: int) -> TrainConfig:
        """Return the configuration for a corpus, with the number of steps."""
        values = msgspec.structs.asdict(self)
        changes = epoch_steps(self, values.pop("num_train_epochs"), tokens)
        return TrainConfig(**{**values, **changes})


def check_epochs(epochs: float) -> None:
    """Check a number of passes over the data."""
    if not 0 < epochs < math.inf:
        raise ValueError(f"num_train_epochs is {epochs}, not positive")


def epoch_steps(config: TrainConfig, epochs: float, tokens: int) -> dict[str, int]:
    """Return the steps of a run over a corpus; evaluations are at most a pass apart."""
    steps_per_epoch = tokens / (config.global_batch_size * config.seq_len)
    most = math.ceil(steps_per_epoch)
    return {
        "max_steps": math.ceil(epochs * steps_per_epoch),
        "eval_steps": min(config.eval_steps, most),
        "save_steps": min(config.save_steps, most),
    }


def in_tokens(settings: ConfigDict) -> ConfigDict:
    """Return settings of text with tokens instead of rows, and one name for the length of rows."""
    settings = dict(settings)
    for setting in ("size", "objective"):
        if setting in settings and not isinstance(settings[setting], str):
            raise UsageError(f"settings: {setting} is {settings[setting]!r}, which is not text")
    for setting in ("seq_len", "max_seq_len", "batch_size"):
        if setting in settings and not isinstance(settings[setting], int):
            raise UsageError(f"settings: {setting} is {settings[setting]!r}, which is not a number")
    for name, alternative in ALTERNATIVES.items():
        if name != "num_train_epochs" and name in settings and alternative in settings:
            raise UsageError(
                f"{name} and {alternative} set the same thing", "leave one of them out"
            )
    if "max_seq_len" in settings:
        settings["seq_len"] = settings.pop("max_seq_len")
    if "batch_size" in settings and "seq_len" in settings:
        settings["global_batch_tokens"] = settings.pop("batch_size") * settings["seq_len"]
    return settings


def with_requested(
    settings: ConfigDict, requested: Mapping[str, Any], struct_type: type[msgspec.Struct]
) -> ConfigDict:
    """Return the settings of a run that has begun, with those that are requested now."""
    if not issubclass(struct_type, TrainConfig):
        return deep_merge(settings, requested)
    if requested.get("num_train_epochs") is not None:
        raise UsageError(
            "a run on text that has begun counts steps, not epochs", "give --max-steps instead"
        )
    return in_tokens(merge_settings(settings, requested))


def pretrain_config(
    values: Mapping[str, Any],
    overrides: Mapping[str, Any],
    *,
    offline: bool = False,
    struct_type: type[TrainConfig] = TrainConfig,
) -> TrainConfig:
    """Return the configuration from the recipe, a file and options, in increasing precedence.

    A family's *recipe* has the settings of its paper. A file, options and ``--set key=value``
    override it, in this order. The result is written to ``config.yaml`` of the run, which depends
    on nothing else but the corpus.

    Args:
        values: settings of a file, or only the model.
        overrides: settings of options, which override them.
        offline: make no network connection.
        struct_type: type of the configuration.
    """
    from zoo.plugins import get_family

    check_tables(values, overrides)
    requested = merge_settings(values, overrides)
    requested, adapter_defaults = with_adapter(in_tokens(requested))
    if requested.get("adapter") is not None:
        require_packed_documents(requested["adapter"])
    # A number of rows can only be set when the length of the recipe's rows is known.
    settings_in_rows = {}
    if "batch_size" in requested:
        settings_in_rows["batch_size"] = requested.pop("batch_size")
    if struct_type is TrainConfig and "num_train_epochs" in requested:
        if "max_steps" in requested:  # It takes precedence, as in transformers.
            del requested["num_train_epochs"]
        else:
            struct_type = EpochsConfig
    requested = _with_family(requested, offline=offline)
    family = get_family(requested["family"])
    check_keys(requested, struct_type, "", "settings")
    size = "tiny"
    is_pretrained = bool(requested.get("init_from"))
    if is_pretrained:
        size = _size_of_pretrained(family, requested, offline=offline)
    size = requested.get("size", size)
    if is_pretrained:
        requested = deep_merge(requested, {"size": size})
    recipe = _recipe_settings(family, size, requested, is_pretrained=is_pretrained)
    recipe["optimizer"] |= adapter_defaults.get("optimizer", {})
    settings = merge_settings(recipe, {**requested, **settings_in_rows})
    return validate_config({"max_steps": recipe["max_steps"], **in_tokens(settings)}, struct_type)


def _with_family(requested: ConfigDict, *, offline: bool) -> ConfigDict:
    """Return settings with the family, if necessary the pretrained model's."""
    if "family" not in requested and requested.get("init_from"):
        from zoo.conversion.cache import resolve_checkpoint

        init_from = _converted(requested["init_from"], InitConfig, "settings: init_from")
        family = resolve_checkpoint(init_from.model, offline=offline).family
        requested = {"family": family.name, **requested}
    if not isinstance(requested.get("family"), str):
        raise UsageError("the settings name no family", "name one as `family`")
    return requested


def _recipe_settings(
    family: "Family", size: str, requested: ConfigDict, *, is_pretrained: bool
) -> ConfigDict:
    """Return the settings of a family's recipe that go with the requested ones."""
    from zoo.objectives import objective_type
    from zoo.plugins.attribution import config_of_size

    config = config_of_size(family, size)
    recipe: ConfigDict = msgspec.to_builtins(family.recipe(size))
    if is_pretrained:
        # The pretrained configuration is kept, except for dropout, and settings that are only for
        # new weights are dropped.
        dropout_fields = {}
        for name, value in recipe["config"].items():
            if name.endswith(DROPOUT):
                dropout_fields[name] = value
        recipe["config"] = dropout_fields
        recipe["seq_len_warmup"] = None
        for name in objective_type(family, config, recipe["objective"]).from_scratch_options:
            recipe["objective_args"].pop(name, None)
    warmup = recipe["seq_len_warmup"]
    keeps_warmup = warmup is None or "seq_len_warmup" in requested
    full_length = requested.get("seq_len", math.inf)
    if not keeps_warmup and full_length <= warmup["seq_len"]:
        recipe["seq_len_warmup"] = None
    if requested.get("objective", recipe["objective"]) != recipe["objective"]:
        # The recipe's options are those of another objective, which its first stage prepares for.
        recipe["objective_args"] = {}
        if recipe["seq_len_warmup"] is not None:
            recipe["seq_len_warmup"] |= {"objective": None, "objective_args": {}}
    return recipe


@contextlib.contextmanager
def prefix_errors(file: Path | None) -> Iterator[None]:
    """Prefix errors about settings with the file that they are from, if any."""
    try:
        yield
    except (UsageError, SourceError) as error:
        if file is None:
            raise
        what = f"{file}: {error.what.removeprefix('settings: ')}"
        raise type(error)(what, error.hint) from error


def _size_of_pretrained(family: "Family", requested: ConfigDict, *, offline: bool) -> str:
    """Return the size of the family that is most similar to the pretrained model."""
    init_from = _converted(requested["init_from"], InitConfig, "settings: init_from")
    config = resolve_init_checkpoint(init_from.model, family, offline=offline).config
    sizes = family.sizes()
    similarity = {name: config_similarity(candidate, config) for name, candidate in sizes.items()}
    best = max(similarity, key=similarity.__getitem__)
    size = requested.get("size", best)
    if size in sizes and similarity[size] < similarity[best]:
        differences = config_differences(sizes[size], config)
        raise UsageError(
            f"size is {size}, and {init_from.model} is most like {best}: {', '.join(differences)}",
            "leave the size out",
        )
    return best


def validate_config(
    values: ConfigDict, config_type: type[StructT], source: str = "settings"
) -> StructT:
    """Convert nested settings to a configuration."""
    check_keys(values, config_type, "", source)
    config = _converted(values, config_type, source)
    optimizer = getattr(config, "optimizer", None)
    if isinstance(optimizer, OptimizerConfig):
        optimizer_method(optimizer)  # This raises for an unknown name or setting.
    data = getattr(config, "data", None)
    if isinstance(data, DataConfig):
        check_sources(data)
    return config


def _converted(values: Any, struct_type: type[StructT], location: str) -> StructT:
    try:
        return msgspec.convert(values, struct_type)
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        message = wrong_entry(values, struct_type) or with_location(error, "")
        raise UsageError(f"{location}: {message}") from error
