"""Checks that a teacher has what the losses of a run compare."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from zoo.checkpoint import TOKENIZER, Checkpoint, load_text_tokenizer
from zoo.data.readers.labelled import describe_labels
from zoo.distillation.losses.base import DistillationLoss
from zoo.distillation.outputs import TextEmbeddings
from zoo.errors import UsageError
from zoo.families.distillation import SENTENCES
from zoo.finetuning.labels import label_order
from zoo.finetuning.objective import FineTuning
from zoo.finetuning.setup import FineTuneSetup
from zoo.objectives.base import TrainingObjective
from zoo.objectives.masked import MaskedLanguageModelling
from zoo.tokenizers.tokenizer_json import parse, read_checked
from zoo.tokenizers.vocabulary import describe_differences, different_tokens
from zoo.training.base import RunSetup
from zoo.training.setup import PretrainSetup

CAUSAL = "causal-lm"


def require_head(reference: str, checkpoint: Checkpoint, base: RunSetup) -> None:
    """Check that a teacher has the head whose logits are compared."""
    head = base.objective.head
    if isinstance(base, FineTuneSetup):
        task = base.objective.task
        head = task.model.resolve_head(task, checkpoint.family)
    fits = checkpoint.head_name == head
    heads = checkpoint.family.heads()
    if not isinstance(base, FineTuneSetup) and {head, checkpoint.head_name} <= heads.keys():
        # Axes are compared as well, since most heads call their output ``logits``.
        fits = heads[head].outputs.items() <= heads[checkpoint.head_name].outputs.items()
    if not fits:
        raise UsageError(
            f"the teacher {reference} has the head {checkpoint.head_name}, and "
            f"{base.objective.name} compares outputs of {head}",
            _other_teacher(base),
        )
    if isinstance(base.objective, FineTuning) and base.objective.labels:
        _require_labels(reference, checkpoint.config.labels, base.objective.labels)


def _require_labels(reference: str, teacher: Sequence[str], student: Sequence[str]) -> None:
    """Check that a teacher has the student's labels, in any order."""
    if label_order(teacher, student) is None:
        raise UsageError(
            f"the teacher {reference} has the labels {describe_labels(teacher)}, and the student "
            f"has {describe_labels(student)}",
            "labels are matched by name, in any order: rename them in the data, leave out samples "
            "with other labels, or train a teacher on them with `zoo finetune`",
        )


def _other_teacher(base: RunSetup) -> str:
    """Return the hint for a teacher with another head."""
    if not isinstance(base, FineTuneSetup):
        return (
            "with --task, name the task of a fine-tuned teacher; or give a recipe for hidden "
            "states or attention, such as minilmv2, which needs no head"
        )
    if base.config.task == SENTENCES:
        return "give a sentence encoder: `zoo finetune --task sentence-embedding` trains one"
    return f"`zoo finetune --task {base.config.task}` trains one"


def require_same_tokens(reference: str, checkpoint: Checkpoint, base: RunSetup) -> None:
    """Check that a teacher has the tokens of the student's corpus."""
    assert isinstance(base, PretrainSetup), "each model tokenizes labelled data itself"
    teacher = vocabulary_of(checkpoint)
    student = base.objective.vocabulary.tokenizer.get_vocab()
    differences = different_tokens(teacher, student)
    if not differences:
        return
    remedy = "or name a student with the teacher's tokenizer"
    if base.init is None:
        remedy = f"or {shlex.join(['--set', f'data.tokenizer={reference}'])}"
    raise UsageError(
        "student and teacher have different tokens: "
        + describe_differences(differences, reference, "the student", len(teacher)),
        f"--align text compares texts; {remedy}",
    )


def require_same_rows(reference: str, checkpoint: Checkpoint, base: RunSetup) -> None:
    """Check that the embeddings that a student copies belong to the same tokens in both models."""
    sizes = {getattr(config, "vocab_size", 0) for config in (base.model_config, checkpoint.config)}
    has_built_in_tokenizer = base.family.text_tokenizer(base.model_config) is not None
    if len(sizes) > 1 or has_built_in_tokenizer or base.tokenizer is None:
        return  # Embeddings of vocabularies of different sizes are not copied.
    student: dict[str, int] = parse(base.tokenizer.json, Path(TOKENIZER)).get_vocab()
    teacher = vocabulary_of(checkpoint)
    differences = different_tokens(teacher, student, used_by_both=True)
    if not differences:
        return
    setting = "tokenizer" if isinstance(base, FineTuneSetup) else "data.tokenizer"
    raise UsageError(
        f"the student would copy embeddings of {reference}, which belong to other tokens: "
        + describe_differences(differences, "the teacher", "the student", len(teacher)),
        f"{shlex.join(['--set', f'{setting}={reference}'])} takes the teacher's tokenizer; or "
        "--set distillation.init_layers=null starts with new weights",
    )


def vocabulary_of(checkpoint: Checkpoint) -> dict[str, int]:
    """Return token -> id of the tokens that a checkpoint predicts, even if it reads characters."""
    has_built_in_tokenizer = checkpoint.family.text_tokenizer(checkpoint.config) is not None
    file = checkpoint.tokenizer_file
    if has_built_in_tokenizer and file.is_file():
        ids: dict[str, int] = parse(read_checked(file), file).get_vocab()
        return ids
    return load_text_tokenizer(checkpoint).vocabulary()


def require_text_losses(
    reference: str, losses: Sequence[DistillationLoss], objective: TrainingObjective
) -> None:
    """Check that all losses compare whole texts."""
    for loss in losses:
        if not isinstance(loss.teacher_output, TextEmbeddings):
            raise UsageError(
                f"the term {loss.term_name} compares {loss.name} of tokens, but --align text means "
                f"that {reference} has different tokens",
                "terms of the kind sentence-mse compare texts; the recipe text has one",
            )
    if not isinstance(objective, MaskedLanguageModelling) and objective.name != CAUSAL:
        raise UsageError(
            f"--align text supports masked-lm and {CAUSAL}, not {objective.name}",
            "choose another --objective",
        )
