"""Static embeddings in the files of other programs: tables of words and vectors."""

from collections.abc import Mapping
from typing import Any

from zoo.families.runtimes import RuntimeHeader


def from_word_vectors(header: RuntimeHeader) -> Mapping[str, Any]:
    """Return the Hub's keys of a table of word vectors, whose last row is for unknown words.

    The embedding of a text is the mean of the vectors of its known words; texts of any length are
    read whole.
    """
    rows = header.rows("embeddings")
    return {
        "model_type": "model2vec",
        "vocab_size": rows,
        "hidden_dim": header.shapes["embeddings"][1],
        "skipped_token_id": rows - 1,
        "normalize": False,
        "max_length": None,
    }
