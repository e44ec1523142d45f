"""The terms of a recipe, bound to a student, its objective and its teachers."""

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from zoo.distillation.adaptation import WITHOUT_PROBABILITIES
from zoo.distillation.losses import terms
from zoo.distillation.losses.attention_comparisons import (
    AttentionDivergence,
    AttentionScoresError,
    Relations,
)
from zoo.distillation.losses.comparisons import (
    Comparison,
    FirstTokenError,
    HiddenCosine,
    HiddenError,
    KLDivergence,
    LogitsComparison,
    LogitsError,
    ModelShape,
    ModelView,
    linear_map,
)
from zoo.distillation.recipes import SENTENCES
from zoo.distillation.sentences import SentenceError
from zoo.errors import UsageError, did_you_mean
from zoo.families.distillation import Term
from zoo.objectives.base import Batch, Objective, TrainingObjective


class EmbeddingError(Comparison):
    """Squared differences of embeddings of whole texts; of several teachers, to their mean."""

    needs_head = True
    fields = ("reduction", "projection")

    def _pairs(self) -> list[tuple[int, int]]:
        return []

    def projection(self) -> nn.Module | None:
        """See ``Comparison``."""
        return linear_map(self.term, self.student, self.teachers[0])

    def count(self, batch: Batch) -> int:
        """See ``Comparison``: texts, or elements of their embeddings."""
        by_element = self.term.reduction == "elements"
        return batch.rows * (self.teachers[0].hidden_size if by_element else 1)

    def total(
        self, student: ModelView, teachers: Sequence[ModelView], projection: nn.Module | None
    ) -> Tensor:
        """See ``Comparison``."""
        name = student.objective.name
        vectors: Tensor = student.outputs.logits[name]
        targets = [view.outputs.logits[name] for view in teachers]
        mapped = vectors if projection is None else projection(vectors)
        return terms.squared_error(mapped.float(), sum(targets[1:], targets[0]) / len(targets))


KINDS: Mapping[str, type[Comparison]] = {
    "kl": KLDivergence,
    "logits-mse": LogitsError,
    "hidden-mse": HiddenError,
    "hidden-cosine": HiddenCosine,
    "first-token-mse": FirstTokenError,
    "attention-mse": AttentionScoresError,
    "attention-kl": AttentionDivergence,
    "relations": Relations,
    "embeddings": EmbeddingError,
    "sentence-mse": SentenceError,
}


def bind_terms(
    settings: Mapping[str, Term],
    objective: TrainingObjective,
    student: ModelShape,
    teachers: Sequence[ModelShape],
) -> list[Comparison]:
    """Return the comparisons of a recipe's terms.

    A term over logits becomes one comparison for each loss term of the objective.

    Args:
        settings: name -> term.
        objective: the student's objective.
        student: sizes of the student.
        teachers: sizes of the teachers.

    Raises:
        UsageError: a term does not apply to these models.
    """
    _require_plain_options(objective)
    comparisons: list[Comparison] = []
    for name, term in settings.items():
        kind = KINDS[term.kind]
        if not term.weight:
            continue
        _require_read(name, term, objective)
        if name in objective.loss_weights:
            raise UsageError(
                f"terms.{name} has the name of a loss of {objective.name}", "rename it"
            )
        if kind is EmbeddingError and objective.name != SENTENCES:
            raise UsageError(
                f"terms.{name}: embeddings are outputs of sentence encoders, not of "
                f"{objective.name}",
                "kind sentence-mse compares the embeddings of texts of other models",
            )
        if not issubclass(kind, LogitsComparison):
            comparisons.append(kind(name, term, student, teachers))
            continue
        _require_probabilities(name, term, objective)
        _require_all_words(objective)
        names = _compared_terms(name, term, objective)
        for of in names:
            full = f"{name}-{of}" if len(names) > 1 else name
            comparisons.append(kind(full, term, student, teachers, of=of, objective=objective))
    return comparisons


def _require_read(name: str, term: Term, objective: TrainingObjective) -> None:
    """Check that the settings of a term are ones that its kind reads on this data.

    Raises:
        UsageError: another one has a value that is not its default.
    """
    default = Term(kind=term.kind, weight=term.weight)
    for field in Term.__struct_fields__:
        value, readers = getattr(term, field), [k for k in KINDS if field in KINDS[k].fields]
        if value == getattr(default, field):
            continue
        if term.kind not in readers:
            raise UsageError(
                f"terms.{name}.{field} is {value!r}, which {term.kind} does not read",
                f"leave it out; it is of {', '.join(readers)}",
            )
        if field == "positions" and not isinstance(objective, Objective):
            raise UsageError(
                f"terms.{name}.positions is {value!r}, and is of text: {objective.name} has no "
                "other positions",
                "leave it out",
            )


def _compared_terms(name: str, term: Term, objective: TrainingObjective) -> Sequence[str]:
    """Return the loss terms of an objective whose logits a term compares.

    Raises:
        UsageError: there is none of the name in the settings.
    """
    if term.logits_of is None:
        return objective.scored_terms
    known = list(objective.loss_weights)
    if term.logits_of not in known:
        raise UsageError(
            f"terms.{name}.logits_of is {term.logits_of!r}, and {objective.name} has no such loss",
            did_you_mean(term.logits_of, known) or f"it has {', '.join(known)}",
        )
    return (term.logits_of,)


def _require_plain_options(objective: TrainingObjective) -> None:
    """Check that no option replaces the initial weights in the run.

    Raises:
        UsageError: one does.
    """
    if not isinstance(objective, Objective):
        return
    for name in objective.from_scratch_options:
        if value := getattr(objective.options, name):
            raise UsageError(
                f"objective_args.{name} is {value}, which would replace what the student learned "
                "from its teacher",
                "leave it out",
            )


def _require_all_words(objective: TrainingObjective) -> None:
    """Check that logits are those of all words.

    Raises:
        UsageError: they are those of a sample.
    """
    if isinstance(objective, Objective) and getattr(objective.options, "num_sampled", None):
        raise UsageError(
            "logits of sampled words cannot be compared",
            "--set objective_args.num_sampled=null predicts all words",
        )


def _require_probabilities(name: str, term: Term, objective: TrainingObjective) -> None:
    """Check that a divergence compares probabilities.

    Raises:
        UsageError: the outputs of the task are none.
    """
    problem = getattr(objective, "problem", None)
    if term.kind == "kl" and problem in WITHOUT_PROBABILITIES:
        raise UsageError(
            f"terms.{name}: kl compares probabilities of classes, and {objective.name} has none",
            f"--set distillation.terms.{name}.kind=logits-mse compares the outputs themselves",
        )
