"""What a run starts with: the weights, configuration and tokenizer of a model that is there.

Every weight that is trained is taken from a checkpoint, or named as one that is to be new. Which
of its tensors is which of the learner's is told by their names on the Hub, since heads may call
different things alike. Two networks that are taught together may start with a checkpoint each,
as in the released code of He et al. 2021 (arXiv:2111.09543, ``rtd_task.py``).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from torch import Tensor, nn

from zoo.checkpoint import TOKENIZER, Checkpoint, SourceRecord
from zoo.errors import UsageError
from zoo.families.config import Config
from zoo.io.digests.files import FileDigest
from zoo.io.json import JsonStruct
from zoo.objectives.base import Objective
from zoo.tokenizers.info import TokenizerInfo
from zoo.training.config.schema import InitConfig
from zoo.training.state.load_weights import MissingWeights, copy_weights

if TYPE_CHECKING:
    from zoo.data.tokenizer import ExistingTokenizer
    from zoo.families.base import Family


class ModelRecord(JsonStruct):
    """Where the weights of one network came from.

    Attributes:
        reference: what was typed.
        head: the checkpoint's.
        source: what the checkpoint was made from, with repository and commit, if it was converted.
        files: its files, as they were read.
        left: tensors of it that the objective has no use for.
    """

    reference: str
    head: str
    files: dict[str, FileDigest]
    source: SourceRecord | None = None
    unused: list[str] = msgspec.field(default_factory=list)


class InitRecord(JsonStruct):
    """What a run started with, in ``run.json``: with it, the run goes on without the checkpoints.

    Attributes:
        config: the model's configuration.
        tokenizer: of the model's tokenizer, which is in the run's directory, if it has one.
        models: by name.
        fresh: the weights that were new.
    """

    config: dict[str, Any]
    tokenizer: TokenizerInfo | None = None
    models: dict[str, ModelRecord] = msgspec.field(default_factory=dict)
    new_parameters: list[str] = msgspec.field(default_factory=list)


@dataclass(frozen=True)
class PretrainedInit:
    """What a run starts with, or did.

    Attributes:
        config: the model's configuration.
        tokenizer: the model's, if it has one.
        settings: what was asked for.
        checkpoints: network -> its checkpoint; none where the run goes on.
        record: what was written down, where the run goes on.
    """

    config: Config
    tokenizer: "ExistingTokenizer | None"
    init_config: InitConfig
    checkpoints: Mapping[str, Checkpoint] = field(default_factory=dict)
    record: InitRecord | None = None

    @classmethod
    def resolve(cls, init_from: InitConfig, family: "Family", *, offline: bool) -> "PretrainedInit":
        """Find the checkpoints; see ``find``."""
        model = resolve_init_checkpoint(init_from.model, family, offline=offline)
        found = {"model": model}
        if init_from.generator is not None:
            found["generator"] = resolve_init_checkpoint(
                init_from.generator, family, offline=offline
            )
        info = model.model.tokenizer
        tokenizer = None if info is None else _given((model.path / TOKENIZER).read_bytes(), info)
        return cls(model.config, tokenizer, init_from, found)

    @classmethod
    def from_run(
        cls, run: Path, record: InitRecord, start: InitConfig, family: "Family"
    ) -> "PretrainedInit":
        """Read what a run that goes on started with from its own directory."""
        config = msgspec.convert(record.config, family.config_type)
        info = record.tokenizer
        tokenizer = None if info is None else _given((run / TOKENIZER).read_bytes(), info)
        return cls(config, tokenizer, start, record=record)

    def own_tokenizer(self, family: "Family") -> "ExistingTokenizer":
        """Return the model's tokenizer.

        Raises:
            UsageError: it has none.
        """
        if self.tokenizer is None:
            raise UsageError(
                f"{self.init_config.model} has no {TOKENIZER}",
                "--tokenizer names a model, or a corpus, that has the one it was taught with"
                if family.text_tokenizer(self.config) is None
                else "--tokenizer train makes one",
            )
        return self.tokenizer

    @torch.no_grad()
    def load_weights(self, objective: Objective, model: nn.Module) -> InitRecord:
        """Give a learner the checkpoints' weights.

        Args:
            objective: what is learnt.
            model: what it built, with fresh weights.

        Returns:
            what was taken, and what was not.

        Raises:
            UsageError: a network is another than the checkpoint's, or weights are missing that
                were not said to be new.
            VerificationError: a checkpoint is damaged.
        """
        networks, filled = objective.models_to_save(model), dict[int, Tensor]()
        records = {}
        for name, checkpoint in self.checkpoints.items():
            if name not in networks:
                raise UsageError(f"{objective.name} has no {name}", f"leave out init_from.{name}")
            reference = str(getattr(self.init_config, name))
            left = copy_weights(reference, checkpoint, networks[name], filled)
            records[name] = ModelRecord(
                reference=reference,
                head=checkpoint.head_name,
                source=checkpoint.manifest.source,
                files=checkpoint.manifest.files,
                unused=left,
            )
        settled = objective.after_load(model, networks, self.checkpoints)
        fresh = MissingWeights(model, filled, settled)
        fresh.validate(
            self.init_config.new_modules,
            " and ".join(r.reference for r in records.values()),
            objective.name,
        )
        return InitRecord(
            config=msgspec.to_builtins(self.config),
            tokenizer=None if self.tokenizer is None else self.tokenizer.info,
            models=records,
            new_parameters=fresh.names,
        )


def resolve_init_checkpoint(reference: str, family: "Family", *, offline: bool) -> Checkpoint:
    """Return the checkpoint that a reference means, converted where needed.

    Raises:
        UsageError: it is another family's, or nothing has that name.
        SourceError, VerificationError: see ``zoo.references.resolve_checkpoint``.
    """
    from zoo.convert.on_first_use import resolve_checkpoint

    found = resolve_checkpoint(reference, offline=offline)
    if found.family.name != family.name:
        raise UsageError(
            f"{reference} is of the family {found.family.name}, not {family.name}",
            f"`zoo pretrain {found.family.name} --init-from {reference}`",
        )
    return found


def config_similarity(one: Config, other: Config) -> int:
    """Count the fields in which two configurations of a family agree."""
    return sum(getattr(one, name) == getattr(other, name) for name in one.__struct_fields__)


def _given(json: bytes, info: TokenizerInfo) -> "ExistingTokenizer":
    from zoo.data.tokenizer import ExistingTokenizer

    return ExistingTokenizer(json, info)
