"""Finding and loading plugins: one when one is needed, all when all are asked for."""

from zoo.plugins.discovery import Found, claimed, installed
from zoo.plugins.loading import PluginWarning, broken, go_on_without, hooks_of, load
from zoo.plugins.provided import (
    all_families,
    all_formats,
    family_of_model_type,
    format_named,
    get_family,
    registry_files,
)

__all__ = [
    "Found",
    "PluginWarning",
    "all_families",
    "all_formats",
    "broken",
    "claimed",
    "family_of_model_type",
    "format_named",
    "get_family",
    "go_on_without",
    "hooks_of",
    "installed",
    "load",
    "registry_files",
]
