"""Which modules a command imports."""

from tests import cold


def modules_after(*arguments: str) -> set[str]:
    """Return the names of the modules that a command has imported at its end."""
    done = cold.zoo(*arguments)
    assert done.returncode == 0, done.stderr
    return done.modules
