"""``tokenizer.json``: reading it, and what is the same for every kind of tokenizer."""

from typing import TYPE_CHECKING

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
