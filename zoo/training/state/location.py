"""Where a run began: relative paths of its settings are relative to that directory."""

import contextlib
import shlex
from collections.abc import Iterator
from pathlib import Path


def resume_command(kind: str, path: Path) -> str:
    """Return the command that resumes a run, quoted for the shell."""
    return shlex.join(["zoo", kind, "--resume", str(path)])


@contextlib.contextmanager
def where_it_began(path: Path, directory: str) -> Iterator[Path]:
    """Work in the directory in which a run began, so that its relative paths have their meaning.

    The current directory stays if the recorded one is empty, as in runs of earlier versions, or no
    longer exists.

    Args:
        path: the run's directory; the context has its path from the other directory.
        directory: the recorded directory.
    """
    if not directory or not Path(directory).is_dir() or Path(directory).samefile(Path.cwd()):
        yield path
        return
    path = path.absolute()
    with contextlib.chdir(directory):
        yield path
