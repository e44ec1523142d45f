r"""Training and inference on a GPU, compared with transformers and ONNX Runtime, in eight minutes.

    python -m benchmarks.cuda                # all sections, then tables
    python -m benchmarks.cuda --dry-run      # the same on a CPU, with tiny models
    python -m benchmarks.cuda --table FILE   # only the tables of a file of results

Targets: 45 % MFU for BERT-base at 512 tokens, and 2 times the tokens per second of the Trainer.

On a machine that has torch and no network, first fetch here what it lacks, 60 MB for its version of
Python:

    python -m pip download -d wheels --no-deps --only-binary :all: --python-version 3.12 \
        -c constraints.txt accelerate anyio blake3 certifi click filelock flatbuffers fsspec h11 \
        httpcore2 httpx2 huggingface_hub idna iniconfig jinja2 markdown-it-py markupsafe mdurl \
        ml_dtypes msgspec onnx onnx-ir onnxruntime onnxscript packaging pluggy protobuf psutil \
        pygments pytest pyyaml regex rich safetensors sniffio tokenizers tqdm transformers \
        truststore typing_extensions

Take the folder ``wheels`` there, and run this one command:

    python -m pip install --no-index --no-deps wheels/*.whl; \
    python -m pip install --no-index --no-deps --no-build-isolation -e . && \
    python -m benchmarks.cuda --output "$OUT/cuda.jsonl"

A package that is missing, such as torch, is named in one line. ``make cuda`` installs all of it
where there is a network.

Each section has a share of the time, and begins when the one before has ended or its share is over;
what was not measured by then has no result. A result is appended to the file of results as soon as
it is there, so that a run that is cut off loses nothing.

* *preparation*: the losses of both sides for one batch of a tiny model with the same weights are
  compared in float64, on a CPU. A workload whose losses differ is not timed.
* *kernels*: forward and backward passes of attention by each kernel of torch that runs here.
* *pretraining* of BERT-base, then of ELECTRA, T5 and GPT-2. Both sides train the same models from
  the same weights on the text of the package, in bfloat16, compiled, with fused AdamW. The Trainer
  gets blocks of concatenated documents, so that it has no padding and needs no mask, and computes
  all logits, as it always does; the zoo packs documents that do not attend to each other. T5 and
  ELECTRA have no pretraining script in transformers: its modules are trained on the zoo's spans,
  or on masks, samples and both losses of the paper. MFU counts the matrix products that the
  objective needs, for both sides. Padding does not count as tokens.
* *fine-tuning* of BERT-base on sentences, *embedding* and *generation*. ONNX Runtime computes in
  float16, and needs ``onnxruntime-gpu``. Losses and results are compared.
* *tests* marked ``cuda``, for the rest of the time.

A process measures one side of one job. Several compile and warm up together, and are then timed one
after the other.
"""

# Modules of the project are imported in functions, after a check that what they need is installed.

import argparse
import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

NEEDED = (
    "accelerate",
    "blake3",
    "click",
    "filelock",
    "huggingface_hub",
    "jinja2",
    "msgspec",
    "numpy",
    "onnx",
    "onnxruntime",
    "onnxscript",
    "pluggy",
    "rich",
    "safetensors",
    "tokenizers",
    "torch",
    "transformers",
    "yaml",
)
MINUTES = 8.0
DRY_MINUTES = 60.0
AT_ONCE = 5  # cells that compile together
SIDES = ("zoo", "transformers")
BERT = ("BERT-base, 512", "BERT-base, 128")
OTHERS = ("ELECTRA-small, 128", "T5-small, 512", "GPT-2 small, 1,024")
ONNX_SIDES = ("zoo", "transformers", "onnx")
SAME_LOSS = 1e-6  # relative difference of losses in float64
SAME_START = 1e-3  # relative difference of losses in float32, or in TF32 on CUDA
AGREE = 1e-4  # of results in float32, in a dry run
Record = dict[str, Any]


@dataclass(frozen=True)
class Section:
    """A part of the benchmark.

    Attributes:
        name: its name.
        share: its part of the time, in seconds of eight minutes.
        module: the module with the function ``measure``.
        cells: the job and the side of each cell.
    """

    name: str
    share: int
    module: str
    cells: tuple[tuple[str, str], ...]


SECTIONS = (
    Section("models", 30, "_cuda_preparation", (("models", "both"),)),
    Section("losses", 30, "_cuda_training", tuple(product((BERT[0], *OTHERS), ("losses",)))),
    Section("kernels", 25, "_cuda_kernels", tuple(product(("512", "128"), ("torch",)))),
    Section("BERT-base", 125, "_cuda_training", tuple(product(BERT, SIDES))),
    Section("pretraining", 120, "_cuda_training", tuple(product(OTHERS, SIDES))),
    Section("fine-tuning", 40, "_cuda_finetuning", tuple(product(("BERT-base",), SIDES))),
    Section("inference", 60, "_cuda_inference", tuple(product(("embed", "generate"), ONNX_SIDES))),
)
TESTS = "tests"
TESTS_SHARE = 50


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dry-run", action="store_true", help="tiny models on a CPU")
    parser.add_argument("--minutes", type=float, help=f"time for all sections; {MINUTES:g}")
    parser.add_argument("--only", nargs="+", metavar="SECTION", help="sections that run")
    parser.add_argument("--output", type=Path, help="file of results; cuda.jsonl, in $OUT if set")
    parser.add_argument("--table", type=Path, metavar="FILE", help="print a file of results")
    options = parser.parse_args()
    if options.table:
        print(tables(read_records(options.table)))
        return
    require_packages()
    if options.dry_run:
        options.device = "cpu"
    require_device(options.device)
    minutes = options.minutes or (DRY_MINUTES if options.dry_run else MINUTES)
    output = options.output or Path(os.environ.get("OUT", "."), "cuda.jsonl")
    names = [section.name for section in SECTIONS] + [TESTS]
    for name in options.only or ():
        if name not in names:
            sys.exit(f"error: no section is called {name!r}; available: {', '.join(names)}")
    with tempfile.TemporaryDirectory() as folder, output.open("w", encoding="utf-8") as file:
        os.environ["ZOO_HOME"] = str(Path(folder, "zoo-home"))
        for record in measure_all(Path(folder), options, minutes):
            file.write(json.dumps(record) + "\n")
            file.flush()
            print(json.dumps(record), file=sys.stderr, flush=True)
    print(tables(read_records(output)))


def require_packages() -> None:
    """End the process with one line if a package is missing."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        sys.exit(f"error: missing here: {', '.join(missing)}; see python -m pydoc benchmarks.cuda")
    try:
        importlib.metadata.distribution("plm-zoo")
    except importlib.metadata.PackageNotFoundError:
        sys.exit(
            "error: plm-zoo is not installed: "
            "python -m pip install --no-deps --no-build-isolation -e ."
        )


def require_device(name: str) -> None:
    """End the process with one line if the device is missing."""
    from zoo.errors import UsageError
    from zoo.nn.devices import resolve_device

    try:
        resolve_device("auto", name)
    except UsageError as error:
        sys.exit(f"error: {error}")


def measure_all(folder: Path, options: argparse.Namespace, minutes: float) -> Iterator[Record]:
    """Yield the records of a run, each as soon as it is there."""
    from benchmarks._cuda_cells import Cell, run_cells

    yield {"section": "machine", **describe(options.device)}
    start = time.monotonic()
    total = sum(section.share for section in SECTIONS) + TESTS_SHARE
    share_so_far = 0
    different: set[str] = set()
    selected = options.only or [*(section.name for section in SECTIONS), TESTS]
    for section in SECTIONS:
        share_so_far += section.share
        # Later sections need the models.
        if section.name not in (*selected, "models"):
            continue
        until = start + minutes * 60 * share_so_far / total
        cells = [
            Cell(section.name, name, side, options.device, options.dry_run, str(folder))
            for name, side in section.cells
            if name not in different
        ]
        module = f"benchmarks.{section.module}"
        for cell, result in run_cells(cells, module, until=until, at_once=at_once()):
            if section.name == "losses" and not result.get("difference", 1.0) < SAME_LOSS:
                result.setdefault("error", "the losses differ; there is nothing to time")
                different.update(names_of_model(cell.name))
            seconds = round(time.monotonic() - start, 1)
            record = {"section": section.name, "name": cell.name, "side": cell.side}
            yield {**record, **with_agreement(cell, result), "at": seconds}
    if TESTS in selected:
        yield {"section": TESTS, **run_tests(start + minutes * 60)}


def at_once() -> int:
    """Return how many cells compile together: at most one for two cores."""
    from zoo.io.cores import usable_cores

    return max(1, min(AT_ONCE, usable_cores() // 2))


def names_of_model(name: str) -> list[str]:
    """Return the workloads with the model of one of them."""
    model = name.partition(",")[0]
    return [workload for workload in (*BERT, *OTHERS) if workload.startswith(model)]


def with_agreement(cell: Any, result: Record) -> Record:
    """Add how well a result of inference agrees with that of transformers, if that was measured."""
    if cell.section != "inference" or "result" not in result:
        return result
    from benchmarks._cuda_inference import agreement

    path = result.pop("result")
    reference = Path(cell.folder, f"{cell.name}-transformers.npy")
    if reference.is_file():
        paths = {cell.side: path, "transformers": str(reference)}
        result["agreement"] = agreement(cell.name, paths)[cell.side]
        if cell.tiny and not result["agreement"] > 1 - AGREE:
            result["error"] = f"results differ: {result['agreement']:.6f}"
    return result


def run_tests(until: float) -> Record:
    """Run the tests that need a device, as long as there is time."""
    argv = [sys.executable, "-m", "pytest", "-q", "-m", "cuda", "-p", "no:cacheprovider"]
    try:
        done = subprocess.run(
            [*argv, "tests/cuda"],
            capture_output=True,
            text=True,
            check=False,
            timeout=max(1.0, until - time.monotonic()),
        )
    except subprocess.TimeoutExpired as error:
        output = error.stdout or b""
        text = output if isinstance(output, str) else output.decode(errors="replace")
        return {"error": "no time left", "output": text[-500:]}
    failures = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return {"exit_code": done.returncode, "failures": failures, "output": done.stdout[-500:]}


def describe(device: str) -> Record:
    """Return device, machine and versions."""
    from benchmarks._common import machine, versions

    packages = versions("torch", "transformers", "onnxruntime")
    line = f"{machine()}. {packages}."
    if device.startswith("cuda"):
        from zoo.nn.devices import describe_cuda

        line = f"{describe_cuda()}. {line}"
    return {"device": device, "machine": line}


def read_records(path: Path) -> list[Record]:
    """Return the records of a file; the last line of a run that was killed may be incomplete."""
    records = []
    for line in path.read_text("utf-8").splitlines():
        try:
            records.append(json.loads(line))
        except ValueError:
            break
    return records


def tables(records: Sequence[Record]) -> str:
    """Return all tables of a run as Markdown."""
    lines = [record["machine"] for record in records if record["section"] == "machine"]
    by_section: dict[str, list[Record]] = {}
    for record in records:
        by_section.setdefault(record["section"], []).append(record)
    for section, its_records in by_section.items():
        if section in ("BERT-base", "pretraining", "fine-tuning"):
            lines += ["", *training_rows(section, its_records)]
        elif section == "inference":
            lines += ["", *inference_rows(its_records)]
        elif section == "kernels":
            lines += ["", *kernel_rows(its_records)]
        elif section == "losses":
            for record in its_records:
                outcome = record.get("error") or f"{record['difference']:.1e}"
                lines.append(f"{record['name']}, tiny: losses differ by {outcome}")
        elif section == TESTS:
            for record in its_records:
                outcome = record.get("error") or f"exit code {record['exit_code']}"
                lines += ["", f"tests marked cuda: {outcome}", *record.get("failures", ())]
    return "\n".join(lines)


def table_lines(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a Markdown table; results are read where nothing else is installed."""
    rule = ["---"] * len(header)
    return [f"| {' | '.join(cells)} |" for cells in (header, rule, *rows)]


def training_rows(section: str, records: Sequence[Record]) -> list[str]:
    """Return the table of training: tokens per second, MFU and memory of both sides."""
    header = [section, "rows", "zoo tokens/s", "MFU", "GiB"]
    header += ["transformers tokens/s", "MFU", "GiB", "ratio", "losses"]
    rows = []
    for name in dict.fromkeys(record["name"] for record in records):
        sides = {record["side"]: record for record in records if record["name"] == name}
        ours = sides.get("zoo", {"error": "not measured"})
        theirs = sides.get("transformers", {"error": "not measured"})
        share = None
        if ours.get("mfu"):
            share = ours["mfu"] / ours["tokens_per_second"]
        ratio = ""
        if "error" not in ours and "error" not in theirs:
            ratio = f"{ours['tokens_per_second'] / theirs['tokens_per_second']:.2f}x"
        count = str(ours.get("rows", ""))
        row = [name, count, *figures(ours, share), *figures(theirs, share), ratio]
        rows.append([*row, same_start(ours, theirs)])
    return table_lines(header, rows)


def same_start(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """Return whether the losses before training are equal, if they were measured."""
    if "loss" not in ours or "loss" not in theirs:
        return ""
    difference = abs(ours["loss"] - theirs["loss"]) / abs(theirs["loss"])
    return "equal" if difference < SAME_START else f"differ by {difference:.1e}"


def figures(result: Mapping[str, Any], share: float | None) -> list[str]:
    """Return tokens per second, MFU and memory of a cell as text, or the error."""
    if "error" in result:
        return [str(result["error"]), "", ""]
    speed = result["tokens_per_second"]
    memory = result["memory_gib"]
    mfu = "" if share is None else f"{speed * share:.1%}"
    return [f"{speed:,.0f}", mfu, "" if memory is None else f"{memory:.1f}"]


def inference_rows(records: Sequence[Record]) -> list[str]:
    """Return the table of inference."""
    rows = []
    for record in records:
        speed = record.get("error") or f"{record['per_second']:,.1f}"
        agree = f"{record['agreement']:.4f}" if "agreement" in record else ""
        rows.append([f"{record['name']}, {record['side']}", speed, agree])
    header = ["inference", "sentences or tokens per second", "agreement with transformers"]
    return table_lines(header, rows)


def kernel_rows(records: Sequence[Record]) -> list[str]:
    """Return the table of kernels: milliseconds of both passes, by length."""
    times = {record["name"]: record.get("milliseconds", {}) for record in records}
    rows = []
    for kernel in dict.fromkeys(kernel for by_kernel in times.values() for kernel in by_kernel):
        values = [by_kernel.get(kernel, "") for by_kernel in times.values()]
        rows.append([kernel, *(v if isinstance(v, str) else f"{v:.2f}" for v in values)])
    header = ["attention, ms", *(f"rows of {name}" for name in times)]
    return table_lines(header, rows)


if __name__ == "__main__":
    main()
