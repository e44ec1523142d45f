"""Descriptions of installed plugins: where each is from, what it provides, and whether it loads."""

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from zoo.adapters import ADAPTERS
from zoo.cleaning.rules import CLEANING_RULES
from zoo.distillation.losses import DISTILLATION_LOSSES
from zoo.errors import PluginError, UsageError, ZooError, did_you_mean
from zoo.exporting.targets import TARGETS
from zoo.finetuning.embeddings.losses import EMBEDDING_LOSSES
from zoo.hub.registry import read_registry
from zoo.objectives import OBJECTIVES
from zoo.plugins import entry_points_by_name
from zoo.plugins.catalog import Catalog
from zoo.plugins.discovery import PluginInfo, all_entry_points, conflict, record_digest
from zoo.plugins.entry_point_objects import KINDS, conflicts, named_objects
from zoo.plugins.loading import broken
from zoo.plugins.metrics import built_in_metrics
from zoo.plugins.registry import HOOKS, implementations
from zoo.plugins.suites import BUILT_IN as BUILT_IN_SUITES
from zoo.plugins.tasks import reserved_names
from zoo.training.optim.optimizers import OPTIMIZERS

CATALOGS: tuple[Catalog[Any], ...] = (
    ADAPTERS,
    DISTILLATION_LOSSES,
    EMBEDDING_LOSSES,
    OPTIMIZERS,
    CLEANING_RULES,
    TARGETS,
)
MAX_NAMES = 8  # More names of one kind are shown as their number.
OK = "ok"
DISABLED = "disabled"


@dataclass
class PluginReport:
    """Description of one plugin."""

    name: str  # name of the entry point
    distribution: str
    version: str  # version of the distribution
    api: int  # version of the plugin API that it is written for
    module: str  # module of the entry point
    location: str | None  # path of the module's package; ``None`` without one
    # SHA-256 of the distribution's list of files and digests; ``None`` without such a list
    record_sha256: str | None
    # kind (``families``, ``formats``, ...) -> names; empty unless it loads
    provides: dict[str, list[str]] = field(default_factory=dict)
    health: str = OK  # ``ok``, ``disabled``, or the error
    remedy: str = ""  # what to do about the error
    # problems of its conformance checks, if they ran
    problems: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)  # checks that do not apply, with the reasons

    def to_dict(self) -> dict[str, Any]:
        """Return the values for JSON."""
        values = asdict(self)
        return {k: v for k, v in values.items() if v or k not in ("remedy", "problems", "skipped")}

    @property
    def findings(self) -> list[str]:
        """Problems of the plugin, one line each; empty if it is healthy or disabled."""
        errors = [] if self.health in (OK, DISABLED) else [self.health]
        return self.problems or errors

    def lines(self, *, skipped: bool) -> list[str]:
        """Return the health, and a line for each problem; also for checks that do not apply."""
        problems = self.findings
        health = f"{len(problems)} problem{'s'[: len(problems) > 1]}" if problems else self.health
        return [
            f"{self.name} ({self.distribution} {self.version}): {health}",
            *(f"  problem: {line}" for line in problems),
            *(f"  not run: {line}" for line in self.skipped if skipped),
        ]

    def set_error(self, error: PluginError) -> None:
        """Set health and remedy from an error."""
        self.health = error.what
        self.remedy = error.hint

    @property
    def summary(self) -> str:
        """The provided names: ``families: a, b; loggers: c``; long lists as their length."""
        parts = []
        for kind, names in self.provides.items():
            listing = ", ".join(names)
            if len(names) > MAX_NAMES:
                listing = str(len(names))
            parts.append(f"{kind}: {listing}")
        return "; ".join(parts)


def report_plugins(names: Iterable[str] = (), commands: Collection[str] = ()) -> list[PluginReport]:
    """Return the descriptions of plugins, by default of all; imports those that are enabled."""
    plugins = all_entry_points()
    for name in names:
        require_known(name)
    reports = []
    for name in names or plugins:
        for plugin in plugins[name]:
            reports.append(_report(plugin))
    built_in_names: dict[str, Collection[str]] = {
        "objectives": OBJECTIVES,
        "tasks": reserved_names(),
        "metrics": built_in_metrics(),
        "suites": BUILT_IN_SUITES,
        "commands": commands,
        **{catalog.kind: catalog.built_in for catalog in CATALOGS},
    }
    for kind, built_in in built_in_names.items():
        for plugin_name, error in conflicts(kind, built_in):
            for report in reports:
                if report.name == plugin_name and report.health == OK:
                    report.set_error(error)
    return reports


def require_known(name: str) -> None:
    """Check that a plugin is installed, enabled or not."""
    plugins = all_entry_points()
    if name not in plugins:
        hint = did_you_mean(name, list(plugins)) or f"installed: {', '.join(sorted(plugins))}"
        raise UsageError(f"no plugin is called {name!r}", hint)


def _report(plugin: PluginInfo) -> PluginReport:
    # The path of the top-level package or module is found without importing it.
    module = plugin.module.partition(":")[0].strip()
    spec = find_spec(module.partition(".")[0])
    location = (spec and spec.origin) or None
    if location is not None and Path(location).name == "__init__.py":
        location = str(Path(location).parent)
    identity = plugin.name, plugin.distribution, plugin.version, plugin.api, plugin.module
    report = PluginReport(*identity, location, record_digest(plugin))
    enabled = entry_points_by_name()
    if plugin.name not in enabled:
        report.health = DISABLED
        return report
    try:
        error = conflict(enabled[plugin.name])
        if error is not None:
            raise error
        report.provides = provided_names(plugin)
    except PluginError as error:
        report.set_error(error)
    return report


def provided_names(plugin: PluginInfo) -> dict[str, list[str]]:
    """Return what a plugin provides: kind -> names."""
    provided = {}
    for name, hook in HOOKS.items():
        entries = []
        for value in implementations(plugin.name, name):
            if not isinstance(value, Path):
                entries.append(value.name)
                continue
            try:
                entries += read_registry(value)
            except ZooError as error:
                raise broken(plugin, error.what) from error
        provided[hook.noun] = entries
    for kind in KINDS:
        objects = (named for named in named_objects(kind) if named.plugin_name == plugin.name)
        provided[kind] = [named.name for named in objects]
    return {kind: names for kind, names in provided.items() if names}
