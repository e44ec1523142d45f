"""Labels of a sequence under a linear-chain CRF; see ``zoo.nn.layers.crf`` for transitions."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]


def viterbi(emissions: "Floats", transitions: "Floats") -> "NDArray[np.int64]":
    """Return the most probable labelling, (words,) (Viterbi 1967).

    Emissions are (words, labels). Transitions are (labels + 1, labels + 1): the last row and
    column are the boundary of a sequence.
    """
    import numpy as np

    best = transitions[-1, :-1] + emissions[0]
    back = []
    for emission in emissions[1:]:
        scores = best[:, None] + transitions[:-1, :-1]  # (before, label)
        back.append(scores.argmax(0))
        best = scores.max(0) + emission
    path = [int((best + transitions[:-1, -1]).argmax())]
    for pointers in reversed(back):
        path.append(int(pointers[path[-1]]))
    return np.array(path[::-1])


def marginals(emissions: "Floats", transitions: "Floats") -> "NDArray[np.float64]":
    """Return the probability of each label of each word, (words, labels), over all labellings."""
    import numpy as np

    from zoo.inference.processing.numbers import softmax

    inner = transitions[:-1, :-1].astype(np.float64)
    forward = [transitions[-1, :-1] + emissions[0]]
    backward = [transitions[:-1, -1]]
    for emission in emissions[1:]:
        forward.append(_logsumexp(forward[-1][:, None] + inner) + emission)
    for emission in emissions[:0:-1]:
        backward.append(_logsumexp((inner + emission + backward[-1]).T))
    return softmax(np.array(forward, np.float64) + np.array(backward[::-1], np.float64))


def _logsumexp(values: "Floats") -> "NDArray[np.float64]":
    """Return log(sum(exp)) over the first axis."""
    import numpy as np

    highest = values.max(0)
    sums: NDArray[np.float64] = np.log(np.exp(values - highest).sum(0)) + highest
    return sums
