"""Tasks of a suite that fail, while the others go on."""

from collections.abc import Mapping

from zoo.errors import (
    Interrupted,
    PluginError,
    SourceError,
    UsageError,
    VerificationError,
    ZooError,
)

ERROR_CLASSES = (UsageError, VerificationError, SourceError, PluginError)


def ends_suite(error: ZooError) -> bool:
    """Return whether an error concerns all tasks: an interruption does."""
    return isinstance(error, Interrupted)


def error_line(error: ZooError) -> str:
    """Return the message and the remedy of an error, without the rows that it lists."""
    return f"{error.what}; {error.hint}" if error.hint else error.what


def _error_lines(failures: Mapping[str, ZooError]) -> list[str]:
    """Return a line for each failure, followed by the rows that it lists."""
    lines = []
    for name, error in failures.items():
        lines.append(f"{name}: {error_line(error)}")
        lines += [f"  {line}" for line in error.details]
    return lines


def incomplete_suite(
    failures: Mapping[str, ZooError], missing_files: Mapping[str, str], hint: str
) -> ZooError | None:
    """Return the error that ends a command with a table of some tasks; ``None`` if all are there.

    It has the exit code of the first failure, or that of missing files.

    Args:
        failures: name of a task -> its error.
        missing_files: name of a task whose files are missing -> what is missing.
        hint: what to do about failures.
    """
    if failures:
        details = _error_lines(failures)
        details += [f"{name}: {problem}" for name, problem in missing_files.items()]
        return _error_like(
            next(iter(failures.values())), f"{', '.join(failures)} failed", hint, details
        )
    if missing_files:
        return SourceError(
            f"the files of {', '.join(missing_files)} are missing",
            "add them, or select other tasks with --tasks",
        )
    return None


def no_result(failures: Mapping[str, ZooError], what: str) -> ZooError:
    """Return the error of a suite without a result: that of its task, or one that lists them.

    Args:
        failures: name of a task -> its error; at least one.
        what: message if there are several.
    """
    first_error = next(iter(failures.values()))
    if len(failures) == 1:
        return first_error
    return _error_like(first_error, what, "correct what these lines name", _error_lines(failures))


def _error_like(error: ZooError, what: str, hint: str, details: list[str]) -> ZooError:
    """Return an error with the exit code of another one."""
    for error_class in ERROR_CLASSES:
        if isinstance(error, error_class):
            return error_class(what, hint, details)
    return ZooError(what, hint, details)
