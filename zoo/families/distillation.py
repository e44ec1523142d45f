"""Distillation recipes: the loss terms and settings with which a paper distilled a student.

The structs only hold values; ``zoo.distillation`` checks and computes the terms. A user's recipe is
a YAML file of the same fields. Layers are counted from 0, as in ``model.layers``; negative ones
count from the last.

A term is a table: the name of a loss as ``kind``, the ``weight`` in the total loss, by default 1
(0 leaves the term out), and settings of the loss, such as ``{"kind": "kl", "temperature": 2.0}``.
``docs/settings.md`` lists the losses with their settings.
"""

import math
import re
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

# ``uniform``: layer i of the student learns from the last layer of the i-th of equal groups of the
# teacher's. ``last``: the last from the last. ``first``: layer i from layer i. ``spread``: the
# first from the first, the last from the last, and those between evenly. ``skip``: ``uniform``
# without the last layer. ``embeddings`` and ``seq2seq``: the tables of the module
# ``zoo.distillation.layer_maps``, by numbers of layers. Or pairs of a student's and a teacher's
# layer.
LayerMap: TypeAlias = (
    Literal["uniform", "last", "first", "spread", "skip", "embeddings", "seq2seq"]
    | tuple[tuple[int, int], ...]
)
# Name of a term -> its table: ``kind``, the name of a loss; ``weight``; and settings of the loss.
Terms: TypeAlias = dict[str, dict[str, Any]]
NAME = re.compile(r"[A-Za-z0-9_-]+")  # Terms and stages name modules and directories.
# Data of recipes that need no labels, and the task that reads it.
SENTENCES: Final = "sentences"
RESERVED = ("model", "targets", "static")  # Other entries of the directory of stages.
OTHER_NAME = "choose one of letters, digits, - and _, other than model, targets and static"
# The schedule on text of Sanh et al. 2019, train.py of the released code: 50 accumulated batches of
# 5 rows of at most 512 tokens. Recipes without a schedule of their own also have it.
TEXT_SCHEDULE: Mapping[str, Any] = {
    "num_train_epochs": 3.0,
    "warmup_ratio": 0.05,
    "global_batch_tokens": 128_000,
    "seq_len_warmup": None,
}


class Replacement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Progressive module replacing; see ``zoo.distillation.replacement``."""

    # Probability that a layer of the student replaces its group in the first step.
    rate: float = 0.1
    increment: float = 0.0006  # Growth of the probability in each step, up to 1.

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1 or not 0 <= self.increment < math.inf:
            raise ValueError(
                f"rate is {self.rate} and increment {self.increment}, not in (0, 1] and 0 or more"
            )


class Targets(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Generation of target sequences by the teacher; see ``zoo.distillation.targets``."""

    num_beams: int = 5  # Number of beams.
    max_new_tokens: int = 128  # Largest number of tokens of a target.
    length_penalty: float = 1.0  # Exponent of the length that the score of a beam is divided by.


class Extraction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Extraction of static embeddings from the teacher; see ``zoo.distillation.static_student``."""

    # A token of probability p has the weight a / (a + p), where this is a; ``None`` for equal
    # weights.
    sif_coefficient: float | None = 1e-4


class Stage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A stage of a recipe: a run that begins with the model of the stage before."""

    terms: Terms = msgspec.field(default_factory=dict)  # See ``DistillationRecipe``.
    objective_weight: float = 0.0
    freeze: tuple[str, ...] = ()
    # What that model is: the ``student``, whose training continues, or the ``teacher`` of a new
    # one.
    begins_with: Literal["student", "teacher"] = "student"
    # See ``DistillationRecipe``; ``None`` for the recipe's value, or the one in the settings of the
    # run.
    student_depth: float | None = None
    # Settings of the run, nested, that replace the recipe's.
    settings: dict[str, Any] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_terms(self.terms, self.objective_weight)


class DistillationRecipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Loss terms, initial weights and settings of a distillation."""

    name: str = ""  # Name of the recipe; empty for one of a file.
    source: str = ""  # Paper and section, or released code.
    objective_weight: float = 1.0  # Weight of the loss terms of the student's objective or task.
    # Name -> term that compares student and teacher, with settings of its loss.
    terms: Terms = msgspec.field(default_factory=dict)
    # Layers of the teacher whose weights the student's layers begin with, with the embeddings and
    # the head; ``None`` for new weights. A reference as student keeps its own.
    init_layers: LayerMap | None = "spread"
    # Layers of the student replace groups of the teacher's in training, with this probability, and
    # only they are trained; ``None`` for a separate student.
    replacement: Replacement | None = None
    # Settings with which the teacher generates the targets of the first stage; ``None`` for the
    # data's.
    targets: Targets | None = None
    # Settings with which a student that is a family of static embeddings is extracted from the
    # teacher before the first stage; ``None`` for new weights.
    extraction: Extraction | None = None
    # Objective on text that the recipe is made for; ``None`` for any that both models support.
    objective: str | None = None
    # Data that the recipe is made for: text, labelled data, sentences, or text and labels.
    data: Literal["any", "text", "labelled", "sentences"] = "any"
    # Number of layers of a student of a family, as a fraction of the teacher's.
    student_depth: float = 0.5
    freeze: tuple[str, ...] = ()  # Names of modules of the student that are not trained.
    # Settings of the run, nested, that replace the family's recipe or preset. In a named recipe
    # whose data is ``any``, length and schedule are for text.
    settings: dict[str, Any] = msgspec.field(default_factory=dict)
    # Name -> stage, in order, each with terms of its own; empty for a single run.
    stages: dict[str, Stage] = msgspec.field(default_factory=dict)

    @property
    def is_published(self) -> bool:
        """Whether it has a name; a user's recipe has none."""
        return bool(self.name)

    def __post_init__(self) -> None:
        if not 0 <= self.objective_weight < math.inf:
            raise ValueError(f"objective_weight is {self.objective_weight}, not 0 or more")
        if not 0 < self.student_depth <= 1:
            raise ValueError(f"student_depth is {self.student_depth}, which is not in (0, 1]")
        if not self.stages:
            _check_terms(self.terms, self.objective_weight)
        for name in ("targets", "extraction"):
            if getattr(self, name) is not None and not self.stages:
                raise ValueError(f"{name} belongs before the first stage, and there are no stages")
        if self.stages and (self.terms or self.freeze or self.objective_weight != 1):
            raise ValueError(
                "terms, objective_weight and freeze are set in each stage; next to stages, they "
                "would not be used"
            )
        for name in self.stages:
            if not NAME.fullmatch(name) or name in RESERVED:
                raise ValueError(f"a stage cannot be called {name!r}: {OTHER_NAME}")


def _check_terms(terms: Terms, objective_weight: float) -> None:
    """Check the terms of a recipe or stage."""
    if not terms and not objective_weight:
        raise ValueError("there are no terms, and objective_weight is 0")
    for name in terms:
        if not NAME.fullmatch(name):
            raise ValueError(f"a term cannot be called {name!r}: {OTHER_NAME}")


def pretraining_recipe(
    name: str, source: str, *, objective_args: Mapping[str, Any] | None = None, **changes: Any
) -> DistillationRecipe:
    """Return the recipe of language models that are distilled on raw text.

    Cross-entropy with the teacher's softened predictions at all tokens, the student's own
    objective, and the cosine distance of the last hidden states, with weights of 5, 2 and 1 (Sanh
    et al. 2019, arXiv:1910.01108, section 3, and the command line of its released code).

    Args:
        name: name of the recipe.
        source: paper and section, or released code.
        objective_args: options of the student's objective.
        **changes: other fields of ``DistillationRecipe``.
    """
    terms: Terms = {
        "kl": {"kind": "kl", "weight": 5.0, "temperature": 2.0, "positions": "all"},
        "cosine": {"kind": "hidden-cosine", "weight": 1.0, "layers": "last"},
    }
    settings: dict[str, Any] = dict(TEXT_SCHEDULE)
    settings["lr_scheduler"] = {"name": "linear"}
    if objective_args:
        settings["objective_args"] = dict(objective_args)
    settings["optimizer"] = {
        "name": "adamw",
        "learning_rate": 5e-4,
        "betas": [0.9, 0.98],
        "eps": 1e-6,
        "weight_decay": 0.0,
        "bias_correction": True,
        "max_grad_norm": 5.0,
    }
    fields: dict[str, Any] = {"objective_weight": 2.0, "terms": terms, "settings": settings}
    return DistillationRecipe(name=name, source=source, **{**fields, **changes})
