"""Discovery and loading of plugins, and access to the objects they provide.

Names are imported on first use, because ``zoo --help`` needs only the entry points.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoo.plugins.discovery import PluginInfo, entry_points_by_name, installed
    from zoo.plugins.loading import (
        PluginWarning,
        broken,
        hooks_of,
        load,
        require_installed,
        warn_or_raise,
    )
    from zoo.plugins.registry import (
        all_families,
        all_formats,
        built_in_formats,
        family_of_model_type,
        family_of_tokenizer,
        format_named,
        get_family,
        get_logger,
        iter_families,
        recipes_of_plugins,
        registry_files,
        state_of_family,
    )

__all__ = [
    "PluginInfo",
    "PluginWarning",
    "all_families",
    "all_formats",
    "broken",
    "built_in_formats",
    "entry_points_by_name",
    "family_of_model_type",
    "family_of_tokenizer",
    "format_named",
    "get_family",
    "get_logger",
    "hooks_of",
    "installed",
    "iter_families",
    "load",
    "recipes_of_plugins",
    "registry_files",
    "require_installed",
    "state_of_family",
    "warn_or_raise",
]
_MODULES = ("discovery", "loading", "registry")


def __getattr__(name: str) -> Any:
    if name in __all__:
        for module in _MODULES:
            if (value := getattr(import_module(f"{__name__}.{module}"), name, None)) is not None:
                return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
