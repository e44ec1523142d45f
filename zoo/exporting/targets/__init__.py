"""Export targets: one folder a runtime. What they write passes the gate before it is published."""

# A built-in target is a folder here and a line in ``BUILT_IN``. A plugin's is an entry point of
# ``zoo.api1.targets`` that names a subclass of ``zoo.exporting.targets.base.ExportTarget``.

from typing import TYPE_CHECKING

from zoo.plugins.catalog import Catalog

if TYPE_CHECKING:
    from zoo.exporting.targets.base import ExportTarget, TargetOptions

ONNX = "onnx"
# name -> class, in the order of help texts; the first is the default
BUILT_IN = {
    ONNX: "zoo.exporting.targets.onnx:Onnx",
    "openvino": "zoo.exporting.targets.openvino:OpenVino",
    "ctranslate2": "zoo.exporting.targets.ctranslate2:CTranslate2",
    "gguf": "zoo.exporting.targets.gguf:GgufTarget",
    "static": "zoo.exporting.targets.static:Static",
}
TARGETS: "Catalog[ExportTarget]" = Catalog(
    "targets", "zoo.exporting.targets.base:ExportTarget", BUILT_IN
)


def target_names() -> list[str]:
    """Return the names of all targets, including plugins'; imports none."""
    return list(TARGETS.names())


def target_class(name: str) -> "type[ExportTarget]":
    """Return the class of a target; an unknown one is a ``UsageError`` with the nearest names."""
    target = TARGETS.find(name)
    if TARGETS.from_plugin(name):
        _check_options(name, target)
    return target


def _check_options(name: str, target: "type[ExportTarget]") -> None:
    """Check that a plugin's target can be made without options, as a backend is."""
    from msgspec.structs import fields

    from zoo.exporting.targets.base import TargetOptions
    from zoo.plugins.entry_point_objects import broken_object, find_object

    if not issubclass(target.options_type, TargetOptions):
        reason = "its options_type is not a subclass of TargetOptions"
        raise broken_object(find_object("targets", name, BUILT_IN), reason)
    for field in fields(target.options_type):
        if field.required:
            reason = f"its option {field.name} has no default"
            raise broken_object(find_object("targets", name, BUILT_IN), reason)


def find_target(name: str, options: "TargetOptions | None" = None) -> "ExportTarget":
    """Return a target with its options, by default those of ``zoo export`` without any."""
    return target_class(name)(options)


def state_of_target(name: str) -> str:
    """Return a text that changes with a plugin's target; empty for those that zoo brings."""
    from zoo.plugins.discovery import record_digest
    from zoo.plugins.entry_point_objects import find_object

    if name in BUILT_IN:
        return ""
    named = find_object("targets", name, BUILT_IN)
    return f"{named.origin} {record_digest(named.plugin)}"
