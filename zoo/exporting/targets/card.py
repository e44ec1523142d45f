"""Model card of an export to a runtime other than ONNX Runtime."""

from typing import TYPE_CHECKING

from zoo.conversion.model_card import table_lines
from zoo.exporting.card import card_head, source_link, zoo_usage
from zoo.io.numbers import format_bytes
from zoo.version import __version__

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.exporting.targets.base import ExportTarget
    from zoo.exporting.targets.report import TargetReport


def target_card(target: "ExportTarget", checkpoint: "Checkpoint", report: "TargetReport") -> bytes:
    """Return the ``README.md`` of an export."""
    quantized = target.precisions[report.dtype].tolerance is None
    head = card_head(checkpoint, target.library, target.title, quantized=quantized)
    rows = [("files", ", ".join(report.files)), ("size", format_bytes(report.bytes))]
    rows.append(("precision", report.dtype))
    if report.unverified is not None:
        rows.append(("compared", f"no: {report.unverified}"))
    if report.max_rel is not None:
        rows.append(
            (
                "compared",
                f"differs from PyTorch by at most {report.max_rel:.1e} of the largest magnitude",
            )
        )
    if report.reason and not report.checks and report.agreement is not None:
        rows.append(("kind", report.reason))
    if report.agreement is not None:
        rows.append(("on text", report.agreement.line()))
    if report.generation is not None:
        rows.append(("generation", report.generation.line()))
    if report.tokenizer is not None:
        rows.append(("tokenizer", report.tokenizer.line()))
    compared = (
        "and compared its outputs with PyTorch before it wrote it"
        if report.validated
        else "and did not compare its outputs with PyTorch"
    )
    lines = [
        *head,
        f"{target.title}{source_link(checkpoint)}: family {checkpoint.family.name}, head "
        f"{checkpoint.head_name}. plm-zoo {__version__} exported it, {compared}.",
        *table_lines("## Model", rows),
        *zoo_usage(checkpoint),
        *target.usage(checkpoint),
    ]
    return ("\n".join(lines) + "\n").encode()
