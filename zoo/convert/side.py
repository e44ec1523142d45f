"""The tokenizer of a conversion: from the source, from our own layout, or from elsewhere."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from zoo.checkpoint import TOKENIZER, TokenizerInfo, is_checkpoint, load_checkpoint
from zoo.config import Config
from zoo.convert.source import Opened
from zoo.errors import SourceError, VerificationError

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

    from zoo.family import Family
    from zoo.references import Source


@dataclass(frozen=True)
class Tokenizer:
    """A tokenizer as it is stored.

    Attributes:
        json: the contents of ``tokenizer.json``.
        info: what that file does not say.
    """

    json: bytes
    info: TokenizerInfo


def tokenizer_of(opened: Opened, elsewhere: "Source | None", config: Config) -> Tokenizer | None:
    """Return the tokenizer to write, or ``None`` where the source has none.

    Raises:
        SourceError: ``elsewhere`` has no tokenizer.
        VerificationError: its files contradict each other, or its ids do not fit the model.
    """
    source = elsewhere or opened.source
    found = _read(opened.family, source, config)
    if found is None and elsewhere is not None:
        raise SourceError(f"{elsewhere.directory} has no tokenizer files")
    return found


def _read(family: "Family", source: "Source", config: Config) -> Tokenizer | None:
    from zoo.tokenization import check_vocabulary, describe, has_tokenizer

    if is_checkpoint(source.directory):
        return _ours(source)
    files = source.files
    if not has_tokenizer(files):
        return None
    backend = family.tokenizer(files)
    check_vocabulary(backend, config.vocab_size, str(source.directory))
    vocabulary_of(backend, str(source.directory))
    info = describe(files, backend, family.special_tokens)
    return Tokenizer(backend.to_str(pretty=True).encode(), info)


def vocabulary_of(backend: "Backend", where: str) -> dict[str, int]:
    """Return token -> id of a tokenizer.

    Raises:
        VerificationError: two tokens have one id; when the tokenizer is stored, one is lost.
    """
    vocabulary: dict[str, int] = backend.get_vocab()
    tokens = dict(zip(vocabulary.values(), vocabulary, strict=True))
    for token, number in vocabulary.items():
        if tokens[number] != token:
            pair = f"{token!r} and {tokens[number]!r}"
            raise VerificationError(f"{where}: the tokens {pair} have both the id {number}")
    return vocabulary


def _ours(source: "Source") -> Tokenizer | None:
    from zoo.tokenization.stored import read_checked

    info = load_checkpoint(source.directory).model.tokenizer
    if info is None:
        return None
    return Tokenizer(read_checked(source.directory / TOKENIZER), info)
