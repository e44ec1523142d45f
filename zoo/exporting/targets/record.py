"""The record of an export in its manifest, as far as sessions read it."""

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint


class TargetInfo(msgspec.Struct, frozen=True):
    """Fields of the record of an export that sessions need."""

    target: str
    dtype: str
    files: list[str]
    title: str = ""
    validated: bool = False
    max_rel: float | None = None
    unverified: str | None = None


def read_target_info(checkpoint: "Checkpoint") -> TargetInfo:
    """Return the record of an export to a target other than ONNX."""
    return checkpoint.read_part("export", TargetInfo)
