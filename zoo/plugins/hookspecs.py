"""Hook specifications of plugins. Hooks return values and have no side effects.

A distribution declares its plugin module in the entry-point group ``zoo.api1``. If the plugin
provides a family, give the entry point the name of the family: a command then imports only that
plugin.

The group states the version of this API: ``zoo.api2`` would be version 2, and ``zoo`` is an older
name of version 1. A plugin for another version is refused without being imported; a distribution
may have an entry point in several groups.

Pretraining objectives, tasks of ``zoo run`` and commands are not hooks: each is an entry point, so
that they are listed without importing a plugin (``zoo.plugins.entry_point_objects``).
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from pathlib import Path

    from zoo.families.base import Family
    from zoo.families.distillation import DistillationRecipe
    from zoo.io.tensors.formats import Format
    from zoo.plugins.logger import Logger

PROJECT = "zoo"  # of pluggy's markers
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def zoo_families() -> "Iterable[Family]":
    """Return the model families that this plugin provides."""
    return ()


@hookspec
def zoo_formats() -> "Iterable[Format]":
    """Return the checkpoint file formats that this plugin can read."""
    return ()


@hookspec
def zoo_checkpoints() -> "Iterable[Path]":
    """Return registry files (the format of ``registry.yaml``) that name more checkpoints."""
    return ()


@hookspec
def zoo_loggers() -> "Iterable[type[Logger]]":
    """Return the classes of loggers that this plugin provides.

    The setting ``report_to`` selects loggers by their ``name``. If the entry point has the name of
    the logger, no other plugin is imported to find it.
    """
    return ()


@hookspec
def zoo_recipes() -> "Iterable[DistillationRecipe]":
    """Return distillation recipes for students of any family; ``--recipe`` selects one by name."""
    return ()
