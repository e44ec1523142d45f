"""The vocabulary of a model in CTranslate2, which looks tokens up by their text."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from zoo.checkpoint import Checkpoint
from zoo.io.json import read_json_record
from zoo.io.limits import MAX_TOKENIZER_BYTES, MAX_TOKENIZER_VALUES
from zoo.tokenizers.sentencepiece.model import FOREIGN
from zoo.tokenizers.source_files import SourceFiles
from zoo.tokenizers.tokenizer_json import load

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Read = TypeVar("Read")
CONFIG = "config.json"
# of a language model, or of an encoder-decoder
FILES = "vocabulary.json", "shared_vocabulary.json"


def vocabulary(checkpoint: Checkpoint) -> list[str]:
    """Return the tokens of a model in the order of their ids; ids without a token get a name."""
    rows: int = checkpoint.config.vocab_size
    tokens = [f"<unused {number}>" for number in range(rows)]
    if checkpoint.model.tokenizer is not None:
        for token, number in read_tokenizer(checkpoint).get_vocab(with_added_tokens=True).items():
            tokens[number] = token.removeprefix(FOREIGN)
    return tokens


def read_tokenizer(checkpoint: Checkpoint) -> "Tokenizer":
    """Return the tokenizer of a checkpoint, without truncation and padding."""
    return load(SourceFiles(checkpoint.path))


def encode(checkpoint: Checkpoint, folder: Path, texts: list[str]) -> list[list[int]]:
    """Return the ids that CTranslate2 looks up for the tokens of texts."""
    ids = {token: number for number, token in enumerate(read_vocabulary(folder))}
    unknown = ids.get(read_config(folder).get("unk_token", ""), len(ids))  # it adds the token
    tokenizer = read_tokenizer(checkpoint)
    return [[ids.get(token, unknown) for token in tokenizer.encode(text).tokens] for text in texts]


def read_vocabulary(folder: Path) -> list[str]:
    """Return the tokens of a written model in the order of their ids."""
    names = [name for name in FILES if (folder / name).is_file()]
    return _read(folder / (names or FILES)[0], list[str])


def read_config(folder: Path) -> dict[str, Any]:
    """Return the settings of a written model."""
    return _read(folder / CONFIG, dict[str, Any])


def _read(file: Path, kind: type[Read]) -> Read:
    limits = {"max_bytes": MAX_TOKENIZER_BYTES, "max_values": MAX_TOKENIZER_VALUES}
    return read_json_record(file, kind, **limits)
