"""A distillation recipe for students of any family."""

from zoo.families.distillation import DistillationRecipe

SOFT_LABELS = DistillationRecipe(
    name="soft-labels",
    source="Turc et al. 2019, arXiv:1908.08962, section 3: only soft labels, on any text",
    objective_weight=0.0,
    terms={"kl": {"kind": "kl", "temperature": 1.0}},
)
