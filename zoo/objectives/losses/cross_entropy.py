"""Cross-entropy over a vocabulary, which never holds more than some of the logits."""

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.nn.row_chunks import Logits
from zoo.nn.row_sums import sum_over_rows

IGNORED = -100  # label of a position that does not count, as in ``torch.nn.functional``


def summed_cross_entropy(logits: Logits, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the sum of cross-entropies, and the number of labels with the largest logit.

    Args:
        logits: (n, classes), float32; or the projection to them, for more of them than are held at
            once.
        labels: (n,), int64; ``IGNORED`` counts for neither result.

    Returns:
        The sum, a scalar of the logits' dtype, at least float32, with gradient; and the number of
        correct predictions, int64.
    """
    sums = sum_over_rows(cross_entropy_of_rows, logits, labels)
    return sums[0], sums[1].detach().long()


def cross_entropy_of_rows(
    logits: Tensor,
    labels: Tensor,
    rows: Tensor | None = None,
    *,
    num_rows: int = 0,
    label_smoothing: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Return the sum of cross-entropies and the number of correct predictions, and the gradient.

    With ``rows``, the row of each label, the first result also has the sum of each row.
    """
    predicted = logits.log_softmax(-1)
    counted = labels != IGNORED
    correct = (logits.argmax(-1) == labels).sum()
    total = F.nll_loss(predicted, labels, reduction="sum", ignore_index=IGNORED)
    if label_smoothing:  # All classes share that weight equally.
        uniform = (predicted.mean(-1) * counted).sum()
        total = (1 - label_smoothing) * total - label_smoothing * uniform
    sums = torch.stack([total, correct.to(total.dtype)])
    if rows is not None:
        losses = F.nll_loss(predicted, labels, reduction="none", ignore_index=IGNORED)
        if label_smoothing:
            uniform_losses = predicted.mean(-1) * counted
            losses = (1 - label_smoothing) * losses - label_smoothing * uniform_losses
        row_sums = sums.new_zeros(num_rows).index_add_(0, rows, losses)
        sums = torch.cat([sums, row_sums])
    # The gradient by the logits is their probabilities, minus the target's.
    errors = predicted.exp_()
    classes = labels.clamp(min=0)[:, None]
    if label_smoothing:
        errors.sub_(label_smoothing / logits.shape[-1])
    errors.scatter_(1, classes, errors.gather(1, classes) - (1 - label_smoothing))
    errors.mul_(counted[:, None])
    return sums, errors
