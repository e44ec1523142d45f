"""Plugins that the user enabled and disabled, in ``$ZOO_HOME/plugins.yaml``."""

import os
from collections.abc import Callable, Collection
from pathlib import Path

import msgspec
from msgspec.structs import replace

from zoo.errors import SourceError, UsageError, VerificationError
from zoo.io.output.records import update_record
from zoo.io.paths import home
from zoo.io.yaml import dump_yaml, read_yaml
from zoo.plugins.entry_points import SETTINGS


class PluginSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Contents of the file."""

    # Names of the plugins that may be loaded; ``None`` for all that are installed.
    enabled: tuple[str, ...] | None = None
    disabled: tuple[str, ...] = ()  # Names of plugins that are not loaded.

    def allows(self, name: str) -> bool:
        """Return whether the plugin may be loaded."""
        return name not in self.disabled and (self.enabled is None or name in self.enabled)

    def with_plugin(self, name: str, enabled: bool) -> "PluginSettings":
        """Return the settings with a plugin enabled or disabled."""
        disabled = {*self.disabled} - {name} if enabled else {*self.disabled, name}
        names = None if self.enabled is None else {*self.enabled} - {name}
        if names is not None and enabled:
            names.add(name)
        return replace(
            self,
            enabled=None if names is None else tuple(sorted(names)),
            disabled=tuple(sorted(disabled)),
        )

    def without(self, names: Collection[str]) -> "PluginSettings":
        """Return the settings without plugins that are uninstalled."""
        enabled = self.enabled and tuple(name for name in self.enabled if name not in names)
        return replace(self, enabled=enabled)


def settings_file() -> Path:
    """Return the path of the file."""
    return home() / SETTINGS


def read_settings() -> PluginSettings:
    """Read the file; all plugins are enabled if there is none."""
    path = settings_file()
    if not os.path.lexists(path):
        return PluginSettings()
    try:
        values = read_yaml(path) or {}
        if isinstance(values, dict) and values.get("enabled", ()) is None:
            raise msgspec.ValidationError("enabled: Expected `array`, got `null`")
        return msgspec.convert(values, PluginSettings)
    except SourceError as error:
        raise UsageError(error.what) from error
    except msgspec.ValidationError as error:
        raise VerificationError(
            f"{path}: {error}", "it has lists of names, under enabled and disabled"
        ) from error


def update_settings(change: Callable[[PluginSettings], PluginSettings]) -> None:
    """Change the file, which other processes may change at the same time."""
    path = settings_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        update_record(path, lambda _: read_settings(), change, _encode)
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror}", "set ZOO_HOME to a folder you can write to"
        ) from error


def _encode(settings: PluginSettings) -> bytes:
    values = {name: names for name, names in msgspec.to_builtins(settings).items() if names}
    if settings.enabled is not None:
        values["enabled"] = list(settings.enabled)
    return dump_yaml({name: list(names) for name, names in values.items()}).encode()
