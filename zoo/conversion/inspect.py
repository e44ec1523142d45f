"""Inspection of a checkpoint directory: its configuration, family and files."""

import logging
from collections.abc import Mapping
from pathlib import Path
from reprlib import repr as shown
from typing import TYPE_CHECKING, Any

from zoo.checkpoint import is_checkpoint
from zoo.errors import SourceError, UsageError, VerificationError, did_you_mean
from zoo.hub.registry import entry_config, line_of
from zoo.hub.select_files import (
    CONFIG,
    LOCAL_SIDE_FILES,
    UNREAD,
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
    if (content := source.derived.get(CONFIG)) is not None:
        hub = parse_json(content, directory / CONFIG)
        return CONFIG, _family_of(hub, directory), hub
    if not (directory / CONFIG).is_file():
        for family in iter_families():
            for pattern in family.config_files:
                for name in source.files.matching(pattern):
                    config = _with_model_type(read_hub_config(directory, name), source, name)
                    if family.matches_config(config):
                        return name, family, config
        if (named := _of_sentence_module(source)) is not None:
            return MODULES, named, {}
    hub = _with_model_type(_translated(read_hub_config(directory), directory), source, CONFIG)
    if hub.get("model_type") is None and (known := model_type_of(hub, source)):
        LOG.info("%s has no model_type: taken as %s", directory / CONFIG, known)
        hub["model_type"] = known
    return f"{source.folder}/{CONFIG}".lstrip("/"), _family_of(hub, directory), hub


def _of_sentence_module(source: "CheckpointDir") -> "Family | None":
    """Return the family of the first module of sentence-transformers, if it needs no other file."""
    from zoo.families.base import Family

    if not source.files.has(MODULES):
        return None
    first = next(iter(module_kinds(source.files)), Family.sentence_module)
    others = [f for f in iter_families() if f.sentence_module != Family.sentence_module]
    return next((family for family in others if family.sentence_module == first), None)


def _translated(hub: dict[str, Any], directory: Path) -> dict[str, Any]:
    """Return a configuration with the Hub's keys, if a family knows its class from other code."""
    names = hub.get("architectures")
    model_type = hub.get("model_type")
    family = family_of_model_type(model_type) if isinstance(model_type, str) else None
    known = family.heads().values() if family is not None else ()
    if not isinstance(names, list) or not names or any(names[0] in h.architectures for h in known):
        return hub
    for family in iter_families():
        if names[0] in family.other_classes:
            try:
                return family.translate_config(hub)
            except VerificationError as error:
                what = f"{directory / CONFIG}: {error.what}"
                raise VerificationError(what, error.hint) from error
    return hub


def class_names(hub: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the class names (``architectures``) of a configuration."""
    return tuple(hub.get("architectures") or ())


def _with_model_type(hub: dict[str, Any], source: "CheckpointDir", name: str) -> dict[str, Any]:
    """Return the configuration, with ``model_type`` set if the user specifies one."""
    names = hub.get("architectures")
    if names is not None and not (isinstance(names, list) and all(type(n) is str for n in names)):
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
    """Return the ``model_type`` of a configuration without that key."""
    # It is inferred from the class name, else from the registry entry; ``None`` if neither is known
    classes = class_names(hub)
    for family in iter_families():
        for head in family.heads().values():
            named = zip(family.model_types, head.architectures, strict=False)
            model_type = next((kind for kind, name in named if name in classes), None)
            if model_type is not None:
                return model_type
    row = source.row
    if row is None:
        return None
    family = get_family(row.family, line_of(source.reference))
    config = entry_config(source.reference, row) if row.size else None
    return family.model_types[0] if config is None else family.model_type(config)


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
    problem = f"holds no {name}" if names else "is empty"
    trained = directory / "model"  # where a run has its final model
    has_one = (trained / name).is_file()
    if not has_one and (unread := _unread(directory)):
        return unread
    if has_one:
        return SourceError(f"{directory} {problem}", f"give {trained}, the model of this run")
    from zoo.adapters.checkpoint import hint_of_subfolders

    hint = hint_of_subfolders(directory) or "give the directory of a checkpoint"
    return SourceError(f"{directory} {problem}", hint)


def _unread(directory: Path) -> SourceError | None:
    """Return the error for a directory that only holds files of another kind."""
    names = [path.name for path in directory.iterdir()]
    if any(file_format.find(names) for file_format in all_formats()):
        return None
    unread = [pattern for patterns, _, _ in UNREAD for pattern in patterns]
    return without_weights(names, str(directory)) if matching(names, unread) else None


def _family_of(hub: Mapping[str, Any], directory: Path) -> "Family":
    model_type = hub.get("model_type")
    if isinstance(model_type, str) and (family := family_of_model_type(model_type)) is not None:
        return family
    known = sorted(t for f in all_families().values() for t in f.model_types)
    if not isinstance(model_type, str):
        if directory.is_dir() and (unread := _unread(directory)):  # such as CTranslate2's own
            raise unread
        raise VerificationError(
            f"{directory / CONFIG} has no model_type, which names the family",
            f"give it with `zoo convert --model-type T`, one of {', '.join(known)}",
        )
    plugin = plugin_of_model_type(model_type)
    raise UsageError(
        f"{directory / CONFIG}: no installed family has model_type {shown(model_type)}",
        disabled_hint(model_type)
        or (plugin and f"the plugin {plugin.distribution} has it: {plugin.remedy}")
        or f"{_similar_family(model_type, hub, known)} `zoo plugins install` adds families, "
        "`zoo plugins new` writes one",
    )


def _similar_family(model_type: str, hub: Mapping[str, Any], known: list[str]) -> str:
    """Return which installed family a configuration may be of, or which ones there are."""
    # A program wrote the file, so that another name is another architecture and seldom a typing
    # error. The class of the model tells.
    classes = hub.get("architectures")
    stated = classes if isinstance(classes, list) else []
    for family in all_families().values():
        for head in family.heads().values():
            for name, known_type in zip(head.architectures, family.model_types, strict=False):
                if name in stated:
                    return f"its class {name} is one of {known_type}: `--model-type {known_type}`;"
    near = "" if stated else did_you_mean(model_type, known)
    return near or f"installed: {', '.join(known)};"


def local_files(source: "CheckpointDir") -> list[str]:
    """Return the names of all files of a directory that a conversion may read."""
    directory = source.directory
    if is_checkpoint(directory) or source.file is not None:
        return source.names()
    paths = [path for path in (*directory.glob("*"), *directory.glob("*/*")) if path.is_file()]
    names = [path.relative_to(directory).as_posix() for path in paths]
    choices = [*source.names(), *source.graphs()]
    _, weights = choose_format(choices, str(directory), allow_pickle=False)
    side = {*matching(names, LOCAL_SIDE_FILES), *module_files(names)}
    if source.folder:
        side |= {*matching(names, [f"{source.folder}/{name}" for name in TOKENIZER_FILES])}
        weights = tuple(f"{source.folder}/{name}" for name in weights)
    return sorted({*weights, *config_files(names), *side})
