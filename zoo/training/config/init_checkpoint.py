"""The checkpoint that ``init_from`` names, and how its configuration compares with others."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from zoo.errors import UsageError
from zoo.families.config import Config

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.families.base import Family


def resolve_init_checkpoint(reference: str, family: "Family", *, offline: bool) -> "Checkpoint":
    """Return the checkpoint of a reference, converted first if necessary."""
    from zoo.adapted_models.checkpoint import AdaptedCheckpoint, whole_model_hint
    from zoo.checkpoint import check_tokenizer
    from zoo.conversion.cache import resolve_checkpoint

    checkpoint = resolve_checkpoint(reference, offline=offline)
    if isinstance(checkpoint, AdaptedCheckpoint):
        raise UsageError(
            f"{reference} is an adapter, and training starts from a whole model",
            whole_model_hint(checkpoint),
        )
    check_tokenizer(checkpoint)
    if checkpoint.family.name != family.name:
        raise UsageError(
            f"{reference} is of the family {checkpoint.family.name}, not {family.name}",
            f"`zoo pretrain {checkpoint.family.name} --init-from {reference}`",
        )
    return checkpoint


def config_similarity(first: Config, second: Config) -> int:
    """Return the number of fields in which two configurations of a family are equal."""
    return sum(getattr(first, name) == getattr(second, name) for name in first.__struct_fields__)


def config_differences(expected: Config, actual: Config) -> Iterator[str]:
    """Yield a message for each integer field in which two configurations differ.

    The vocabulary size and token ids are not compared.
    """
    for name in expected.__struct_fields__:
        if name == "vocab_size" or name.endswith("_token_id"):
            continue
        expected_value = getattr(expected, name)
        actual_value = getattr(actual, name)
        if type(expected_value) is int and expected_value != actual_value:
            yield f"{name} is {actual_value}, not {expected_value}"
