"""Tokenizer of a conversion, from the source or from another directory."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from zoo.checkpoint import TOKENIZER, check_tables, load_checkpoint
from zoo.convert.open import OpenCheckpoint
from zoo.errors import SourceError, VerificationError
from zoo.families.config import Config
from zoo.plugins import family_of_tokenizer
from zoo.tokenizers.info import TokenizerInfo

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

    from zoo.families.base import Family
    from zoo.hub.source import CheckpointDir


@dataclass(frozen=True)
class SourceTokenizer:
    """A tokenizer in the zoo's layout."""

    json: bytes
    info: TokenizerInfo  # special tokens and maximum length


def read_source_tokenizer(
    opened: OpenCheckpoint, elsewhere: "CheckpointDir | None", config: Config
) -> SourceTokenizer | None:
    """Return the tokenizer of the result, or ``None`` if the source has none."""
    source = elsewhere or opened.source
    tokenizer = _read(opened.family, source, config, stanford=opened.projection is not None)
    if tokenizer is None and elsewhere is not None:
        raise SourceError(f"{elsewhere.directory} has no tokenizer files")
    return tokenizer


def _read(
    family: "Family", source: "CheckpointDir", config: Config, *, stanford: bool
) -> SourceTokenizer | None:
    from zoo.tokenizers import check_vocabulary, has_tokenizer, tokenizer_info
    from zoo.tokenizers.colbert_files import register_marks
    from zoo.tokenizers.tokenizer_json import read_checked

    if source.is_converted:
        known = load_checkpoint(source.directory).model.tokenizer
        path = source.directory / TOKENIZER
        return None if known is None else SourceTokenizer(read_checked(path), known)
    files = source.files
    if not has_tokenizer(files):
        return None
    reader = family_of_tokenizer(files, family)
    backend = reader.tokenizer(files)
    register_marks(backend, files, stanford=stanford)
    check_vocabulary(backend, config.vocab_size, str(source.directory))
    unique_vocabulary(backend, str(source.directory))
    info = tokenizer_info(files, backend, reader.special_tokens)
    check_tables(backend, info, family, config, str(source.directory))
    return SourceTokenizer(backend.to_str(pretty=True).encode(), info)


def unique_vocabulary(backend: "Backend", origin: str) -> dict[str, int]:
    """Return the vocabulary of a tokenizer, token -> id."""
    vocabulary: dict[str, int] = backend.get_vocab()
    tokens = dict(zip(vocabulary.values(), vocabulary, strict=True))
    for token, number in vocabulary.items():
        if tokens[number] != token:
            pair = f"{token!r} and {tokens[number]!r}"
            raise VerificationError(f"{origin}: the tokens {pair} have both the id {number}")
    return vocabulary
