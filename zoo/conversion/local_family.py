"""The family of a model reference, as far as this machine knows it."""

from typing import TYPE_CHECKING

from zoo.checkpoint import Checkpoint, is_checkpoint, load_checkpoint
from zoo.checkpoint.records import CONFIG
from zoo.conversion.inspect import read_hub_config
from zoo.errors import ZooError
from zoo.hub.reference import Reference, resolve
from zoo.plugins import all_families, family_of_model_type, get_family

if TYPE_CHECKING:
    from zoo.families.base import Family


def converted_checkpoint(text: str) -> Checkpoint | None:
    """Return the checkpoint of a reference if it is converted; opens no connection."""
    try:
        return _converted(resolve(text))
    except ZooError:  # The command that reads the model reports it.
        return None


def local_family(text: str) -> "Family | None":
    """Return the family that a family's name or a model reference names; opens no connection."""
    families = all_families()
    if text in families:
        return families[text]
    try:
        return _family(resolve(text))
    except ZooError:  # The command that reads the model reports it.
        return None


def _converted(reference: Reference) -> Checkpoint | None:
    for path in (reference.path, reference.stored):
        if path is not None and is_checkpoint(path):
            return load_checkpoint(path)
    return None


def _family(reference: Reference) -> "Family | None":
    checkpoint = _converted(reference)
    if checkpoint is not None:
        return checkpoint.family
    if reference.row is not None:
        return get_family(reference.row.family)
    if reference.path is None or not (reference.path / CONFIG).is_file():
        return None
    model_type = read_hub_config(reference.path).get("model_type")
    return family_of_model_type(model_type) if isinstance(model_type, str) else None
