"""Errors of a Hub that cannot be reached."""

from zoo.errors import SourceError


class Unreachable(SourceError):
    """Files that the cache does not have, without a connection to the Hub."""


class ConnectionFailed(Unreachable):
    """A connection could not be opened; it is not retried, so offline use fails at once."""
