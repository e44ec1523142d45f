"""Answers of a head for question answering that searches for them itself."""

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]
    Integers = NDArray[np.integer[Any]]


class SpanBeams(NamedTuple):
    """Answers that a head for question answering searches for itself, in each of several windows.

    Attributes:
        starts: position of the first token of each answer, (windows, answers).
        ends: position of its last token, (windows, answers).
        scores: its probability, (windows, answers); 0 for one that is missing.
        no_answer_logits: high for no answer, (windows,).
    """

    starts: "Integers"
    ends: "Integers"
    scores: "Floats"
    no_answer_logits: "Floats"
