"""Setup of a distillation run: the setup of the student's run with its teachers."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import msgspec
from blake3 import blake3
from torch import Tensor, nn

from zoo.conversion.cache import resolve_checkpoint
from zoo.data.tokenizer import ExistingTokenizer
from zoo.distillation.initial_weights import copy_teacher_weights, teacher_weights
from zoo.distillation.make_objective import make_objective
from zoo.distillation.objective import Distillation
from zoo.distillation.paired_rows import with_teacher_rows
from zoo.distillation.preflight import Preflight
from zoo.distillation.replacement import require_replaceable, train_only_layers
from zoo.distillation.teachers.caching import CacheCallback
from zoo.distillation.teachers.checks import require_same_rows
from zoo.errors import UsageError
from zoo.finetuning.setup import FineTuneSetup, finetune_setup
from zoo.objectives.base import Batch
from zoo.overrides import override
from zoo.training.base import RunSetup
from zoo.training.callbacks.cut_texts import ReportCutTexts
from zoo.training.config.distill import DistillTaskConfig, DistillTextConfig
from zoo.training.dataloader import BatchLoader
from zoo.training.distributed.context import DistContext
from zoo.training.setup import pretrain_setup
from zoo.training.state.pretrained import InitRecord, generation_with
from zoo.training.state.run_manifest import RunManifest
from zoo.training.trainer import Callback

LOG = logging.getLogger("zoo")


@dataclass(frozen=True, kw_only=True)
class DistillSetup(RunSetup):
    """The setup of the student's run, with the objective of distillation in place of its own."""

    command: ClassVar[str] = "distill"
    config: DistillTextConfig | DistillTaskConfig
    base: RunSetup  # Setup of the student's run: pretraining or fine-tuning.
    objective: Distillation
    announce: bool  # Whether to log what users should know about weights.

    @property
    @override
    def tokenizer(self) -> ExistingTokenizer | None:
        return self.base.tokenizer

    @property
    @override
    def generation(self) -> Mapping[str, Any]:
        """The settings of the pretrained student, or else of the first teacher."""
        if self.base.init is not None:
            return self.base.generation
        teacher = self.objective.teachers[0].checkpoint
        info = teacher.model.tokenizer
        if info is None:
            return generation_with(self.tokenizer, None, teacher.model.generation)
        teacher_tokenizer = ExistingTokenizer(teacher.tokenizer_file.read_bytes(), info)
        return generation_with(self.tokenizer, teacher_tokenizer, teacher.model.generation)

    @override
    def train_dataloader(self, dist: DistContext, *, completed_steps: int = 0) -> BatchLoader:
        return self.base.train_dataloader(dist, completed_steps=completed_steps)

    @override
    def eval_batches(self, dist: DistContext) -> Sequence[Batch]:
        return self.base.eval_batches(dist)

    @override
    def passes(self, steps: int) -> float | None:
        return self.base.passes(steps)

    @override
    def source_shares(self) -> dict[str, float]:
        return self.base.source_shares()

    @override
    def warnings(self) -> list[str]:
        return self.base.warnings()

    @override
    def continued(self, record: RunManifest, step: int, rows: int) -> Self:
        return replace(self, base=self.base.continued(record, step, rows))

    @override
    def plan(self) -> dict[str, str]:
        return {"teacher": ", ".join(self.config.distillation.teachers), **self.base.plan()}

    @override
    def data_log(self) -> dict[str, Any] | None:
        return self.base.data_log()

    @override
    def manifest_fields(self) -> dict[str, Any]:
        return {**self.base.manifest_fields(), "teachers": self._teachers()}

    def _teachers(self) -> list[dict[str, Any]]:
        return [
            {"reference": teacher.reference, "files": teacher.digest}
            for teacher in self.objective.teachers
        ]

    @override
    def input_digests(self) -> dict[str, str]:
        digests = self.base.input_digests()
        for teacher in self._teachers():
            content = msgspec.json.encode(teacher["files"], order="sorted")
            digests[f"the teacher {teacher['reference']}"] = blake3(content).hexdigest()
        return digests

    @override
    def require_same_data(self, run: Path, record: RunManifest) -> None:
        self.base.require_same_data(run, record)
        for recorded, teacher in zip(record.teachers or [], self._teachers(), strict=True):
            if recorded["files"] != teacher["files"]:
                raise UsageError(
                    f"the teacher {teacher['reference']} is not the one that {run} began with",
                    "put it back as it was, or begin another run",
                )

    @override
    def training_record(self, run: Path, best: tuple[float, int] | None) -> dict[str, Any]:
        distillation = self.config.distillation
        return {
            **self.base.training_record(run, best),
            "recipe": distillation.recipe,
            "teachers": self._teachers(),
        }

    @override
    def run_files(self) -> dict[str, bytes]:
        return self.base.run_files()

    @override
    def replaced_parameters(self, model: nn.Module) -> Iterable[Tensor]:
        """The parameters of a pretrained student, and those that are copied from the teacher."""
        replaced = list(self.base.replaced_parameters(model.student))  # type: ignore[arg-type]
        layers = self.config.distillation.init_layers
        if layers is not None:
            main = self.objective.models_to_save(model)["model"].module
            teacher = self.objective.teachers[0].initial_model()
            parameters = main.state_dict(keep_vars=True)
            replaced += [parameters[name] for name in teacher_weights(main, teacher, layers)]
        return replaced

    @override
    def load_pretrained(self, model: nn.Module) -> InitRecord:
        return self.base.load_pretrained(model.student)  # type: ignore[arg-type]

    @override
    def prepare_model(self, model: nn.Module) -> None:
        """Copy the teacher's weights and freeze modules."""
        student: Any = model.student
        self.base.prepare_model(student)
        distillation = self.config.distillation
        models = self.objective.models_to_save(model)
        main = models["model"].module
        if distillation.init_layers is not None:
            teacher = self.objective.teachers[0]
            new = copy_teacher_weights(
                main, teacher.initial_model(), distillation.init_layers, teacher.label_order
            )
            self.objective.after_load(model, models, ("model",))
            if self.announce:
                addition = ", its head included"
                if new:
                    modules = dict.fromkeys(name.rpartition(".")[0] for name in new)
                    addition = f"; new weights: {', '.join(modules)}"
                reference = distillation.teachers[0]
                LOG.info("the student starts with weights of %s%s", reference, addition)
        freeze(main, distillation.freeze, trained=student)
        for any_teacher in self.objective.teachers:
            any_teacher.open()
        if distillation.replacement is not None:
            if distillation.init_layers is None:
                raise UsageError(
                    "layers can replace a teacher's if the student has its embeddings and head",
                    "with --student, name a family with the teacher's width, and set init_layers",
                )
            require_replaceable(self.family, main, self.objective.teachers[0])
            train_only_layers(model, main)

    @override
    def callbacks(self, run: Path) -> list[Callback]:
        reports = []
        aligner = self.objective.aligner
        if aligner is not None:
            reports.append(ReportCutTexts(lambda _: aligner.cut_lines()))
        return [
            *self.base.callbacks(run),
            *reports,
            *(CacheCallback(teacher.cache) for teacher in self.objective.cached_teachers),
            Preflight(
                self.base,
                self.objective,
                stage=self.config.distillation.stage,
                announce=self.announce,
            ),
        ]


def freeze(model: nn.Module, names: Sequence[str], *, trained: nn.Module) -> None:
    """Exclude modules of ``model`` from training.

    ``trained`` is the module whose parameters are optimized: it has the parameters of ``model``,
    or parameters from which they are computed.
    """
    parameters = {id(parameter) for parameter in trained.parameters()}
    for name in names:
        try:
            module = model.get_submodule(name)
        except AttributeError:
            names = ", ".join(child for child, _ in model.named_children())
            raise UsageError(
                f"distillation.freeze: the student has no module {name!r}", f"it has {names}"
            ) from None
        if any(id(parameter) not in parameters for parameter in module.parameters()):
            raise UsageError(
                f"distillation.freeze: {name} is computed from parameters that the models share",
                "leave it out, or choose another objective_args.embedding_sharing",
            )
        module.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in trained.parameters()):
        raise UsageError(
            "distillation.freeze has all modules of the student: nothing is left to train",
            "leave one out",
        )


def distill_setup(
    config: DistillTextConfig | DistillTaskConfig,
    *,
    offline: bool = False,
    check_contents: bool = True,
    resumed: tuple[Path, RunManifest] | None = None,
) -> DistillSetup:
    """Return the setup of a run; ``resumed`` is the directory and manifest of a resumed one."""
    options: dict[str, Any] = {
        "offline": offline,
        "check_contents": check_contents,
        "resumed": resumed,
    }
    checkpoints = [resolve_checkpoint(r, offline=offline) for r in config.distillation.teachers]
    base: RunSetup
    if isinstance(config, DistillTaskConfig):
        limits = [c.family.max_seq_len(c.config) or config.max_seq_len for c in checkpoints]
        longest = min(config.max_seq_len, *limits)
        config = msgspec.structs.replace(config, max_seq_len=longest)
        base = finetune_setup(config, **options)
    else:
        if config.data.streaming or config.data.streamed_sources():
            raise UsageError(
                "a distillation reads a corpus, and data.streaming is set",
                "leave it out: the corpus is built at the first run",
            )
        base = pretrain_setup(config, **options)
        base = replace(base, config=config.resolved(base.train_tokens))
    name = config.distillation.generator
    generator = None if name is None else resolve_checkpoint(name, offline=offline)
    objective = make_objective(base, config.distillation, checkpoints, generator)
    if config.distillation.init_layers is not None and resumed is None:
        require_same_rows(config.distillation.teachers[0], checkpoints[0], base)
    base = replace(base, collate_wrapper=objective.collate_examples)
    if isinstance(base, FineTuneSetup):
        base = with_teacher_rows(base, objective)
        changes: dict[str, Any] = {
            "metric_for_best_model": objective.metric_for_best_model,
            "greater_is_better": objective.greater_is_better,
        }
        base = replace(base, config=msgspec.structs.replace(base.config, **changes))
        base = replace(base, packs_rows=False)  # Losses compare layers of both models by token.
    return DistillSetup(
        config=base.config,  # type: ignore[arg-type]
        family=base.family,
        model_config=base.model_config,
        objective=objective,
        loggers=base.loggers,
        init=base.init,
        base=base,
        announce=check_contents and resumed is None,
    )
