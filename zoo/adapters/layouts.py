"""Adapters in the layouts of other libraries: which one a directory has, and its base."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.adapted_models.checkpoint import (
    AdaptedCheckpoint,
    adapter_method_of,
    load_adapter,
)
from zoo.adapters.peft.layout import PEFT_CONFIG
from zoo.checkpoint import is_checkpoint
from zoo.conversion.cache import resolve_adapted, resolve_base, resolve_checkpoint
from zoo.errors import UsageError
from zoo.io.json import read_json

if TYPE_CHECKING:
    from zoo.adapters.source_adapter import AdapterReport


def is_foreign_adapter(path: Path) -> bool:
    """Return whether a directory holds an adapter of another library."""
    return (path / PEFT_CONFIG).is_file() and not is_checkpoint(path)


def read_adapter_of(
    source: Path,
    base: str | None,
    path: Path,
    *,
    head: str | None,
    labels: Sequence[str] | None,
    force: bool,
    offline: bool,
    allow_pickle: bool = False,
) -> "AdapterReport":
    """Convert an adapter of another library."""
    if is_checkpoint(source):
        hint = "`zoo run` and `zoo export` apply it with --adapter"
        if adapter_method_of(load_adapter(source)).can_merge:
            hint = (
                f"`zoo adapter merge {source} -o DIR` makes a whole model, "
                "and --to hub writes it for peft"
            )
        raise UsageError(f"{source} is an adapter of zoo already", hint)
    from zoo.adapters.adapterhub import is_adapterhub, read_adapterhub
    from zoo.adapters.peft.config import read_peft_config
    from zoo.adapters.peft.read import read_peft
    from zoo.adapters.source_adapter import write_source_adapter  # imports torch

    config = read_json(source / PEFT_CONFIG)
    is_of_adapterhub = is_adapterhub(config)
    base_name = None
    if not is_of_adapterhub:
        base_name = read_peft_config(source).get("base_model_name_or_path")
    elif isinstance(config, dict):
        base_name = config.get("model_name")
    reference = base or base_name
    if not isinstance(reference, str) or not reference:
        raise UsageError(
            f"{source} is an adapter that does not name its base", "give it as --base REF"
        )
    if base is None:
        hint = "give the model that it was trained from as --base REF"
        model = resolve_base(source, reference, hint, offline=offline)
    else:
        model = resolve_checkpoint(base, offline=offline)
    if model.is_export:
        raise UsageError(
            f"{reference} is an export, whose weights an adapter cannot change",
            "give --base the model that it was made from",
        )
    if is_of_adapterhub:
        adapter = read_adapterhub(
            source, model, head=head, labels=labels, allow_pickle=allow_pickle
        )
    else:
        adapter = read_peft(source, model, head=head, labels=labels)
    return write_source_adapter(adapter, model, reference, path, force=force)


def write_adapter_for(
    source: Path, base: str | None, path: Path, *, force: bool, offline: bool
) -> "AdapterReport":
    """Write an adapter in the layout of peft."""
    if not is_checkpoint(source):
        raise UsageError(f"{source} is in the layout of peft already", "leave --to out")
    checkpoint = resolve_adapted(base, [source], offline=offline)
    assert isinstance(checkpoint, AdaptedCheckpoint), "there is an adapter"
    from zoo.adapters.peft.write import write_peft  # imports torch

    return write_peft(checkpoint, path, force=force)
