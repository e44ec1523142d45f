"""The table of ``docs/export.md``: exports of small models in float32, fused, int8 and int4.

Models have the tiny size of their family and random weights, which rounding changes more than it
does those of trained models; nothing is kept in float32.

    python -m benchmarks.export_table bert/none gpt/causal-lm
"""

import argparse
import tempfile
from pathlib import Path

from benchmarks._common import table
from tests.inference.making import make_checkpoint
from zoo.checkpoint import Checkpoint
from zoo.export.export import export_onnx
from zoo.export.quantization.quantize import Quantization
from zoo.export.quantization.variants import QuantizationPlan
from zoo.export.report import QuantizedGraphs
from zoo.plugins import get_family

HEADER = ("model", "float32", "fused", "operators", "int8", "int4")


def main() -> None:
    """Print a row for each family and head."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.export_table")
    parser.add_argument("models", nargs="+", metavar="FAMILY/HEAD")
    print(table(HEADER, []))
    for name in parser.parse_args().models:
        family, head = name.split("/")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder)
            checkpoint = make_checkpoint(path / "model", head, family=get_family(family))
            print(f"| {' | '.join((name, *_row(checkpoint, path)))} |", flush=True)


def _row(checkpoint: Checkpoint, folder: Path) -> tuple[str, ...]:
    methods = [Quantization("int8")]
    if checkpoint.head.has_cache:
        methods.append(Quantization("int4"))
    plan = QuantizationPlan(methods, max_drop=1.0)
    plain = export_onnx(checkpoint, folder / "plain", quantization=plan)
    fused = export_onnx(checkpoint, folder / "fused", optimize=True)
    operators = [f"{n} {name}" for g in fused.graphs.values() for name, n in g.fused.items()]
    return (
        f"{plain.max_rel:.1e}",
        f"{fused.max_rel:.1e}",
        ", ".join(operators) or "none",
        _quantized(plain.quantized["int8"]),
        _quantized(plain.quantized["int4"]) if "int4" in plain.quantized else "",
    )


def _quantized(copies: QuantizedGraphs) -> str:
    measured = copies.agreement
    argmax = "" if measured.argmax is None else f", argmax {measured.argmax:.1%}"
    return f"cosine {measured.cosine:.4f}{argmax}, {copies.bytes / copies.bytes_before:.0%}"


if __name__ == "__main__":
    main()
