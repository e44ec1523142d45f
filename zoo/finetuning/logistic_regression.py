"""Logistic regression on embeddings, with the settings of scikit-learn's ``LogisticRegression``."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

STEPS = 2000  # of L-BFGS at most; some dozens are enough


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
    """Return the classifier with the smallest loss."""
    # vectors: (rows, dimensions); labels: index of the class of each row, (rows,)
    # The loss is ``c`` times the sum of the log losses, plus half the squared norm of the weights;
    # biases are free. Two classes have one vector of weights, for the difference of their logits.
    import torch
    from torch.nn import functional as F

    from zoo.training.optim.eager import eager

    inputs = torch.from_numpy(vectors.astype(np.float64))
    targets = torch.from_numpy(labels.astype(np.int64))
    outputs = 1 if classes == 2 else classes
    weight = torch.zeros(outputs, inputs.shape[1], dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(outputs, dtype=torch.float64, requires_grad=True)
    optimizer = eager(torch.optim.LBFGS)(
        [weight, bias],
        max_iter=STEPS,
        tolerance_grad=1e-9,
        tolerance_change=1e-14,
        history_size=20,
        line_search_fn="strong_wolfe",
    )

    def closure() -> "Tensor":
        optimizer.zero_grad()
        logits = inputs @ weight.T + bias
        if classes == 2:
            losses = F.binary_cross_entropy_with_logits(
                logits[:, 0], targets.double(), reduction="sum"
            )
        else:
            losses = F.cross_entropy(logits, targets, reduction="sum")
        loss: Tensor = c * losses + weight.square().sum() / 2
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    with torch.enable_grad():
        optimizer.step(closure)  # type: ignore[no-untyped-call]
    values = weight.detach().numpy()
    offsets = bias.detach().numpy()
    if classes == 2:  # the logit of the second class less the first's
        values = np.concatenate([-values / 2, values / 2])
        offsets = np.concatenate([-offsets / 2, offsets / 2])
    return LinearClassifier(values, offsets)
