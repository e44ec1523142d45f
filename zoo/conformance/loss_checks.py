"""Check of a plugin's distillation loss: it is computed on two rows of logits."""

from zoo.distillation.losses.base import (
    DistillationLoss,
    LogitRows,
    LogitsLoss,
    ModelShape,
    Term,
)
from zoo.errors import UsageError, VerificationError
from zoo.families.tasks import LabelType
from zoo.objectives.masked import MaskedLanguageModelling
from zoo.overrides import override

SHAPE = ModelShape(layers=2, hidden_size=8, heads=2, classes=0, causal=False)


class LabelledRows(MaskedLanguageModelling):
    """An objective whose labels are of a type; it is neither trained nor asked for data."""

    def __init__(self, label_type: LabelType) -> None:
        super().__init__(None, None, 8)  # type: ignore[arg-type]
        self._label_type = label_type

    @override
    def label_type(self, term: str) -> LabelType:
        return self._label_type


def check_distillation_loss(loss_type: type[DistillationLoss]) -> None:
    """Compute a loss on two rows of logits, with its default settings and each type of labels.

    A loss on other outputs than logits, or one that refuses language models, is not computed.

    Raises:
        VerificationError: the loss is not a scalar with a gradient.
    """
    if not issubclass(loss_type, LogitsLoss):
        return
    label_types: tuple[LabelType, ...] = loss_type.label_types or ("classes",)
    for label_type in label_types:
        term = Term("check", loss_type, 1.0, loss_type.settings_type())
        try:
            losses = loss_type.build(term, LabelledRows(label_type), SHAPE, [SHAPE])
        except UsageError:
            continue
        for loss in losses:
            _compute(loss, label_type)


def _compute(loss: LogitsLoss, label_type: LabelType) -> None:
    """Compute a loss on two rows of logits with labels of a type."""
    import torch

    labels = torch.tensor([0, 2])
    columns = 3
    if label_type == "numbers":
        labels = torch.tensor([0.5, -1.0])
        columns = 1
    elif label_type == "probabilities":
        labels = torch.tensor([[1.0, 0.0, 0.0], [0.25, 0.5, 0.25]])
    generator = torch.Generator().manual_seed(0)
    student = torch.randn(2, columns, generator=generator, requires_grad=True)
    teacher = torch.randn(2, columns, generator=generator)
    rows = LogitRows(student, [teacher], columns, labels if loss.label_types else None)
    value = loss.distance(rows)
    is_scalar = isinstance(value, torch.Tensor) and value.dim() == 0
    if not (is_scalar and value.requires_grad):
        raise VerificationError("distance returns no scalar tensor with a gradient")
