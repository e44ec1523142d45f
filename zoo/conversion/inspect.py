"""Inspection of a checkpoint directory: its configuration, family and files."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from reprlib import repr as shown
from typing import TYPE_CHECKING, Any

from zoo.checkpoint import is_checkpoint
from zoo.errors import SourceError, UsageError, VerificationError, did_you_mean
from zoo.hub.registry import entry_config, line_of
from zoo.hub.select_files import (
    CONFIG,
    LOCAL_SIDE_FILES,
    UNSUPPORTED_FILES,
    choose_format,
    config_files,
    matching,
    module_files,
    without_weights,
)
from zoo.io.json import parse_json, read_json_object
from zoo.plugins import all_families, all_formats, family_of_model_type, get_family, iter_families
from zoo.plugins.directory import plugin_of_model_type
from zoo.plugins.discovery import disabled_hint
from zoo.sentence_models import module_kinds
from zoo.sentence_models.sentence_transformers_files import MODULES
from zoo.tokenizers import TOKENIZER_FILES

if TYPE_CHECKING:
    from zoo.families.base import Family
    from zoo.hub.source import CheckpointDir

LOG = logging.getLogger("zoo")


def find_config(source: "CheckpointDir") -> "tuple[str, Family, dict[str, Any]]":
    """Find the configuration of a published checkpoint."""
    directory = source.model_directory
    content = source.derived.get(CONFIG)
    if content is not None:
        hub = parse_json(content, directory / CONFIG)
        return CONFIG, _family_of(hub, directory), hub
    if not (directory / CONFIG).is_file():
        for family in iter_families():
            for pattern in family.config_files:
                for name in source.files.matching(pattern):
                    config = _with_model_type(read_hub_config(directory, name), source, name)
                    if family.matches_config(config):
                        return name, family, config
        module_family = _find_family_of_sentence_module(source)
        if module_family is not None:
            return MODULES, module_family, {}
    hub = _translate_config(read_hub_config(directory), directory)
    hub = _with_model_type(hub, source, CONFIG)
    if hub.get("model_type") is None:
        model_type = model_type_of(hub, source)
        if model_type:
            LOG.info("%s has no model_type: taken as %s", directory / CONFIG, model_type)
            hub["model_type"] = model_type
    config_name = f"{source.folder}/{CONFIG}".lstrip("/")
    return config_name, _family_of(hub, directory), hub


def _find_family_of_sentence_module(source: "CheckpointDir") -> "Family | None":
    """Return the family of the first module of sentence-transformers, if it needs no other file."""
    from zoo.families.base import Family

    if not source.files.has(MODULES):
        return None
    first_module = next(iter(module_kinds(source.files)), Family.sentence_module)
    if first_module == Family.sentence_module:
        return None
    for family in iter_families():
        if family.sentence_module == first_module:
            return family
    return None


def _translate_config(hub: dict[str, Any], directory: Path) -> dict[str, Any]:
    """Return a configuration with the Hub's keys, if a family knows its class from other code."""
    code = hub.get("auto_map")
    config_class = str(code.get("AutoConfig", "")) if isinstance(code, Mapping) else ""
    if config_class:
        class_name = config_class.rpartition(".")[2]
        for other_family in iter_families():
            if class_name in other_family.other_config_classes:
                return _translate_by(other_family, hub, directory)
    names = hub.get("architectures")
    if not isinstance(names, list) or not names:
        return hub
    model_type = hub.get("model_type")
    family = family_of_model_type(model_type) if isinstance(model_type, str) else None
    if family is not None:
        for head in family.heads().values():
            if names[0] in head.architectures:
                return hub
    for family in iter_families():
        if names[0] in family.other_classes:
            return _translate_by(family, hub, directory)
    return hub


def _translate_by(family: "Family", hub: dict[str, Any], directory: Path) -> dict[str, Any]:
    try:
        return family.translate_config(hub)
    except VerificationError as error:
        what = f"{directory / CONFIG}: {error.what}"
        raise VerificationError(what, error.hint) from error


def class_names(hub: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the class names (``architectures``) of a configuration."""
    return tuple(hub.get("architectures") or ())


def _with_model_type(hub: dict[str, Any], source: "CheckpointDir", name: str) -> dict[str, Any]:
    """Return the configuration, with ``model_type`` set if the user specifies one."""
    names = hub.get("architectures")
    if names is not None:
        is_list_of_names = isinstance(names, list) and all(type(name) is str for name in names)
        if not is_list_of_names:
            raise VerificationError(
                f"{source.directory / name}: architectures = {shown(names)} is not a list of names"
            )
    model_type = hub.get("model_type")
    if source.model_type is None or model_type == source.model_type:
        return hub
    if model_type is not None:
        raise UsageError(
            f"{source.directory / name} has model_type {shown(model_type)}, not "
            f"{source.model_type!r}",
            "leave out --model-type",
        )
    return hub | {"model_type": source.model_type}


def model_type_of(hub: Mapping[str, Any], source: "CheckpointDir") -> str | None:
    """Return the ``model_type`` of a configuration without that key.

    It is inferred from the class name, else from the registry entry; ``None`` if neither is known.
    """
    for name, model_type in _types_of_classes(iter_families()):
        if name in class_names(hub):
            return model_type
    row = source.row
    if row is None:
        return None
    family = get_family(row.family, line_of(source.reference))
    config = None
    if row.size:
        config = entry_config(source.reference, row)
    if config is None:
        return family.model_types[0]
    return family.model_type(config)


def _types_of_classes(families: "Iterable[Family]") -> Iterator[tuple[str, str]]:
    """Yield name and ``model_type`` of each class that a head of some families has on the Hub."""
    for family in families:
        for head in family.heads().values():
            # Class names are in the order of the model types. A head may lack the last types, and
            # older names, which belong to no certain type, may follow: both are left out. A wrong
            # type is not hidden, since its rules have to account for every tensor.
            yield from zip(head.architectures, family.model_types, strict=False)


def read_hub_config(directory: Path, name: str = CONFIG) -> dict[str, Any]:
    """Read the configuration file of a published checkpoint."""
    path = directory / name
    try:
        return read_json_object(path)
    except SourceError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise _missing_config(directory, name) from error
        raise


def _missing_config(directory: Path, name: str) -> SourceError:
    names = [path.name for path in directory.iterdir()]
    if any(file_format.find(names) for file_format in all_formats()):
        return SourceError(
            f"{directory} holds no {name}, and weights do not determine family and configuration",
            f"add the {name} that this model has on the Hub",
        )
    problem = "is empty"
    if names:
        problem = f"holds no {name}"
    run_model = directory / "model"  # A run has its final model there.
    if (run_model / name).is_file():
        return SourceError(f"{directory} {problem}", f"give {run_model}, the model of this run")
    unsupported = _unsupported_format(directory)
    if unsupported is not None:
        return unsupported
    from zoo.adapted_models.checkpoint import hint_of_subfolders

    hint = hint_of_subfolders(directory) or "give the directory of a checkpoint"
    return SourceError(f"{directory} {problem}", hint)


def _unsupported_format(directory: Path) -> SourceError | None:
    """Return the error for a directory that only holds files of a format that is not read."""
    names = [path.name for path in directory.iterdir()]
    if any(file_format.find(names) for file_format in all_formats()):
        return None
    unsupported_patterns = list[str]()
    for patterns, _, _ in UNSUPPORTED_FILES:
        unsupported_patterns += patterns
    if not matching(names, unsupported_patterns):
        return None
    return without_weights(names, str(directory))


def _family_of(hub: Mapping[str, Any], directory: Path) -> "Family":
    model_type = hub.get("model_type")
    if isinstance(model_type, str):
        family = family_of_model_type(model_type)
        if family is not None:
            return family
    model_types = list[str]()
    for installed_family in all_families().values():
        model_types += installed_family.model_types
    model_types.sort()
    if not isinstance(model_type, str):
        if directory.is_dir():
            unsupported = _unsupported_format(directory)
            if unsupported is not None:  # The file may belong to CTranslate2, for example.
                raise unsupported
        raise VerificationError(
            f"{directory / CONFIG} has no model_type, which names the family",
            f"give it with `zoo convert --model-type T`, one of {', '.join(model_types)}",
        )
    raise UsageError(
        f"{directory / CONFIG}: no installed family has model_type {shown(model_type)}",
        _missing_family_hint(model_type, hub, model_types),
    )


def _missing_family_hint(model_type: str, hub: Mapping[str, Any], model_types: list[str]) -> str:
    """Return how to get the family of a configuration."""
    hint = disabled_hint(model_type)
    if hint:
        return hint
    plugin = plugin_of_model_type(model_type)
    if plugin:
        return f"the plugin {plugin.distribution} has it: {plugin.remedy}"
    similar = _similar_family(model_type, hub, model_types)
    return f"{similar} `zoo plugins install` adds families, `zoo plugins new` writes one"


def _similar_family(model_type: str, hub: Mapping[str, Any], model_types: list[str]) -> str:
    """Return which installed family a configuration may belong to, or which ones there are."""
    # A program wrote the file, so that another name is another architecture and seldom a typing
    # error. The class of the model tells.
    classes = hub.get("architectures")
    if not isinstance(classes, list):
        classes = []
    for name, similar_type in _types_of_classes(all_families().values()):
        if name in classes:
            return f"its class {name} is one of {similar_type}: `--model-type {similar_type}`;"
    if not classes:
        suggestion = did_you_mean(model_type, model_types)
        if suggestion:
            return suggestion
    return f"installed: {', '.join(model_types)};"


def local_files(source: "CheckpointDir") -> list[str]:
    """Return the names of all files of a directory that a conversion may read."""
    directory = source.directory
    if is_checkpoint(directory) or source.file is not None:
        return source.names()
    names = list[str]()
    for path in (*directory.glob("*"), *directory.glob("*/*")):
        if path.is_file():
            names.append(path.relative_to(directory).as_posix())
    choices = [*source.names(), *source.graphs()]
    _, weights = choose_format(choices, str(directory), allow_pickle=False)
    side_files = {*matching(names, LOCAL_SIDE_FILES), *module_files(names)}
    if source.folder:
        tokenizer_files = [f"{source.folder}/{name}" for name in TOKENIZER_FILES]
        side_files.update(matching(names, tokenizer_files))
        weights = tuple(f"{source.folder}/{name}" for name in weights)
    return sorted({*weights, *config_files(names), *side_files})
