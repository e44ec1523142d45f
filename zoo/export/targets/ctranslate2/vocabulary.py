"""The vocabulary of a model in CTranslate2, which looks tokens up by their text."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.checkpoint import Checkpoint
from zoo.errors import VerificationError
from zoo.tokenizers.source_files import SourceFiles
from zoo.tokenizers.tokenizer_json import load

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FILE = "vocabulary.json"


def vocabulary(checkpoint: Checkpoint) -> list[str]:
    """Return the tokens of a model in the order of their ids; ids without a token get a name."""
    rows: int = checkpoint.config.vocab_size
    tokens = [f"<unused {number}>" for number in range(rows)]
    if checkpoint.model.tokenizer is not None:
        for token, number in read_tokenizer(checkpoint).get_vocab(with_added_tokens=True).items():
            tokens[number] = token
    return tokens


def read_tokenizer(checkpoint: Checkpoint) -> "Tokenizer":
    """Return the tokenizer of a checkpoint, without truncation and padding."""
    return load(SourceFiles(checkpoint.path))


def encode(checkpoint: Checkpoint, folder: Path, texts: list[str]) -> list[list[int]]:
    """Return the ids that CTranslate2 looks up for the tokens of texts."""
    try:
        stored = json.loads((folder / FILE).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise VerificationError(f"{folder / FILE} cannot be read: {error}") from error
    ids = {token: number for number, token in enumerate(stored)}
    tokenizer = read_tokenizer(checkpoint)
    return [[ids.get(token, -1) for token in tokenizer.encode(text).tokens] for text in texts]
