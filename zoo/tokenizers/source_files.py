"""Reading of the side files of a published checkpoint."""

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from zoo.errors import SourceError, VerificationError
from zoo.io.files import decode_text, read_regular
from zoo.io.json import parse_json
from zoo.io.limits import MAX_JSON_BYTES, MAX_JSON_VALUES, MAX_TOKENIZER_BYTES, MAX_TOKENIZER_VALUES
from zoo.io.paths import safe_join

MAX_NAME_BYTES = 255  # The limit of common file systems.

TOKENIZER_JSON = "tokenizer.json"
VOCABULARY = "vocab.txt"
TOKENIZER_CONFIG = "tokenizer_config.json"
SPECIAL_TOKENS = "special_tokens_map.json"
ADDED_TOKENS = "added_tokens.json"
CHAT_TEMPLATE = "chat_template.jinja"
CHAT_TEMPLATES = "additional_chat_templates/*.jinja"
VOCAB_JSON = "vocab.json"
MERGES = "merges.txt"
BPE_CODES = "bpe.codes"
SOURCE_PIECES = "source.spm"
TARGET_PIECES = "target.spm"
TARGET_VOCAB_JSON = "target_vocab.json"
TARGET_TOKENIZER_JSON = "target_tokenizer.json"
PIECE_MODELS = ("spiece.model", "sentencepiece.bpe.model", "spm.model")

# The name of a file -> its name in the first releases.
FORMER_NAMES = {
    VOCAB_JSON: "encoder_bpe_40000.json",
    MERGES: "vocab_40000.bpe",
    PIECE_MODELS[0]: "30k-clean.model",
}

# Each of these sets contains a vocabulary; the other files have options only.
VOCABULARIES: tuple[tuple[str, ...], ...] = (
    (TOKENIZER_JSON,),
    (VOCABULARY,),
    (VOCAB_JSON, MERGES),
    (SOURCE_PIECES, TARGET_PIECES, VOCAB_JSON),
    *((name,) for name in PIECE_MODELS),
)
TOKENIZER_FILES: tuple[str, ...] = (  # patterns
    *(name for names in VOCABULARIES for name in names),
    BPE_CODES,
    TARGET_VOCAB_JSON,
    TARGET_TOKENIZER_JSON,
    TOKENIZER_CONFIG,
    SPECIAL_TOKENS,
    ADDED_TOKENS,
    CHAT_TEMPLATE,
    CHAT_TEMPLATES,
    *FORMER_NAMES.values(),
)


class SourceFiles:
    """Side files of a checkpoint directory, read-only.

    Args:
        directory: directory of the checkpoint.
        only: names of the files that may be read; by default all.
        folder: where the files of the tokenizer are, if not in the directory itself.
        derived: name -> contents of files that the weights describe, where the directory has none.

    Attributes:
        names_read: names of the files read so far.
    """

    def __init__(
        self,
        directory: Path,
        only: Collection[str] | None = None,
        folder: str = "",
        derived: Mapping[str, bytes] | None = None,
    ) -> None:
        self.directory = directory
        self.only = only
        self.folder = folder
        self.derived = derived or {}
        self.names_read: set[str] = set()

    def has(self, name: str) -> bool:
        """Return ``True`` if a path of that name exists, of any type."""
        path = self.path(name)
        return name in self.derived or (os.path.lexists(path) and self._allowed(path))

    def matching(self, pattern: str) -> list[str]:
        """Return the names of files that match a pattern such as ``sentence_*.json``."""
        names = (
            path.relative_to(self.directory).as_posix() for path in self.directory.glob(pattern)
        )
        return sorted(name for name in names if self.has(name))

    def path(self, name: str) -> Path:
        """Return the path of a file; under its former name if only that exists.

        Raises:
            VerificationError: the name is too long or leads out of the directory.
        """
        if any(len(os.fsencode(part)) > MAX_NAME_BYTES for part in name.split("/")):
            raise VerificationError(f"{self.directory}: {name[:100]!r}... cannot be a file's name")
        if self.folder and name in TOKENIZER_FILES:
            name = f"{self.folder}/{name}"
        path = safe_join(self.directory, name, str(self.directory))
        if name not in FORMER_NAMES:
            return path
        former_path = path.with_name(FORMER_NAMES[name])
        if os.path.lexists(former_path) and not os.path.lexists(path):
            return former_path
        return path

    def bytes(self, name: str) -> bytes:
        """Read a file.

        Raises:
            SourceError: the file is missing, cannot be read, or is not in ``only``.
        """
        path = self.path(name)
        if name in self.derived:
            return self.derived[name]
        if not self._allowed(path):
            raise SourceError(f"{path} is not one of the requested files")
        self.names_read.add(path.relative_to(self.directory).as_posix())
        return read_regular(path, "file", self._limits(name)[0])

    @staticmethod
    def _limits(name: str) -> tuple[int, int]:
        """Return the maximum size in bytes, and the maximum number of JSON values."""
        has_tokens = name in (BPE_CODES, TARGET_VOCAB_JSON, TARGET_TOKENIZER_JSON)
        if has_tokens or any(name in names for names in VOCABULARIES):
            return MAX_TOKENIZER_BYTES, MAX_TOKENIZER_VALUES
        return MAX_JSON_BYTES, MAX_JSON_VALUES

    def _allowed(self, path: Path) -> bool:
        return self.only is None or path.relative_to(self.directory).as_posix() in self.only

    def text(self, name: str) -> str:
        """Read a text file.

        Raises:
            SourceError: the file is missing, cannot be read, or is not in ``only``.
            VerificationError: the file is not UTF-8.
        """
        return decode_text(self.bytes(name), self.path(name))

    def parse(self, name: str) -> Any:
        """Read a JSON file with any value.

        Raises:
            SourceError: the file is missing or cannot be read.
            VerificationError: the file is not JSON.
        """
        return parse_json(self.bytes(name), self.path(name), max_values=self._limits(name)[1])

    def json(self, name: str) -> dict[str, Any]:
        """Read a JSON file whose value is an object.

        Raises:
            SourceError: the file is missing or cannot be read.
            VerificationError: the file is not a JSON object.
        """
        value = self.parse(name)
        if not isinstance(value, dict):
            raise VerificationError(f"{self.path(name)} is not a JSON object")
        return value

    def json_if_any(self, name: str) -> dict[str, Any]:
        """Read a JSON file whose value is an object; a missing file counts as empty.

        Raises:
            VerificationError: the file is not a JSON object.
        """
        return self.json(name) if self.has(name) else {}


def has_tokenizer(files: SourceFiles) -> bool:
    """Return ``True`` if a directory has the files of a vocabulary."""
    return any(all(files.has(name) for name in names) for names in VOCABULARIES)


def other_kind(files: SourceFiles, expected: str) -> SourceError:
    """Return the error for a directory with tokenizer files of another kind."""
    return SourceError(
        f"{files.directory} has neither {TOKENIZER_JSON} nor {expected}",
        "its tokenizer files are of a kind that this family does not have",
    )
