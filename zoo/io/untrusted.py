"""Errors of foreign parsers as errors of the file that they parse."""

import contextlib
import os
from collections.abc import Iterator

from zoo.errors import VerificationError, ZooError


@contextlib.contextmanager
def parsing(path: "str | os.PathLike[str]", what: str) -> Iterator[None]:
    """Turn whatever a foreign parser raises into a ``VerificationError`` that names the file.

    Wrap the call of the parser alone: an error in our own code inside the block would be taken
    for one of the file. Errors of the operating system pass, as do interrupts.

    Args:
        path: the file that is parsed.
        what: kind of the file, with its article: ``"a tokenizer"``.

    Raises:
        VerificationError: the parser raised something, a panic of Rust code included.
    """
    try:
        yield
    except (ZooError, OSError):
        raise
    except (Exception, RecursionError) as error:
        raise _unsound(path, what, error) from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # pyo3 derives it from BaseException
            raise
        raise _unsound(path, what, error) from error


def _unsound(path: "str | os.PathLike[str]", what: str, error: BaseException) -> VerificationError:
    message = " ".join(str(error).split())[:300]
    detail = f": {message}" if message else f": {type(error).__name__}"
    return VerificationError(f"{path}: not {what} that can be read{detail}")
