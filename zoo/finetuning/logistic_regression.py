"""Logistic regression on embeddings, with the settings of scikit-learn's ``LogisticRegression``."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

MAX_STEPS = 2000  # Of L-BFGS, for which some dozens are usually enough.
CURVATURE = 0.25  # Largest second derivative of the log loss by a logit.


class LinearClassifier(NamedTuple):
    """Logits of classes: ``vectors @ weight.T + bias``."""

    weight: "NDArray[np.float64]"  # (classes, dimensions).
    bias: "NDArray[np.float64]"  # (classes,).

    def logits(self, vectors: "NDArray[Any]") -> "NDArray[np.float64]":
        """Return the logits, (rows, classes)."""
        result: NDArray[np.float64] = vectors.astype(np.float64) @ self.weight.T + self.bias
        return result


def fit(
    vectors: "NDArray[Any]", labels: "NDArray[np.integer[Any]]", classes: int, c: float = 1.0
) -> LinearClassifier:
    """Return the classifier with the smallest loss; see ``fit_strengths``."""
    (classifier,) = fit_strengths(vectors, labels, classes, [c])
    return classifier


def fit_strengths(
    vectors: "NDArray[Any]",
    labels: "NDArray[np.integer[Any]]",
    classes: int,
    strengths: Sequence[float],
) -> list[LinearClassifier]:
    """Return the classifier with the smallest loss for each inverse strength of the penalty.

    The loss is ``c`` times the sum of the log losses, plus half the squared norm of the weights;
    biases are free. Two classes have one vector of weights, for the difference of their logits.

    Args:
        vectors: (rows, dimensions).
        labels: index of the class of each row, (rows,).
        classes: number of classes, two or more.
        strengths: values of ``c``.
    """
    import torch

    inputs = torch.from_numpy(vectors.astype(np.float64))
    targets = torch.from_numpy(labels.astype(np.int64))
    # Some directions of embeddings vary far more than others, and L-BFGS would take hundreds of
    # steps. On the principal axes, which leave the norm of the weights as it is, each direction is
    # scaled so that its curvature is about one. All strengths share the axes.
    center = inputs.mean(0)
    centered = inputs - center
    if len(inputs) < inputs.shape[1]:
        _, lengths, directions = torch.linalg.svd(centered, full_matrices=False)
        axes = directions.T
        squares = lengths.square()
    else:
        squares, axes = torch.linalg.eigh(centered.T @ centered)
    rotated = centered @ axes
    classifiers = []
    for c in strengths:
        scale = (1 + CURVATURE * c * squares.clamp(min=0)).rsqrt()
        weight, offset = _minimize(rotated * scale, targets, classes, c, scale)
        weight = weight @ axes.T
        bias = offset - weight @ center
        if classes == 2:  # The logit of the second class less the first's.
            weight = torch.cat([-weight / 2, weight / 2])
            bias = torch.cat([-bias / 2, bias / 2])
        classifiers.append(LinearClassifier(weight.numpy(), bias.numpy()))
    return classifiers


def _minimize(
    inputs: "Tensor", targets: "Tensor", classes: int, c: float, scale: "Tensor"
) -> "tuple[Tensor, Tensor]":
    """Return weights and biases of features before they were scaled.

    Args:
        inputs: scaled features, (rows, width).
        targets: (rows,).
        classes: number of classes.
        c: inverse strength of the penalty.
        scale: what each feature was multiplied by, (width,).
    """
    import torch
    from torch.nn import functional as F

    from zoo.training.optim.eager import eager

    outputs = 1 if classes == 2 else classes
    bias_scale = (CURVATURE * c * len(inputs)) ** -0.5
    weight = torch.zeros(outputs, inputs.shape[1], dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(outputs, dtype=torch.float64, requires_grad=True)
    optimizer = eager(torch.optim.LBFGS)(
        [weight, bias],
        max_iter=MAX_STEPS,
        tolerance_grad=1e-9,
        tolerance_change=1e-14,
        history_size=20,
        line_search_fn="strong_wolfe",
    )

    def closure() -> "Tensor":
        optimizer.zero_grad()
        logits = inputs @ weight.T + bias * bias_scale
        if classes == 2:
            losses = F.binary_cross_entropy_with_logits(
                logits[:, 0], targets.double(), reduction="sum"
            )
        else:
            losses = F.cross_entropy(logits, targets, reduction="sum")
        loss: Tensor = c * losses + (weight * scale).square().sum() / 2
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    with torch.enable_grad():
        optimizer.step(closure)  # type: ignore[no-untyped-call]
    return weight.detach() * scale, bias.detach() * bias_scale
