"""The tables of ``docs/export-table.md``: exports of families and heads, against torch.

    python -m benchmarks.export_table [FAMILY/HEAD...] [--markdown docs/export-table.md]

Models have two layers of size 384 and random weights. Each is exported in float32, fused, in int8
and, if it generates text, in int4; no layer is kept in float32. The graphs are compared with torch
on rows of one token to the most that the model reads, padded to one batch. Then all sides are timed
in turn: on a batch of 8 rows of 48 to 64 tokens, or on greedy generation of 16 tokens after 16.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import torch

from benchmarks._common import Timing, alternate, machine, table, versions
from tests.exporting.making import export_onnx
from tests.inference.making import store
from zoo.checkpoint import Checkpoint, load_checkpoint
from zoo.exporting.quantization.plan import Quantization, QuantizationPlan
from zoo.exporting.quantization.variants import size_of
from zoo.exporting.report import OutputDifference
from zoo.exporting.validate import difference
from zoo.families.base import Family
from zoo.families.random_inputs import axis_lengths, random_inputs
from zoo.inference import Session, load_session
from zoo.inference.bench import random_batch
from zoo.inference.exported import read_export_info
from zoo.inference.generation.config import GenerationConfig
from zoo.inference.generation.generate import generate
from zoo.plugins import all_families, get_family

HIDDEN = 384
SHAPE = {
    "vocab_size": 4000,
    "max_positions": 128,
    "hidden_size": HIDDEN,
    "intermediate_size": 4 * HIDDEN,
    "num_layers": 2,
    "num_heads": 6,
    "head_size": 64,
    "embedding_size": 128,
    "position_buckets": 32,
    "initializer_range": HIDDEN**-0.5,  # matrices that preserve the scale of their input
    "lstm_size": 512,
    "projection_size": 128,
}
# LONGEST: tokens of a row
COMPARED_BATCHES = 4
ROWS = 8
LONGEST = 128
TIMED_TOKENS = 64
PROMPT = 16
NEW_TOKENS = 16
Cells = tuple[str, ...]
TORCH = "torch"
FUSED = "fused"
HEADER = {
    "float32": ("model", "MB", "difference", "agreement", "speed"),
    FUSED: ("operators", "difference", "agreement", "speed"),
    "int8": ("model", "int8: size", "difference", "agreement", "speed"),
    "int4": ("int4: size", "difference", "agreement", "speed"),
}
PAGE = """# Exports by family and head

`python -m benchmarks.export_table --markdown docs/export-table.md` writes this page, after each
model anew; so far {count} of {total} families and heads. {machine}; {versions}.

Models have two layers of size 384 (ELMo: two LSTMs of size 512), 4,000 words, and the random
weights that training starts from. How far quantized graphs agree depends on the weights:
[Export to ONNX](export.md) has figures of trained models. No layer is kept in float32.

* Difference: the largest one from torch, divided by the largest magnitude of the output, over 32
  rows of 1 to 128 tokens in batches of 8.
* Agreement: the share of tokens or texts with the argmax of torch; of heads without logits, the
  cosine of the outputs.
* Speed: torch in float32 is 1. Heads that generate text (those with int4) write 16 tokens
  after a prompt of 16, all others read 8 rows of 48 to 64 tokens. CPU seconds on one thread, which
  other programs hardly change; medians of {rounds} rounds, in which all sides run in turn.

## In float32, plain and fused

{float32}

## Quantized

{quantized}
"""


@dataclass(frozen=True)
class Measured:
    """A graph against torch.

    Attributes:
        differences: of each output and batch.
        bytes: size of the files.
        speed: its speed, that of torch being 1.
    """

    differences: Sequence[OutputDifference]
    bytes: int
    speed: float

    def cells(self) -> tuple[str, str, str]:
        """Return the largest difference, the mean agreement and the speed."""
        largest = max(output.max_rel for output in self.differences)
        shares = [output.argmax for output in self.differences if output.argmax is not None]
        cosine = np.mean([output.cosine for output in self.differences])
        agreement = f"{np.mean(shares):.1%}" if shares else f"{cosine:.4f}"
        return f"{largest:.1e}", agreement, f"{self.speed:.2f}"


def main() -> None:
    """Measure each family and head, and print or write the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.export_table")
    parser.add_argument("models", nargs="*", metavar="FAMILY/HEAD", help="by default all")
    parser.add_argument("--rounds", type=int, default=5, help="number of timed rounds")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="page to write")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: dict[str, tuple[Cells, Cells]] = {}
    for name in options.models or _all_models():
        family, head = name.split("/")
        with tempfile.TemporaryDirectory() as folder:
            rows[name] = _rows(get_family(family), head, Path(folder), options.rounds)
        print(name, *rows[name], sep="\n  ", file=sys.stderr, flush=True)
        if options.markdown:  # after each model, so that a run can be stopped
            options.markdown.write_text(_page(rows, options.rounds), "utf-8")
    if not options.markdown:
        print(_page(rows, options.rounds))


def _all_models() -> list[str]:
    """Return the first head of all families, then the second of all, and so on."""
    families = [(name, list(family.heads())) for name, family in all_families().items()]
    most = max(len(heads) for _, heads in families)
    return [f"{name}/{heads[n]}" for n in range(most) for name, heads in families if n < len(heads)]


def _page(rows: Mapping[str, tuple[Cells, Cells]], rounds: int) -> str:
    float32 = [(name, *rows[name][0]) for name in sorted(rows)]
    quantized = [(name, *rows[name][1]) for name in sorted(rows)]
    return PAGE.format(
        count=len(rows),
        total=len(_all_models()),
        machine=machine(1),
        versions=versions("torch", "onnx", "onnxscript", "onnxruntime"),
        rounds=rounds,
        float32=table(HEADER["float32"] + HEADER[FUSED], float32),
        quantized=table(HEADER["int8"] + HEADER["int4"], quantized),
    )


def _rows(family: Family, head: str, folder: Path, rounds: int) -> tuple[Cells, Cells]:
    """Return the cells of a model in both tables."""
    tiny = family.sizes()["tiny"]
    shape = {name: size for name, size in SHAPE.items() if name in tiny.__struct_fields__}
    config = msgspec.structs.replace(tiny, **shape)
    torch.manual_seed(0)
    checkpoint = store(folder / "model", family.model(config, head), family, config, head)
    methods = [Quantization("int8")]
    if checkpoint.head.has_cache:
        methods.append(Quantization("int4"))
    plan = QuantizationPlan(methods, max_drop=1.0)
    export_onnx(checkpoint, folder / "plain", quantization=plan)
    report = export_onnx(checkpoint, folder / "fused", optimize=True)
    graphs = _measure(checkpoint, folder, rounds)
    plain = graphs["float32"]
    fused = graphs[FUSED]
    size = graphs["float32"].bytes
    counts = sum((Counter(graph.fused) for graph in report.graphs.values()), Counter[str]())
    operators = ", ".join(f"{count} {name}" for name, count in counts.items()) or "none"
    quantized = [
        cell
        for dtype in ("int8", "int4")
        for cell in (
            (f"{graphs[dtype].bytes / size:.0%}", *graphs[dtype].cells())
            if dtype in graphs
            else ("",) * len(HEADER["int4"])
        )
    ]
    return (f"{size / 1e6:.1f}", *plain.cells(), operators, *fused.cells()), tuple(quantized)


def _measure(checkpoint: Checkpoint, folder: Path, rounds: int) -> Mapping[str, Measured]:
    """Return the results of all graphs by name."""
    plain = load_checkpoint(folder / "plain")
    fused = load_checkpoint(folder / "fused")
    files = {
        dtype: [plain.path / file for file in names]
        for dtype, names in read_export_info(plain).dtypes.items()
    }
    files[FUSED] = [fused.path / file for file in read_export_info(fused).graphs]
    sessions = {TORCH: load_session(checkpoint, "cpu", threads=1)}
    for name in files:
        export, dtype = (fused, None) if name == FUSED else (plain, name)
        sessions[name] = load_session(export, "onnx", dtype=dtype, threads=1)
    differences = _differences(checkpoint, sessions)
    timings = _times(checkpoint, sessions, rounds)
    return {
        name: Measured(
            differences[name],
            sum(map(size_of, paths)),
            timings[TORCH].median / timings[name].median,
        )
        for name, paths in files.items()
    }


def _differences(
    checkpoint: Checkpoint, sessions: Mapping[str, Session]
) -> Mapping[str, list[OutputDifference]]:
    """Return the differences of each session from torch, on rows of very different lengths."""
    spec = checkpoint.family.onnx(checkpoint.config, checkpoint.head_name)
    longest = min([LONGEST, *spec.limits.values()])
    lengths = np.linspace(longest, 1, ROWS).astype(int).tolist()
    results: dict[str, list[OutputDifference]] = {name: [] for name in sessions}
    for seed in range(COMPARED_BATCHES):
        drawn = random_inputs(spec, checkpoint.config, lengths, seed=seed)
        inputs = {name: tensor.numpy() for name, tensor in drawn.items()}
        expected = sessions[TORCH].run(inputs)
        along = axis_lengths(spec, lengths)
        for side, session in sessions.items():
            outputs = session.run(inputs)
            for name, axes in spec.outputs.items():
                results[side].append(difference(name, expected[name], outputs[name], along, axes))
    return results


def _times(
    checkpoint: Checkpoint, sessions: Mapping[str, Session], rounds: int
) -> Mapping[str, Timing]:
    work: dict[str, Callable[[], object]] = {}
    for name, session in sessions.items():
        if checkpoint.head.has_cache:
            prompt = {"input_ids": torch.arange(2, 2 + PROMPT)[None]}
            settings = GenerationConfig(max_new_tokens=NEW_TOKENS)
            work[name] = partial(generate, session.decoder(), prompt, settings)
        else:
            work[name] = partial(session.run, random_batch(checkpoint, ROWS, TIMED_TOKENS))
    return alternate(work, rounds=rounds, clock=time.process_time)


if __name__ == "__main__":
    main()
