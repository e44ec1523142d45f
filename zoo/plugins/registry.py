"""Families, file formats, loggers and registry files that plugins provide."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from zoo.errors import PluginError, UsageError, did_you_mean
from zoo.io.lazy_import import lazy_import
from zoo.plugins.discovery import (
    FORMATS,
    LOGGERS,
    PluginInfo,
    contested,
    declared_model_types,
    disabled_hint,
    entry_points_by_name,
    installed,
    record_digest,
)
from zoo.plugins.loading import broken, load, manager, plugin_errors, warn_or_raise

if TYPE_CHECKING:
    from zoo.families.base import Family
    from zoo.families.distillation import DistillationRecipe
    from zoo.io.tensors.formats import Format
    from zoo.plugins.logger import Logger
    from zoo.tokenizers.source_files import SourceFiles


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _are_texts(value: object) -> bool:
    return isinstance(value, tuple | list) and len(value) > 0 and all(map(_is_text, value))


class Hook(NamedTuple):
    """What a hook of plugins returns."""

    noun: str  # What ``zoo plugins`` calls the values, in the plural.
    target: str  # Class of the values, ``module:class``.
    is_class: bool = False  # Whether the hook returns subclasses, not instances.
    attribute: str = ""  # Attribute of the values that is checked in addition to ``name``.
    is_valid: Callable[[object], bool] = _is_text  # Check of that attribute.
    attribute_type: str = "a text"  # What the attribute has to be, for the message.

    def problem(self, value: Any) -> str:
        """Return why the hook may not return a value; empty if it may."""
        base = lazy_import({self.noun: self.target}, self.noun, "hook")
        is_class = isinstance(value, type)
        value_type = value if is_class else type(value)
        if not issubclass(value_type, base) or is_class != self.is_class:
            return f"a {type(value).__name__}"
        checks: list[tuple[str, Callable[[object], bool], str]] = [("name", _is_text, "a text")]
        if self.attribute:
            checks.append((self.attribute, self.is_valid, self.attribute_type))
        for name, is_valid, expected_type in checks:
            attribute = getattr(value, name, None)
            if not is_valid(attribute):
                noun = value_type.__name__
                return f"a {noun} whose {name} is {attribute!r:.60}, and not {expected_type}"
        return ""


HOOKS: Mapping[str, Hook] = {
    "zoo_families": Hook(
        "families",
        "zoo.families.base:Family",
        attribute="model_types",
        is_valid=_are_texts,
        attribute_type="a tuple of texts",
    ),
    "zoo_formats": Hook(
        "formats",
        "zoo.io.tensors.formats:Format",
        attribute="priority",
        is_valid=lambda value: isinstance(value, int),
        attribute_type="an integer",
    ),
    "zoo_checkpoints": Hook("checkpoints", "pathlib:Path"),
    "zoo_recipes": Hook("recipes", "zoo.families.distillation:DistillationRecipe"),
    "zoo_loggers": Hook("loggers", "zoo.plugins.logger:Logger", is_class=True),
}


def implementations(name: str, hook: str) -> list[Any]:
    """Return the values that a hook of one plugin returns, after checks of their types."""
    load(name)
    hooks = manager()
    plugin = installed()[name]
    # Only this plugin's hook is called: an exception of another one must not be blamed on it.
    other_plugins = [module for owner, module in hooks.list_name_plugin() if owner != name]
    call = hooks.subset_hook_caller(hook, other_plugins)
    values: list[Any] = []
    with plugin_errors(plugin, hook):
        for returned_values in call():
            values += returned_values
        problems = [HOOKS[hook].problem(value) for value in values]
    for problem in problems:
        if problem:
            raise broken(plugin, f"{hook} returned {problem}")
    return values


def families_of(name: str) -> "list[Family]":
    """Return the families of one plugin."""
    return implementations(name, "zoo_families")


def _of_all(hook: str, *, includes_built_in: bool = True) -> Iterator[tuple[PluginInfo, Any]]:
    """Yield plugin and value for every value that a plugin's hook returns, built-in ones first."""
    plugins = installed()
    built_in = []
    third_parties = []
    for name in entry_points_by_name():
        if name in plugins and plugins[name].built_in:
            built_in.append(name)
        else:
            third_parties.append(name)
    names = [*built_in, *third_parties] if includes_built_in else third_parties
    for name in names:
        try:
            values = implementations(name, hook)
        except PluginError as error:
            warn_or_raise(error)
            continue
        for value in values:
            yield plugins[name], value


def get_family(name: str, mentioned_in: str = "") -> "Family":
    """Return a family by name. Imports only its plugin if the entry point has the family's name.

    Args:
        name: name of the family.
        mentioned_in: file that has the name, for the message.

    Raises:
        UsageError: no plugin provides it.
        PluginError: its plugin is broken, or two plugins provide it.
    """
    for family in _of_plugin(name, "zoo_families"):
        if family.name == name:
            return family  # type: ignore[no-any-return]
    families = _by_name("zoo_families", "family", name)
    if name not in families:
        place = f"{mentioned_in}: " if mentioned_in else ""
        hint = disabled_hint(name) or did_you_mean(name, list(families))
        raise UsageError(
            f"{place}no family is called {name!r}",
            hint or f"available: {', '.join(sorted(families))}",
        )
    return families[name]  # type: ignore[no-any-return]


def state_of_family(name: str) -> str:
    """Return a text that changes with a family's code: distribution, version and list of files.

    It is empty for built-in families, which change only with ``zoo``.
    """
    if any(family.name == name for family in _of_plugin(name, "zoo_families")):
        plugin = installed()[name]
    else:
        plugin = next(plugin for plugin, family in _of_all("zoo_families") if family.name == name)
    if plugin.built_in:
        return ""
    return f"{plugin.origin} {record_digest(plugin)}"


def _of_plugin(name: str, hook: str) -> list[Any]:
    """Return the values of a hook of the plugin with a name; none without such a plugin."""
    return implementations(name, hook) if name in entry_points_by_name() else []


def all_families() -> "dict[str, Family]":
    """Return every family by name; a name that two third parties' plugins provide is left out."""
    return _by_name("zoo_families", "family")


def iter_families() -> "Iterator[Family]":
    """Yield every family, built-in ones first; a plugin is imported when its turn comes."""
    yield from (family for _, family in _of_all("zoo_families"))


def _by_name(hook: str, noun: str, requested: str = "") -> dict[str, Any]:
    """Return name -> value, for every value of every plugin's hook.

    A built-in value takes precedence over those of third parties, which are reported. A name that
    several third parties provide, and no built-in plugin, is left out.

    Args:
        hook: name of the hook.
        noun: what a value is called in messages.
        requested: name whose conflict is an error instead of a warning.
    """
    providers: dict[str, list[tuple[PluginInfo, Any]]] = {}
    for plugin, item in _of_all(hook):
        providers.setdefault(item.name, []).append((plugin, item))
    values = {}
    for name, rivals in providers.items():
        first, value = rivals[0]
        is_contested = len(rivals) > 1
        if is_contested:
            error = contested(noun, name, [plugin for plugin, _ in rivals])
            if name == requested and not first.built_in:
                raise error
            warn_or_raise(error)
        if first.built_in or not is_contested:
            values[name] = value
    return values


def family_of_model_type(model_type: str) -> "Family | None":
    """Return the family with a Hub ``model_type``, or ``None``.

    This imports the plugins that have that name or declare it, and further plugins of third parties
    only if none of these provides it. A built-in family takes precedence over a third party's,
    which is reported.
    """
    providers = list(_providers(model_type))
    if not providers:
        for _, family in _of_all("zoo_families", includes_built_in=False):
            if model_type in family.model_types:
                return family  # type: ignore[no-any-return]
        return None
    plugin, family = providers[0]
    if len(providers) > 1:
        error = contested("model type", model_type, [plugin for plugin, _ in providers])
        if not plugin.built_in:
            raise error
        warn_or_raise(error)
    return family


def family_of_tokenizer(files: "SourceFiles", family: "Family") -> "Family":
    """Return the family whose ``tokenizer`` reads the files of a tokenizer.

    A model may have the tokenizer of another family. As in the Hub's library, the class that the
    files name decides, and without one the family of the model.

    Args:
        files: directory of the tokenizer.
        family: the family of the model.
    """
    from zoo.tokenizers.config_files import tokenizer_class

    name = tokenizer_class(files)
    if name is None or name in family.tokenizer_classes:
        return family
    for candidate in iter_families():
        if name in candidate.tokenizer_classes:
            return candidate
    return family


def _providers(model_type: str) -> "Iterator[tuple[PluginInfo, Family]]":
    """Yield the families with a model type, of the plugins that have that name or declare it.

    Built-in ones are first. If their metadata declares no model types, as in an editable
    installation of an earlier commit, all built-in plugins are asked.
    """
    plugins = installed()
    plugins_by_type = declared_model_types()
    names = set(plugins_by_type.get(model_type, ()))
    if model_type in plugins:
        names.add(model_type)
    declaring_plugins = set(names)
    for plugin_names in plugins_by_type.values():
        declaring_plugins.update(plugin_names)
    built_in = {name for name, plugin in plugins.items() if plugin.built_in}
    if not built_in & declaring_plugins:
        names |= built_in
    is_provided = False
    for name in sorted(names, key=lambda name: (name not in built_in, name)):
        try:
            families = families_of(name)
        except PluginError as error:
            if not is_provided:
                raise
            warn_or_raise(error)
            continue
        for family in families:
            if model_type in family.model_types:
                is_provided = True
                yield plugins[name], family


def all_formats() -> "list[Format]":
    """Return all file formats, by descending priority."""
    return _by_priority(item for _, item in _of_all("zoo_formats"))


def built_in_formats() -> "list[Format]":
    """Return the file formats of zoo, by descending priority. Imports no other plugin."""
    return _by_priority(implementations(FORMATS, "zoo_formats"))


def _by_priority(formats: "Iterable[Format]") -> "list[Format]":
    return sorted(formats, key=lambda f: (-f.priority, f.name))


def get_logger(name: str) -> "type[Logger]":
    """Return the class of a logger by name.

    The built-in loggers and the plugin with the name are imported first, further plugins only if
    they are needed.
    """
    if LOGGERS not in installed():  # In an editable installation of an earlier commit.
        raise PluginError(
            "the built-in loggers are not installed",
            "repeat `pip install --no-deps -e .`, which declares new plugins",
        )
    for plugin in (LOGGERS, name):
        for logger in _of_plugin(plugin, "zoo_loggers"):
            if logger.name == name:
                return logger  # type: ignore[no-any-return]
    loggers = _by_name("zoo_loggers", "logger", name)
    if name not in loggers:
        raise UsageError(
            f"no logger is called {name!r}",
            did_you_mean(name, list(loggers)) or f"available: {', '.join(sorted(loggers))}",
        )
    return loggers[name]  # type: ignore[no-any-return]


def logger_names() -> list[str]:
    """Return the names of all loggers, including plugins'."""
    return sorted(_by_name("zoo_loggers", "logger"))


def format_named(name: str) -> "Format":
    """Return a file format by name."""
    for formats in (built_in_formats, all_formats):
        for file_format in formats():
            if file_format.name == name:
                return file_format
    raise UsageError(f"no installed plugin provides the format {name}", "see `zoo plugins`")


def registry_files() -> list[tuple[PluginInfo, Path]]:
    """Return the registry files of plugins, each with its plugin."""
    return list(_of_all("zoo_checkpoints"))


def recipes_of_plugins() -> "dict[str, DistillationRecipe]":
    """Return the distillation recipes of all plugins by name."""
    return _by_name("zoo_recipes", "distillation recipe")
