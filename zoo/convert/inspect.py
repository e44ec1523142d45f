"""Finding what to read in a published checkpoint: its configuration, and its weights by name."""

import logging
from collections.abc import Mapping
from pathlib import Path
from reprlib import repr as shown
from typing import TYPE_CHECKING, Any

from zoo.checkpoint import is_checkpoint
from zoo.errors import SourceError, UsageError, VerificationError, did_you_mean
from zoo.hub.registry import entry_config, line_of
from zoo.hub.select_files import CONFIG, LOCAL_SIDE_FILES, choose_format, config_files, matching
from zoo.io.json import read_json_object
from zoo.plugins import all_families, all_formats, family_of_model_type, get_family

if TYPE_CHECKING:
    from zoo.families.base import Family
    from zoo.hub.source import CheckpointDir

LOG = logging.getLogger("zoo")


def find_config(source: "CheckpointDir") -> "tuple[str, Family, dict[str, Any]]":
    """Find the configuration of a published checkpoint.

    Returns:
        the file's name, the family that answers for it, and what it holds.

    Raises:
        SourceError: there is none.
        VerificationError: it is not a JSON object, or does not name a family.
        UsageError: no installed family answers for it.
    """
    directory = source.directory
    if not (directory / CONFIG).is_file():
        for family in all_families().values():
            for pattern in family.config_files:
                for name in source.files.matching(pattern):
                    found = _as_said(read_hub_config(directory, name), source, name)
                    if family.matches_config(found):
                        return name, family, found
    hub = _as_said(read_hub_config(directory), source, CONFIG)
    if hub.get("model_type") is None and (known := model_type_of(hub, source)):
        LOG.info("%s has no model_type: taken as %s", directory / CONFIG, known)
        hub["model_type"] = known
    return CONFIG, _family_of(hub, directory), hub


def class_names(hub: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of classes that a configuration gives: ``BertForMaskedLM``."""
    return tuple(hub.get("architectures") or ())


def _as_said(hub: dict[str, Any], source: "CheckpointDir", name: str) -> dict[str, Any]:
    """Return a configuration with the ``model_type`` that the user says.

    Raises:
        UsageError: it says another.
        VerificationError: what it gives as names of classes are none.
    """
    names = hub.get("architectures")
    if names is not None and not (isinstance(names, list) and all(type(n) is str for n in names)):
        raise VerificationError(
            f"{source.directory / name}: architectures = {shown(names)} is not a list of names"
        )
    said = hub.get("model_type")
    if source.model_type is None or said == source.model_type:
        return hub
    if said is not None:
        raise UsageError(
            f"{source.directory / name} says model_type {shown(said)}, and not "
            f"{source.model_type!r}",
            "leave out --model-type",
        )
    return hub | {"model_type": source.model_type}


def model_type_of(hub: Mapping[str, Any], source: "CheckpointDir") -> str | None:
    """Return the ``model_type`` of a configuration that is too old to say it.

    The class that it names tells it, else the registry's row.
    """
    classes = class_names(hub)
    for family in all_families().values():
        for head in family.heads().values():
            named = zip(family.model_types, head.architectures, strict=False)
            if found := next((kind for kind, name in named if name in classes), None):
                return found
    row = source.row
    if row is None:
        return None
    family = get_family(row.family, line_of(source.reference))
    config = entry_config(source.reference, row) if row.size else None
    return family.model_types[0] if config is None else family.model_type(config)


def read_hub_config(directory: Path, name: str = CONFIG) -> dict[str, Any]:
    """Read the configuration of a published checkpoint.

    Raises:
        SourceError: there is none.
        VerificationError: it is not a JSON object.
    """
    path = directory / name
    try:
        return read_json_object(path)
    except SourceError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise _without(directory, name) from error
        raise


def _without(directory: Path, name: str) -> SourceError:
    """Return the error of a directory that lacks its configuration."""
    names = [path.name for path in directory.iterdir()]
    if any(each.find(names) for each in all_formats()):
        return SourceError(
            f"{directory} holds no {name}, and its weights alone do not say of which family and "
            "shape they are",
            f"put the {name} that this model has on the Hub beside them",
        )
    what = f"holds no {name}" if names else "is empty"
    return SourceError(f"{directory} {what}", "give the directory of a checkpoint")


def _family_of(hub: Mapping[str, Any], directory: Path) -> "Family":
    model_type = hub.get("model_type")
    if isinstance(model_type, str) and (family := family_of_model_type(model_type)) is not None:
        return family
    known = sorted(t for f in all_families().values() for t in f.model_types)
    if not isinstance(model_type, str):
        raise VerificationError(
            f"{directory / CONFIG} has no model_type, which says of which family the weights are",
            f"say it with `zoo convert --model-type T`, one of {', '.join(known)}",
        )
    raise UsageError(
        f"{directory / CONFIG}: no installed family answers for model_type {shown(model_type)}",
        did_you_mean(model_type, known) or f"installed: {', '.join(known)}",
    )


def local_files(source: "CheckpointDir") -> list[str]:
    """Name every file of a directory that a conversion may read.

    Raises:
        SourceError, UsageError: see ``choose_format``.
    """
    directory = source.directory
    if is_checkpoint(directory):
        return source.names()
    paths = [path for path in (*directory.glob("*"), *directory.glob("*/*.json")) if path.is_file()]
    names = [path.relative_to(directory).as_posix() for path in paths]
    _, weights = choose_format(source.names(), str(directory), allow_pickle=False)
    return sorted({*weights, *config_files(names), *matching(names, LOCAL_SIDE_FILES)})
