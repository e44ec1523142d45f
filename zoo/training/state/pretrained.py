"""Initialization of a run from a pretrained checkpoint: weights, configuration and tokens."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from torch import Tensor, nn

from zoo.checkpoint import TOKENIZER, Checkpoint, SourceRecord, weights_digest
from zoo.errors import UsageError, VerificationError
from zoo.families.config import Config
from zoo.io.digests.files import FileDigest
from zoo.io.json import JsonStruct
from zoo.io.remote.cache import fetch
from zoo.objectives.base import TrainingObjective
from zoo.tokenizers.info import TokenizerInfo
from zoo.tokenizers.tokenizer_json import parse, read_checked
from zoo.tokenizers.vocabulary import describe_differences, different_tokens
from zoo.training.config.init_checkpoint import resolve_init_checkpoint
from zoo.training.config.schema import DataConfig, InitConfig
from zoo.training.state.load_weights import MissingWeights, copy_weights, loaded_parameters

if TYPE_CHECKING:
    from zoo.data.corpus import Corpus
    from zoo.data.tokenizer import ExistingTokenizer
    from zoo.families.base import Family


class ModelRecord(JsonStruct):
    """The pretrained checkpoint of one model."""

    reference: str  # Reference to the checkpoint, as in the configuration.
    head: str
    files: dict[str, FileDigest]
    # Repository and commit from which the checkpoint was converted, or ``None``.
    source: SourceRecord | None = None
    # Licence of the checkpoint, or of the pretrained one that it was trained from.
    licence: str | None = None
    languages: list[str] = msgspec.field(default_factory=list)  # Languages of its texts.
    # Names of the checkpoint's tensors that the objective does not use.
    unused: list[str] = msgspec.field(default_factory=list)

    @classmethod
    def from_checkpoint(
        cls, reference: str, checkpoint: Checkpoint, unused: list[str]
    ) -> "ModelRecord":
        """Return the record of a checkpoint."""
        manifest = checkpoint.manifest
        return cls(
            reference=reference,
            head=checkpoint.head_name,
            files=manifest.files,
            source=manifest.source,
            licence=manifest.licence or manifest.base_licence,
            languages=manifest.text_languages,
            unused=unused,
        )


class InitRecord(JsonStruct):
    """Pretrained weights of a run in ``run.json``, so that a resume needs no checkpoint."""

    config: dict[str, Any]
    # Special tokens of the model's tokenizer, whose file is in the run's directory; ``None`` if the
    # model has no tokenizer.
    tokenizer: TokenizerInfo | None = None
    # Settings of generation of the model, see ``ModelFile.generation``.
    generation: dict[str, Any] = msgspec.field(default_factory=dict)
    # Name of the model, such as ``generator`` -> its checkpoint.
    models: dict[str, ModelRecord] = msgspec.field(default_factory=dict)
    # Names of the parameters that were initialized randomly.
    new_parameters: list[str] = msgspec.field(default_factory=list)


@dataclass(frozen=True)
class PretrainedInit:
    """Pretrained model that a run starts from, or a resumed run started from.

    Each parameter is loaded from a checkpoint, or belongs to a module of ``init_from.new_modules``.
    """

    # Tensors of the checkpoint and the model correspond by their names on the Hub, since two heads
    # may use one name for different tensors. Two models that are trained jointly may have a
    # checkpoint each, as in the code released with He et al. 2021 (arXiv:2111.09543,
    # ``rtd_task.py``).

    config: Config
    tokenizer: "ExistingTokenizer | None"
    init_config: InitConfig  # ``init_from`` of the run's configuration.
    # Name of the model -> its checkpoint; empty if the run is resumed.
    checkpoints: Mapping[str, Checkpoint] = field(default_factory=dict)
    # Record in ``run.json``, if the run is resumed; else ``None``.
    record: InitRecord | None = None
    # Settings of generation of the model, see ``ModelFile.generation``.
    generation: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def resolve(cls, init_from: InitConfig, family: "Family", *, offline: bool) -> "PretrainedInit":
        """Resolve the references of a configuration; see ``resolve_init_checkpoint``."""
        model = resolve_init_checkpoint(init_from.model, family, offline=offline)
        checkpoints = {"model": model}
        if init_from.generator is not None:
            checkpoints["generator"] = resolve_init_checkpoint(
                init_from.generator, family, offline=offline
            )
        return cls(
            model.config,
            _read_tokenizer(model.tokenizer_file, model.model.tokenizer),
            init_from,
            checkpoints=checkpoints,
            generation=model.model.generation,
        )

    @classmethod
    def from_run(
        cls, run: Path, record: InitRecord, init_from: InitConfig, family: "Family"
    ) -> "PretrainedInit":
        """Return the initialization of a resumed run, only from the run's directory."""
        return cls(
            msgspec.convert(record.config, family.config_type),
            _read_tokenizer(run / TOKENIZER, record.tokenizer),
            init_from,
            record=record,
            generation=record.generation,
        )

    @classmethod
    def reopen(
        cls, record: InitRecord, init_from: InitConfig, family: "Family", *, offline: bool
    ) -> "PretrainedInit":
        """Return the initialization of a resumed run of an adapter, which needs its base again."""
        init = cls.resolve(init_from, family, offline=offline)
        for name, checkpoint in init.checkpoints.items():
            model_record = record.models[name]
            if weights_digest(checkpoint.manifest.files) != weights_digest(model_record.files):
                raise VerificationError(
                    f"{model_record.reference} is not the model that the run began with: "
                    "its weights have another digest",
                    "put it back as it was, or begin another run",
                )
        return replace(init, record=record)

    def own_tokenizer(self, family: "Family") -> "ExistingTokenizer":
        """Return the tokenizer of the pretrained model."""
        if self.tokenizer is None:
            hint = "--tokenizer train makes one"
            if family.text_tokenizer(self.config) is None:
                hint = "--tokenizer names a model, or a corpus, that has the one it was taught with"
            raise UsageError(f"{self.init_config.model} has no {TOKENIZER}", hint)
        return self.tokenizer

    def generation_with(self, tokenizer: "ExistingTokenizer | None") -> Mapping[str, Any]:
        """Return the settings of generation, if a tokenizer has the ids of the model's."""
        return generation_with(tokenizer, self.tokenizer, self.generation)

    def loaded_parameters(self, objective: TrainingObjective, model: nn.Module) -> list[Tensor]:
        """Return the parameters that ``load_weights`` sets as a whole."""
        networks = objective.models_to_save(model)
        parameters: list[Tensor] = []
        for name, checkpoint in self.checkpoints.items():
            if name in networks:
                parameters += loaded_parameters(checkpoint, networks[name])
        return parameters

    @torch.no_grad()
    def load_weights(self, objective: TrainingObjective, model: nn.Module) -> InitRecord:
        """Load the checkpoints' weights into the module to train."""
        networks = objective.models_to_save(model)
        filled = dict[int, Tensor]()
        records = {}
        for name, checkpoint in self.checkpoints.items():
            if name not in networks:
                raise UsageError(f"{objective.name} has no {name}", f"leave out init_from.{name}")
            reference = str(getattr(self.init_config, name))
            unused = copy_weights(reference, checkpoint, networks[name], filled)
            records[name] = ModelRecord.from_checkpoint(reference, checkpoint, unused)
        settled = objective.after_load(model, networks, self.checkpoints)
        missing = MissingWeights(model, filled, settled)
        references = " and ".join(record.reference for record in records.values())
        missing.validate(self.init_config.new_modules, references, objective.name)
        tokenizer_info: TokenizerInfo | None = None
        if self.tokenizer is not None:
            tokenizer_info = self.tokenizer.info
        return InitRecord(
            config=msgspec.to_builtins(self.config),
            tokenizer=tokenizer_info,
            generation=dict(self.generation),
            models=records,
            new_parameters=missing.names,
        )


def generation_with(
    tokenizer: "ExistingTokenizer | None",
    previous_tokenizer: "ExistingTokenizer | None",
    generation: Mapping[str, Any],
) -> Mapping[str, Any]:
    """Return the settings of generation of a model that go along to one with another tokenizer."""
    # The settings name tokens by their ids, so that they are left out where these differ.
    if tokenizer is None or previous_tokenizer is None:
        keeps_ids = tokenizer is previous_tokenizer
    else:
        keeps_ids = tokenizer.keeps_ids_of(previous_tokenizer)
    if keeps_ids:
        return generation
    return {}


def _read_tokenizer(path: Path, info: TokenizerInfo | None) -> "ExistingTokenizer | None":
    """Return the tokenizer of a file; ``None`` if the model has no special tokens."""
    from zoo.data.tokenizer import ExistingTokenizer

    if info is None:
        return None
    return ExistingTokenizer(path.read_bytes(), info)


LOG = logging.getLogger("zoo")


def require_known_tokens(init: PretrainedInit, corpus: "Corpus", data: DataConfig) -> None:
    """Check that each id of a corpus is the same string in the models that a run starts from."""
    # Without ``--tokenizer``, both vocabularies have to be equal; with it, either may be longer. A
    # resumed run has no checkpoints: its corpus is the one that it began with.
    for name, checkpoint in init.checkpoints.items():
        if not _has_rows_of_tokens(checkpoint):
            continue
        reference = str(getattr(init.init_config, name))
        file = checkpoint.path / TOKENIZER
        if not file.is_file():
            LOG.warning(
                "warning: %s has no %s, and its tokens cannot be compared with the corpus",
                reference,
                TOKENIZER,
            )
            continue
        tokens = parse(read_checked(file), file).get_vocab()
        explicit = data.tokenizer is not None
        differences = different_tokens(tokens, corpus.vocabulary(), used_by_both=explicit)
        if differences:
            raise UsageError(
                f"{reference} and the corpus in {corpus.path} have different tokenizers: "
                + describe_differences(differences, "the model", "the corpus", len(tokens)),
                _remedy(reference, corpus, data),
            )


def _remedy(reference: str, corpus: "Corpus", data: DataConfig) -> str:
    """Return how to get a corpus with the model's tokenizer."""
    from zoo.data.corpus import is_corpus

    if len(data.paths) == 1 and is_corpus(fetch(data.paths[0])):
        output = f"{corpus.path}-{Path(reference).name}"
        return f"`{corpus.build_command(reference, output)}` builds one with the model's"
    return "leave out --tokenizer to read the texts with the model's"


def _has_rows_of_tokens(checkpoint: Checkpoint) -> bool:
    """Return whether a parameter has a row for each token; models of characters have none."""
    config = checkpoint.config
    larger_config = msgspec.structs.replace(config, vocab_size=config.vocab_size + 1)
    return _parameter_shapes(checkpoint, config) != _parameter_shapes(checkpoint, larger_config)


def _parameter_shapes(checkpoint: Checkpoint, config: Config) -> dict[str, tuple[int, ...]]:
    """Return the shapes that the parameters of a checkpoint's head have in a configuration."""
    weights = checkpoint.family.weights(config, checkpoint.head_name)
    return {entry.target: entry.shape for entry in weights.entries()}
