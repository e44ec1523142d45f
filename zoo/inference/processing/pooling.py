"""Pooling of token vectors to sentence embeddings, with the modes of sentence-transformers.

Reimers and Gurevych 2019, arXiv:1908.10084, section 3 (mean, cls, max); Muennighoff 2022,
arXiv:2202.08904, section 4 (weighted by position, last token).
Special tokens count as tokens. Where the tokens of a prompt are excluded, so are special tokens
before them.
"""

from typing import TYPE_CHECKING, Any

from zoo.tokenizers.pooling import Pooling

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.tokenizers import TextTokenizer

    Floats = NDArray[np.floating[Any]]


def pool(hidden: "Floats", mask: "NDArray[np.bool_]", pooling: Pooling) -> "Floats":
    """Return sentence embeddings.

    Args:
        hidden: (texts, tokens, hidden).
        mask: (texts, tokens), true for the tokens to pool, which are adjacent; every text has at
            least one.

    Returns:
        (texts, dimensions), of the dtype of ``hidden``.
    """
    import numpy as np

    rows, first = np.arange(len(hidden)), mask.argmax(axis=1)
    if pooling.mode == "cls":
        vectors = hidden[rows, first]
    elif pooling.mode == "lasttoken":
        vectors = hidden[rows, first + mask.sum(axis=1) - 1]
    elif pooling.mode == "max":
        vectors = np.where(mask[:, :, None], hidden, -np.inf).max(axis=1).astype(hidden.dtype)
    else:
        weights = _weights(mask, pooling.mode).astype(hidden.dtype)
        vectors = np.matmul(weights[:, None, :], hidden)[:, 0]
    vectors = unit(vectors) if pooling.normalize else vectors
    return vectors[:, : pooling.truncate_dim]


def _weights(mask: "NDArray[np.bool_]", mode: str) -> "NDArray[np.float64]":
    """Return the weights of the tokens, (texts, tokens), zero for padding."""
    import numpy as np

    weights = mask.astype(np.float64)
    if mode == "weightedmean":
        weights *= np.arange(1, mask.shape[1] + 1)
    total = weights.sum(axis=1, keepdims=True)
    weights /= np.sqrt(total) if mode == "mean_sqrt_len_tokens" else total
    return weights


def count_prompt_tokens(tokenizer: "TextTokenizer", prompt: str, max_tokens: int | None) -> int:
    """Return the number of tokens of a prompt, without a special token at its end."""
    encoded = tokenizer.encode([prompt], max_tokens=max_tokens, offsets=False)[0]
    return len(encoded.ids) - bool(encoded.special and encoded.special[-1])


def unit(vectors: "Floats") -> "Floats":
    """Normalize each row to unit length; rows of zeros are unchanged."""
    import numpy as np

    length: Floats = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.divide(vectors, length, where=length > 0, out=np.zeros_like(vectors))
