"""From token vectors to one vector for the text, as sentence-transformers defines each mode.

Reimers and Gurevych 2019, arXiv:1908.10084, section 3 (mean, cls, max); Muennighoff 2022,
arXiv:2202.08904, section 4 (weighted by position, last token).
Special tokens count as tokens.
"""

from typing import TYPE_CHECKING, Any

from zoo.tokenizers.pooling import Pooling

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]


def pool(hidden: "Floats", mask: "NDArray[np.bool_]", pooling: Pooling) -> "Floats":
    """Return a vector for each text.

    Args:
        hidden: (texts, tokens, hidden).
        mask: (texts, tokens), true where there is a token; every text has one at least, and
            padding is on the right.
        pooling: the mode, and whether to scale to unit length.

    Returns:
        (texts, hidden), of the dtype of ``hidden``.
    """
    import numpy as np

    rows = np.arange(len(hidden))
    if pooling.mode == "cls":
        vectors = hidden[:, 0]
    elif pooling.mode == "lasttoken":
        vectors = hidden[rows, mask.sum(axis=1) - 1]
    elif pooling.mode == "max":
        vectors = np.where(mask[:, :, None], hidden, -np.inf).max(axis=1).astype(hidden.dtype)
    else:
        weights = _weights(mask, pooling.mode).astype(hidden.dtype)
        vectors = np.matmul(weights[:, None, :], hidden)[:, 0]
    return unit(vectors) if pooling.normalize else vectors


def _weights(mask: "NDArray[np.bool_]", mode: str) -> "NDArray[np.float64]":
    """Return how much each token counts, (texts, tokens); nothing for padding."""
    import numpy as np

    weights = mask.astype(np.float64)
    if mode == "weightedmean":
        weights *= np.arange(1, mask.shape[1] + 1)
    total = weights.sum(axis=1, keepdims=True)
    weights /= np.sqrt(total) if mode == "mean_sqrt_len_tokens" else total
    return weights


def unit(vectors: "Floats") -> "Floats":
    """Scale each row to unit length; a row of zeros stays as it is."""
    import numpy as np

    length: Floats = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.divide(vectors, length, where=length > 0, out=np.zeros_like(vectors))
