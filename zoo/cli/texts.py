"""Texts of the command line: a text that names a file is likely meant as the file."""

import os
from collections.abc import Callable, Sequence
from typing import Any

import click

from zoo.errors import UsageError

# Takes the text as it is, although a file has this name.
text_is_text_option: Callable[[Any], Any] = click.option(
    "--text-is-text",
    is_flag=True,
    help="Take a text that is the name of a file as a text.",
)


def refuse_file_name(texts: Sequence[str], remedy: str) -> None:
    """Check that a single text is not the name of a file.

    Several texts are taken as they are.

    Args:
        texts: the texts of a command.
        remedy: how the command reads a file, in which ``FILE`` stands for its quoted name.

    Raises:
        UsageError: the only text is the name of a file.
    """
    if len(texts) != 1 or texts[0] == "-" or not _is_file(texts[0]):
        return
    import shlex

    how_to_read = remedy.replace("FILE", shlex.quote(texts[0]))
    raise UsageError(
        f"the text {texts[0]!r} is the name of a file",
        f"{how_to_read} reads it; --text-is-text takes the name as the text",
    )


def _is_file(text: str) -> bool:
    try:
        return os.path.isfile(text)
    except ValueError:  # a text with a NUL is no path
        return False
