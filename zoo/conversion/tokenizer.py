"""Tokenizer of a conversion, from the source or from another directory."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from zoo.checkpoint import TOKENIZER, check_tables, load_checkpoint
from zoo.errors import VerificationError
from zoo.families.config import Config
from zoo.plugins import family_of_tokenizer
from zoo.tokenizers.info import TokenizerInfo

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

    from zoo.checkpoint import Checkpoint
    from zoo.families.base import Family
    from zoo.hub.source import CheckpointDir

# Properties of a tokenizer that change how texts are read.
TEXT_PROPERTIES = (
    "special",
    "max_tokens",
    "truncation_side",
    "split_special_tokens",
    "token_types",
    "splitter",
    "targets",
)


@dataclass(frozen=True)
class SourceTokenizer:
    """A tokenizer in the zoo's layout."""

    json: bytes
    info: TokenizerInfo  # special tokens and maximum length
    files: tuple[str, ...] = ()  # files that it was read from


def read_tokenizer(
    family: "Family", source: "CheckpointDir", config: Config, *, stanford: bool = False
) -> SourceTokenizer | None:
    """Return the tokenizer of a directory for a family, or ``None`` if it has no vocabulary."""
    from zoo.sentence_models.colbert_files import register_marks
    from zoo.tokenizers import check_vocabulary, tokenizer_info
    from zoo.tokenizers.tokenizer_json import read_checked

    if source.is_converted:
        checkpoint_info = load_checkpoint(source.directory).model.tokenizer
        if checkpoint_info is None:
            return None
        return SourceTokenizer(read_checked(source.directory / TOKENIZER), checkpoint_info)
    files = source.files
    if not family.has_tokenizer(files):
        return None
    reader = family_of_tokenizer(files, family)
    backend = reader.tokenizer(files)
    register_marks(backend, files, stanford=stanford)
    check_vocabulary(backend, config.vocab_size, str(source.directory))
    unique_vocabulary(backend, str(source.directory))
    targets = reader.target_tokenizer(files)
    splitter = reader.splitter(files)
    info = tokenizer_info(files, backend, reader.special_tokens, targets, splitter)
    check_tables(backend, info, family, config, str(source.directory))
    names = tuple(sorted(files.names_read))
    return SourceTokenizer(backend.to_str(pretty=True).encode(), info, names)


def read_own_tokenizer(
    source: "CheckpointDir", base: "Checkpoint", config: Config
) -> SourceTokenizer | None:
    """Return the tokenizer next to an adapter, or ``None`` if its base's reads texts alike."""
    if base.family.text_tokenizer(config) is not None:
        return None
    tokenizer = read_tokenizer(base.family, source, config)
    base_info = base.model.tokenizer
    if tokenizer is None or base_info is None:
        return tokenizer
    for name in TEXT_PROPERTIES:
        if getattr(tokenizer.info, name) != getattr(base_info, name):
            return tokenizer
    if tokenizer.json != base.tokenizer_file.read_bytes():
        return tokenizer
    return None


def unique_vocabulary(backend: "Backend", origin: str) -> dict[str, int]:
    """Return the vocabulary of a tokenizer, token -> id."""
    vocabulary: dict[str, int] = backend.get_vocab()
    tokens = dict(zip(vocabulary.values(), vocabulary, strict=True))
    for token, number in vocabulary.items():
        if tokens[number] != token:
            pair = f"{token!r} and {tokens[number]!r}"
            raise VerificationError(f"{origin}: the tokens {pair} have both the id {number}")
    return vocabulary
