"""Import of plugins, one at a time, and reports of broken ones."""

import contextlib
import functools
import importlib
import os
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from zoo.errors import PluginError, UsageError, did_you_mean
from zoo.plugins.discovery import PluginInfo, choose, conflict, disabled_hint, entry_points_by_name
from zoo.plugins.entry_points import API, DISTRIBUTION

if TYPE_CHECKING:
    import pluggy


SLOW_SECONDS = 5.0  # of the code of a plugin, after which a warning names it


class PluginWarning(UserWarning):
    """Warning about a broken plugin; other plugins are not affected."""


@functools.cache
def manager() -> "pluggy.PluginManager":
    """Return the plugin manager, with the hooks of the plugins that are loaded."""
    import pluggy

    from zoo.plugins import hookspecs

    plugin_manager = pluggy.PluginManager(hookspecs.PROJECT)
    plugin_manager.add_hookspecs(hookspecs)
    return plugin_manager


def require_installed(name: str) -> None:
    """Check that a plugin is installed and not disabled, without importing it."""
    plugins = entry_points_by_name()
    if name not in plugins:
        hint = disabled_hint(name) or did_you_mean(name, list(plugins))
        raise UsageError(
            f"no plugin is called {name!r}", hint or f"installed: {', '.join(sorted(plugins))}"
        )


def load(name: str) -> Any:
    """Import one plugin and register its hooks."""
    require_installed(name)
    if manager().has_plugin(name):
        return manager().get_plugin(name)
    rivals = entry_points_by_name()[name]
    plugin = choose(rivals)
    if error := conflict(rivals):
        if plugin is None:
            raise error
        warn_or_raise(error)
    assert plugin is not None, "rivals without a conflict are one"
    check_api(plugin)
    hooks = manager()
    module = import_target(plugin, plugin.module)
    try:
        with plugin_errors(plugin):
            hooks.register(module, plugin.name)
            hooks.check_pending()
    except PluginError:
        # pluggy keeps a plugin whose hooks it refuses, and it would count as loaded
        hooks.unregister(name=plugin.name)
        raise
    return module


def import_target(plugin: PluginInfo, target: str, what: str = "") -> Any:
    """Import a module of a plugin or an object in it; ``what`` describes it in messages."""
    module, _, attribute = target.partition("[")[0].strip().partition(":")
    with plugin_errors(plugin, what):
        value = importlib.import_module(module.strip())
        for name in filter(None, attribute.strip().split(".")):
            value = getattr(value, name)
        return value


@contextlib.contextmanager
def plugin_errors(plugin: PluginInfo, what: str = "") -> Iterator[None]:
    """Isolate a plugin's code within the block, and raise its exceptions as ``PluginError``."""
    try:
        with guarded(plugin):
            yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a third-party module can raise any exception
        place = f"{what}: " if what else ""
        raise broken(plugin, f"{place}{type(error).__name__}: {error}") from error


@contextlib.contextmanager
def guarded(plugin: PluginInfo) -> Iterator[None]:
    """Isolate the code of a third party's plugin within the block, and warn while it takes long."""
    # The warning does not wait for the end, since the code may hang
    if plugin.built_in:
        yield
        return
    message = f"plugin {plugin.name} (from {plugin.origin}) takes more than {SLOW_SECONDS:g} s"
    warning = (f"{message} to import; {ignore_hint(plugin)}",)
    timer = threading.Timer(SLOW_SECONDS, _warn_once, warning)
    timer.daemon = True  # a plugin that hangs must not keep an interrupted process alive
    timer.start()
    try:
        with isolated():
            yield
    finally:
        timer.cancel()


def check_api(plugin: PluginInfo) -> None:
    """Check that a plugin is written for this version of the plugin API."""
    if plugin.api == API:
        return
    newer = plugin.api > API
    raise PluginError(
        f"plugin {plugin.name} (from {plugin.origin}) is written for version {plugin.api} of the "
        f"plugin API, and this zoo has version {API}",
        f"install a newer {DISTRIBUTION if newer else plugin.distribution}, or "
        f"{ignore_hint(plugin)}",
    )


def ignore_hint(plugin: PluginInfo) -> str:
    """Return the command that disables a plugin, as a remedy."""
    return f"ignore it with `zoo plugins disable {plugin.name}`"


def warn_or_raise(error: PluginError) -> None:
    """Warn of a broken plugin, or raise the error if ``ZOO_STRICT_PLUGINS=1``."""
    if os.environ.get("ZOO_STRICT_PLUGINS") == "1":
        raise error
    _warn_once(str(error))


@functools.cache
def _warn_once(line: str) -> None:
    warnings.warn(line, PluginWarning, stacklevel=3)


def broken(plugin: PluginInfo, reason: str) -> PluginError:
    """Return the error for a broken plugin."""
    line = " ".join(reason.split())
    return PluginError(
        f"plugin {plugin.name} (from {plugin.origin}) is broken: {line}",
        f"reinstall or uninstall it, or {ignore_hint(plugin)}",
    )


def hooks_of(name: str) -> list[str]:
    """Return the names of the hooks that a loaded plugin implements."""
    callers: Iterable[Any] = manager().get_hookcallers(load(name)) or ()
    return sorted(caller.name for caller in callers)


@contextlib.contextmanager
def isolated() -> Iterator[None]:
    """Send printed text to standard error, and turn ``os._exit`` into ``SystemExit``."""
    # Standard output has the results of commands and may be JSON. Text that C code or a subprocess
    # writes to its descriptor is redirected as well
    with _stdout_to_stderr(), contextlib.redirect_stdout(sys.stderr), _exits_raised():
        yield


@contextlib.contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """Point descriptor 1 at standard error within the block."""
    saved = None
    with contextlib.suppress(OSError, ValueError, AttributeError):  # closed or replaced streams
        sys.stdout.flush()
        saved = os.dup(1)
        os.dup2(2, 1)
    try:
        yield
    finally:
        if saved is not None:
            os.dup2(saved, 1)
            os.close(saved)


@contextlib.contextmanager
def _exits_raised() -> Iterator[None]:
    real_exit = os._exit
    process = os.getpid()

    def raise_exit(status: int) -> NoReturn:
        if os.getpid() != process:  # a forked process may exit
            real_exit(status)
        raise SystemExit(status)

    os._exit = raise_exit
    try:
        yield
    finally:
        os._exit = real_exit
