"""``tokenizer.json``: reading it, and what is the same for every kind of tokenizer."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from zoo.errors import VerificationError
from zoo.tokenization.files import TOKENIZER_JSON, SourceFiles
from zoo.tokenization.settings import Settings

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# What a configuration that says clean_up_tokenization_spaces wants done to decoded text.
CLEAN_UP = {f" {mark}": mark for mark in (".", "?", "!", ",")} | {" ' ": "'"}
CLEAN_UP |= {f" {end}": end for end in ("n't", "'m", "'s", "'ve", "'re")}


def load(files: SourceFiles) -> "Tokenizer":
    """Read ``tokenizer.json``.

    Raises:
        SourceError: it cannot be read.
        VerificationError: the library does not accept it.
    """
    from tokenizers import Tokenizer

    text = files.text(TOKENIZER_JSON)
    try:
        return Tokenizer.from_str(text)
    except Exception as error:  # the library raises nothing narrower
        raise VerificationError(f"{files.path(TOKENIZER_JSON)}: {one_line(error)}") from error


def stored_kind(files: SourceFiles) -> str | None:
    """Return what kind of model ``tokenizer.json`` holds, such as ``BPE`` or ``Unigram``.

    ``None`` stands for no such file.

    Raises:
        SourceError, VerificationError: see ``load``.
    """
    return type(load(files).model).__name__ if files.has(TOKENIZER_JSON) else None


def check_ends(files: SourceFiles, tokenizer: "Tokenizer") -> None:
    """Check that what ``tokenizer.json`` puts around each text has the vocabulary's ids.

    The library takes the ids on trust, and gives up its process over one that is missing.

    Args:
        files: where ``tokenizer.json`` is.
        tokenizer: what ``load`` made of it.

    Raises:
        VerificationError: an id is missing, or is another token's.
    """
    where = files.path(TOKENIZER_JSON)
    for token, number in _ends(files.json(TOKENIZER_JSON).get("post_processor")):
        found = tokenizer.token_to_id(token)
        if number is None or number != found:
            raise VerificationError(
                f"{where}: its post_processor gives {token!r} the id {number}, and its "
                f"vocabulary the id {found}"
            )


def _ends(processor: Any) -> Iterator[tuple[str, int | None]]:
    """Yield the tokens that a post-processor adds, with their ids, of any of its layouts."""
    found: Mapping[str, Any] = processor or {}
    for part in found.get("processors", ()):
        yield from _ends(part)
    for role in ("cls", "sep"):
        if role in found:
            token, number = found[role]
            yield token, number
    listed = found.get("special_tokens", {})
    for piece in (*found.get("single", ()), *found.get("pair", ())):
        if "SpecialToken" in piece and piece["SpecialToken"]["id"] not in listed:
            yield piece["SpecialToken"]["id"], None
    for entry in listed.values():
        if len(entry["tokens"]) != len(entry["ids"]):
            yield entry["id"], None
        yield from zip(entry["tokens"], entry["ids"], strict=False)


def finish(tokenizer: "Tokenizer", settings: Settings) -> None:
    """Make a tokenizer ready to be stored.

    Decoding ends with the clean-up that the configuration asks for. Truncation and padding are
    switched off: they are a matter of each run.

    Raises:
        VerificationError: the configuration is malformed.
    """
    from tokenizers import decoders

    if settings.option("clean_up_tokenization_spaces", (bool, type(None)), False):
        steps = [decoders.Replace(found, wanted) for found, wanted in CLEAN_UP.items()]
        first = [] if tokenizer.decoder is None else [tokenizer.decoder]
        tokenizer.decoder = decoders.Sequence([*first, decoders.Fuse(), *steps])
    tokenizer.no_truncation()
    tokenizer.no_padding()


def one_line(error: Exception) -> str:
    """Return what the library says, fit for a message of one line."""
    return " ".join(str(error).split())[:200]
