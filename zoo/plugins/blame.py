"""Whose fault an exception is: the plugin's in whose files it was raised, or the core's."""

import os
import sys
from collections.abc import Iterator
from types import FrameType, TracebackType

from zoo.errors import PluginError
from zoo.plugins.discovery import PluginInfo, entry_points_by_name
from zoo.plugins.loading import broken

OURS = "plm-zoo"


def plugin_error(error: BaseException) -> PluginError | None:
    """Return the error to show for an exception that passed through a third party's plugin.

    The families that come with zoo are part of it: an exception in one of them is a bug in zoo.

    Args:
        error: any exception, with its traceback.

    Returns:
        the error, which names the plugin, its distribution and the line; ``None`` where no file
        of a third party's plugin took part.
    """
    parties = _third_parties()
    if not parties:
        return None
    for module, path, number in _places(error):
        for package, plugin in parties.items():
            if _belongs(module, package) or _inside(path, package):
                return broken(plugin, _described(error, module or package, path, number))
    return None


def provider_error(provided: object, error: Exception) -> PluginError | None:
    """Return the error to show for a failure with what a third party's plugin provides.

    Args:
        provided: a family or a format.
        error: what was raised in using it, in the plugin or in the core.

    Returns:
        the error; ``None`` for what comes with zoo.
    """
    if blamed := plugin_error(error):
        return blamed
    module = type(provided).__module__
    for package, plugin in _third_parties().items():
        if _belongs(module, package):
            return broken(plugin, f"{type(error).__name__}: {error}")
    return None


def _belongs(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _described(error: BaseException, module: str, path: str, number: int) -> str:
    message = " ".join(str(error.msg if isinstance(error, SyntaxError) else error).split())
    place = f"{os.path.basename(path)}, line {number}, of {module}"
    kind = type(error).__name__
    return f"{kind}: {message} ({place})" if message else f"{kind} ({place})"


def _third_parties() -> dict[str, PluginInfo]:
    """Return package -> plugin, for plugins of other distributions than zoo's own."""
    try:
        plugins = [plugin for rivals in entry_points_by_name().values() for plugin in rivals]
    except PluginError:  # it is shown where a command asks for plugins
        return {}
    return {_package(p.module): p for p in plugins if p.distribution != OURS}


def _package(entry: str) -> str:
    """Return the package of an entry point: the module itself, or the one that it is in."""
    module = entry.partition(":")[0].strip()
    known = sys.modules.get(module)
    return (getattr(known, "__package__", None) or module) if known else module


def _places(error: BaseException) -> Iterator[tuple[str, str, int]]:
    """Yield module, file and line of each frame, the innermost first; of a syntax error, too."""
    if isinstance(error, SyntaxError) and error.filename:
        yield "", error.filename, error.lineno or 0
    frames = list(_frames(error.__traceback__))
    for frame, number in reversed(frames):
        yield frame.f_globals.get("__name__", ""), frame.f_code.co_filename, number


def _frames(traceback: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    while traceback is not None:
        yield traceback.tb_frame, traceback.tb_lineno
        traceback = traceback.tb_next


def _inside(path: str, package: str) -> bool:
    """Whether a file belongs to a package that is imported, or is being imported."""
    known = sys.modules.get(package)
    folders = list(getattr(known, "__path__", ())) if known else []
    return any(path.startswith(folder + os.sep) for folder in folders)
