"""A teacher of static embeddings."""

from pathlib import Path

from tests.checkpoints import Make

WORDS = [*"abcdefghij", "##a", "##b", *(f"{a}{b}" for a in "abcde" for b in "fghij")]


def teacher(make: Make) -> Path:
    """Write an encoder whose vocabulary has unused tokens."""
    tokens = ["[PAD]", "[unused0]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    path = make("BertModel", vocab_size=len(tokens))
    (path / "vocab.txt").write_text("\n".join(tokens) + "\n")
    return path
