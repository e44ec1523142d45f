"""The model of a fine-tuning run: pretrained checkpoint, tokenizer and configuration."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from zoo.adapted_models.registry import parse_adapter
from zoo.checkpoint import TOKENIZER, check_tables
from zoo.data.tokenizer import TRAIN, ExistingTokenizer, TokenizerToTrain, load_tokenizer
from zoo.errors import UsageError
from zoo.families.base import Family
from zoo.families.config import Config
from zoo.families.global_tokens import with_global_tokens
from zoo.finetuning.heads import check_head, kept_labels, unnamed_labels
from zoo.finetuning.objective import FineTuning
from zoo.finetuning.task import FineTuningTask
from zoo.plugins.attribution import config_of_size
from zoo.tokenizers import TextTokenizer
from zoo.tokenizers.tokenizer_json import parse, read_checked
from zoo.training.adapter import require_pretrained
from zoo.training.config.finetune import FineTuneConfig
from zoo.training.config.schema import DROPOUT
from zoo.training.fit_model import check_memory, require_fields, special_ids
from zoo.training.state.pretrained import PretrainedInit
from zoo.training.state.run_manifest import RunManifest

LOG = logging.getLogger("zoo")
# field of a configuration that an option of a task sets -> its name in messages
FIELDS = {
    "mix": "mix of layers",
    "pooling": "other pooling of texts than their own",
    "sentence_head": "classifier of embeddings",
}
GLOBAL_TOKENS = "global_tokens"  # Field of a configuration that no weight depends on.
Resumed = tuple[Path, RunManifest]  # directory and manifest of a run that is resumed


@dataclass(frozen=True)
class ModelSetup:
    """Configuration, tokenizer and initial weights of the model of a run."""

    config: Config
    input_names: tuple[str, ...]
    tokenizer: ExistingTokenizer | None  # ``None`` where the family needs no file.
    init: PretrainedInit | None  # ``None`` for new weights.
    settings: FineTuneConfig  # Settings, completed by those of the model.
    labels: tuple[str, ...]  # Classes of the data, in order.

    @classmethod
    def make(
        cls,
        settings: FineTuneConfig,
        family: Family,
        task: FineTuningTask[Any],
        train: Sequence[Any],
        *,
        init: PretrainedInit | None,
        offline: bool,
        resumed: Resumed | None,
    ) -> "ModelSetup":
        """Return the setup for the training data, of a new run or of one that is resumed."""
        head = task.model.resolve_head(task, family)
        pretrained_labels = known_labels(settings, task, init, head, resumed)
        labels = task.data.fit_labels(settings, train, pretrained_labels)
        settings = task.model.resolve_settings(task, settings, init)
        tokenizer = run_tokenizer(
            settings, family, init, task, train, offline=offline, resumed=resumed
        )
        tokenizer = task.model.adapt_tokenizer(settings, tokenizer)
        config = fit_config(settings, family, task, init, tokenizer, labels)
        if init is not None and family.heads()[head].has_labels:
            check_head(init, head, config)
        check_memory(family, config, head)
        limit = family.max_seq_len(config) or settings.max_seq_len
        if settings.adapter is not None:
            limit, tokenizer = room_for_texts(settings, family, config, head, tokenizer)
        settings = msgspec.structs.replace(settings, max_seq_len=min(settings.max_seq_len, limit))
        input_names = tuple(family.onnx(config, head).inputs)
        return cls(config, input_names, tokenizer, init, settings, labels)

    def objective(self, task: FineTuningTask[Any], family: Family) -> FineTuning:
        """Return the objective of the run."""
        generation: Mapping[str, Any] = {}
        if self.init is not None:
            generation = self.init.generation_with(self.tokenizer)
        return FineTuning(
            task,
            family=family,
            config=self.config,
            input_names=self.input_names,
            tokenizer=text_tokenizer(family, self.config, self.tokenizer),
            settings=self.settings,
            labels=self.labels,
            generation=generation,
        )


def room_for_texts(
    run: FineTuneConfig,
    family: Family,
    config: Config,
    head: str,
    tokenizer: ExistingTokenizer | None,
) -> tuple[int, ExistingTokenizer | None]:
    """Return the longest text next to the adapter, and the tokenizer with that limit."""
    model_limits = family.onnx(config, head).limits
    limits = parse_adapter(run.adapter or {}).shortened(model_limits)
    limit = limits.get("tokens", run.max_seq_len)
    if tokenizer is not None and limits != model_limits:
        tokenizer = tokenizer.shortened(max(limit, 1))
    return limit, tokenizer


def known_labels(
    run: FineTuneConfig,
    task: FineTuningTask[Any],
    init: PretrainedInit | None,
    head: str,
    resumed: Resumed | None,
) -> tuple[str, ...]:
    """Return the labels of a kept head, or of a run that is resumed; empty for a new head.

    Outputs without names get the names in ``data.labels``.
    """
    if resumed is not None:
        return tuple((resumed[1].data or {}).get("labels") or ())
    labels = () if init is None else kept_labels(init, head, task.problem)
    requested = run.data.labels or ()
    unnamed = unnamed_labels(len(labels))
    return tuple(requested) if labels == unnamed and len(requested) == len(labels) else labels


def pretrained_init(
    config: FineTuneConfig,
    family: Family,
    *,
    offline: bool,
    resumed: Resumed | None,
) -> PretrainedInit | None:
    """Return the pretrained model, from the directory of a run that is resumed."""
    require_pretrained(config)
    if config.init_from is None:
        return None
    if resumed is not None and resumed[1].init_from is not None:
        if config.adapter is not None:
            record = resumed[1].init_from
            return PretrainedInit.reopen(record, config.init_from, family, offline=offline)
        return PretrainedInit.from_run(resumed[0], resumed[1].init_from, config.init_from, family)
    return PretrainedInit.resolve(config.init_from, family, offline=offline)


def run_tokenizer(
    config: FineTuneConfig,
    family: Family,
    init: PretrainedInit | None,
    task: FineTuningTask[Any],
    train: Sequence[Any],
    *,
    offline: bool,
    resumed: Resumed | None,
) -> ExistingTokenizer | None:
    """Return the tokenizer of the pretrained model; for new weights, load or train one."""
    if init is not None:
        if config.tokenizer is not None:
            raise UsageError("a pretrained model keeps its tokenizer", "leave out --tokenizer")
        _require_no_normalization(config)
        built_in = family.text_tokenizer(init.config) is not None
        return init.tokenizer if built_in else init.own_tokenizer(family)
    if resumed is not None:
        info = resumed[1].tokenizer
        return (
            None if info is None else ExistingTokenizer(read_checked(resumed[0] / TOKENIZER), info)
        )
    if config.tokenizer in (None, TRAIN):
        size = config.vocab_size or config_of_size(family, config.size or "tiny").vocab_size
        new_tokenizer = TokenizerToTrain.for_family(
            family,
            vocab_size=size,
            lowercase=config.lowercase,
            strip_accents=config.strip_accents,
        )
        LOG.info("tokenizer: %s", new_tokenizer.description())
        texts = [text for sample in train for text in task.data.texts(sample)]
        return new_tokenizer.make(lambda: [texts])
    _require_no_normalization(config)
    return load_tokenizer(str(config.tokenizer), family, offline=offline)


def _require_no_normalization(config: FineTuneConfig) -> None:
    """Check that the normalization of a trained tokenizer is not set for another one."""
    if config.lowercase or config.strip_accents:
        setting = "lowercase" if config.lowercase else "strip_accents"
        raise UsageError(
            f"{setting} is for a tokenizer to train, and the run has one", "leave it out"
        )


def fit_config(
    config: FineTuneConfig,
    family: Family,
    task: FineTuningTask[Any],
    init: PretrainedInit | None,
    tokenizer: ExistingTokenizer | None,
    labels: tuple[str, ...],
) -> Config:
    """Return the configuration of the model to train."""
    base = config_of_size(family, config.size or "tiny") if init is None else init.config
    changes = dict(config.config)
    if isinstance(changes.get(GLOBAL_TOKENS), str):
        base = with_global_tokens(family, base, changes.pop(GLOBAL_TOKENS))
    require_fields(family, changes, "config")
    for name in config.config:
        if init is not None and not name.endswith(DROPOUT) and name != GLOBAL_TOKENS:
            raise UsageError(f"config.{name} cannot change in a pretrained model", "leave it out")
    derived: dict[str, Any] = {
        "labels": task.data.output_names(labels) or base.labels,
        "problem": task.problem,
    }
    for name, value in task.model.config_changes(config).items():
        if name not in base.__struct_fields__:
            raise UsageError(
                f"models of {family.name} have no {FIELDS[name]}",
                "give a model of another family, or leave the option out",
            )
        derived[name] = value
    if tokenizer is not None and family.text_tokenizer(base) is None:
        parsed = parse(tokenizer.json, Path(TOKENIZER))
        size = max(parsed.get_vocab().values()) + 1
        if init is None:
            derived |= {"vocab_size": size, **special_ids(base, tokenizer.info, parsed)}
        elif size > base.vocab_size:  # the task added tokens
            derived["vocab_size"] = size
    try:
        tree = {**msgspec.to_builtins(base), **derived, **changes}
        fitted: Config = msgspec.convert(tree, type(base))
    except (msgspec.ValidationError, ValueError) as error:
        raise UsageError(f"{family.name}, config: {error}") from error
    return fitted


def text_tokenizer(
    family: Family, config: Config, tokenizer: ExistingTokenizer | None
) -> TextTokenizer:
    """Return the tokenizer of texts: the family's own, or one from a file."""
    built_in = family.text_tokenizer(config)
    if built_in is not None:
        return built_in
    assert tokenizer is not None, "a family without a tokenizer of its own has one by now"
    parsed = parse(tokenizer.json, Path(TOKENIZER))
    check_tables(parsed, tokenizer.info, family, config, TOKENIZER)
    return TextTokenizer(parsed, tokenizer.info)
