"""The small files beside a checkpoint's weights, by name."""

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from zoo.errors import SourceError, VerificationError
from zoo.io.files import decode_text, read_regular
from zoo.io.json import parse_json
from zoo.io.limits import (
    MAX_JSON_BYTES,
    MAX_JSON_VALUES,
    MAX_TOKENIZER_BYTES,
    MAX_TOKENIZER_VALUES,
)
from zoo.io.paths import safe_join

MAX_NAME = 255  # bytes, of common file systems

TOKENIZER_JSON, VOCABULARY = "tokenizer.json", "vocab.txt"
TOKENIZER_CONFIG, SPECIAL_TOKENS = "tokenizer_config.json", "special_tokens_map.json"
ADDED_TOKENS = "added_tokens.json"
VOCAB_JSON, MERGES = "vocab.json", "merges.txt"
PIECE_MODELS = ("spiece.model", "sentencepiece.bpe.model", "spm.model")

# what first releases call a file, before it had its present name
FORMER = {
    VOCAB_JSON: "encoder_bpe_40000.json",
    MERGES: "vocab_40000.bpe",
    PIECE_MODELS[0]: "30k-clean.model",
}

# Any one of these sets holds a vocabulary; the other files only say how to use it.
VOCABULARIES: tuple[tuple[str, ...], ...] = (
    (TOKENIZER_JSON,),
    (VOCABULARY,),
    (VOCAB_JSON, MERGES),
    *((name,) for name in PIECE_MODELS),
)
TOKENIZER_FILES: tuple[str, ...] = (
    *(name for names in VOCABULARIES for name in names),
    TOKENIZER_CONFIG,
    SPECIAL_TOKENS,
    ADDED_TOKENS,
    *FORMER.values(),
)


class SourceFiles:
    """A checkpoint directory as it came: its side files, read-only.

    Args:
        directory: where the checkpoint is.
        only: the files of it that may be read, where others may lie there unchecked.

    Attributes:
        names_read: the files that were read so far.
    """

    def __init__(self, directory: Path, only: Collection[str] | None = None) -> None:
        self.directory = directory
        self.only = only
        self.names_read: set[str] = set()

    def has(self, name: str) -> bool:
        """Whether there is something of that name. Reading refuses what is no regular file."""
        return os.path.lexists(self.path(name)) and self._asked_for(self.path(name))

    def matching(self, pattern: str) -> list[str]:
        """Return the names of files that match a pattern such as ``sentence_*.json``."""
        found = (
            path.relative_to(self.directory).as_posix() for path in self.directory.glob(pattern)
        )
        return sorted(name for name in found if self.has(name))

    def path(self, name: str) -> Path:
        """Return where a file is, or would be; under its former name, if it has that alone.

        Raises:
            VerificationError: the name leads out of the directory.
        """
        if any(len(os.fsencode(part)) > MAX_NAME for part in name.split("/")):
            raise VerificationError(f"{self.directory}: {name[:100]!r}... cannot be a file's name")
        path = safe_join(self.directory, name, str(self.directory))
        former = path.with_name(FORMER.get(name, path.name))
        return former if os.path.lexists(former) and not os.path.lexists(path) else path

    def bytes(self, name: str) -> bytes:
        """Read a file.

        Raises:
            SourceError: it is missing, cannot be read, or was not asked for.
        """
        path = self.path(name)
        if not self._asked_for(path):
            raise SourceError(f"{path} is not one of the files that were asked for")
        self.names_read.add(path.relative_to(self.directory).as_posix())
        return read_regular(path, "file", self._limits(name)[0])

    @staticmethod
    def _limits(name: str) -> tuple[int, int]:
        """Return how many bytes a file may have, and how many values if it is JSON."""
        if any(name in names for names in VOCABULARIES):
            return MAX_TOKENIZER_BYTES, MAX_TOKENIZER_VALUES
        return MAX_JSON_BYTES, MAX_JSON_VALUES

    def _asked_for(self, path: Path) -> bool:
        return self.only is None or path.relative_to(self.directory).as_posix() in self.only

    def text(self, name: str) -> str:
        """Read a text file.

        Raises:
            SourceError: it is missing, cannot be read, or was not asked for.
            VerificationError: it is not UTF-8.
        """
        return decode_text(self.bytes(name), self.path(name))

    def parse(self, name: str) -> Any:
        """Read a JSON file, whatever it holds.

        Raises:
            SourceError: it is missing or cannot be read.
            VerificationError: it is not JSON.
        """
        return parse_json(self.bytes(name), self.path(name), max_values=self._limits(name)[1])

    def json(self, name: str) -> dict[str, Any]:
        """Read a JSON file that holds an object.

        Raises:
            SourceError: it is missing or cannot be read.
            VerificationError: it is not JSON, or not an object.
        """
        found = self.parse(name)
        if not isinstance(found, dict):
            raise VerificationError(f"{self.path(name)} is not a JSON object")
        return found

    def json_if_any(self, name: str) -> dict[str, Any]:
        """Read a JSON file that may be missing; then the result is empty.

        Raises:
            VerificationError: it is there, and is not a JSON object.
        """
        return self.json(name) if self.has(name) else {}


def has_tokenizer(files: SourceFiles) -> bool:
    """Whether a directory holds a vocabulary to build a tokenizer from."""
    return any(all(files.has(name) for name in names) for names in VOCABULARIES)


def other_kind(files: SourceFiles, wanted: str) -> SourceError:
    """Return the error of a directory whose tokenizer files are of another kind than is wanted."""
    return SourceError(
        f"{files.directory} has neither {TOKENIZER_JSON} nor {wanted}",
        "its tokenizer files are of a kind that this family does not have",
    )
