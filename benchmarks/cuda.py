"""Training and inference on a GPU, compared with transformers and ONNX Runtime.

    python -m benchmarks.cuda                       # tests marked cuda, then the table: 10 minutes
    python -m benchmarks.cuda --device cpu --smoke  # the same code on tiny models

Targets: 45 % MFU for BERT-base at 512 tokens, and 2 times the tokens per second of the Trainer.

Both sides train the same models from the same weights on the text of the package, in bfloat16,
compiled, with fused AdamW. The Trainer gets blocks of concatenated documents, so that it has no
padding and needs no mask, and computes all logits, as it always does; the zoo packs documents that
do not attend to each other. T5 and ELECTRA have no pretraining script in transformers: its modules
are trained on the zoo's spans, or on masks, samples and both losses of the paper. MFU has the same
numerator for both: the matrix products that the objective needs. Padding does not count as tokens.
First, the losses of one batch with the same weights are compared, in float64 on a CPU.

A process measures one cell. All of them run once before, some at a time, so that compiled code and
graphs are in caches when time is taken. What is left after --minutes is not measured.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks._common import machine, table, versions
from benchmarks._cuda_inference import SIDES, TASKS, agreement, make_models
from benchmarks._cuda_training import CELLS, Workload, loss_difference
from zoo.data.cache import SAMPLE
from zoo.errors import UsageError
from zoo.nn.devices import resolve_device

RTD = "replaced-token-detection"
SPANS = "span-corruption"
OWN_LOOP = "Trainer, modules of transformers"
WORKLOADS = (
    Workload("BERT-base, 128", "bert", "base", "masked-lm", 128, 256),
    Workload("BERT-base, 512", "bert", "base", "masked-lm", 512, 64),
    Workload("GPT-2 small, 1,024", "gpt", "small", "causal-lm", 1024, 32),
    Workload("ELECTRA-small, 128", "electra", "small", RTD, 128, 256, OWN_LOOP),
    Workload("T5-small, 512", "t5", "small", SPANS, 512, 64, OWN_LOOP),
)
BOOK = {"vocab_size": 400, "data": {"paths": [str(SAMPLE / "alice.txt")]}}
SMOKE = tuple(
    Workload(w.name, w.family, "tiny", w.objective, 64, 2, w.peer, BOOK)
    for w in WORKLOADS
    if w.seq_len != 512 or w.family != "bert"
)
AGREE = 1e-4  # relative difference of results in float32
SAME_LOSS = 1e-6  # relative difference of losses
# steps that are timed; cells that run at once before time is taken
STEPS = 40
AT_ONCE = 4
TIMEOUT = 300  # seconds of one cell
Cell = tuple[str, str]  # name of a workload or task, and side
Results = dict[Cell, dict[str, Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--smoke", action="store_true", help="tiny models, in this process")
    parser.add_argument("--no-tests", action="store_true", help="do not run the tests first")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--only", default="", help="cells whose names contain this text")
    parser.add_argument("--cell", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    try:
        resolve_device("auto", options.device)
    except UsageError as error:
        sys.exit(f"error: {error}")
    if options.cell:
        name, side, folder, steps = options.cell
        result = measure((name, side), Path(folder), options, int(steps))
        Path(folder, "result.json").with_stem(f"{slug((name, side))}").write_text(
            json.dumps(result), encoding="utf-8"
        )
        return
    until = time.monotonic() + 60 * options.minutes
    failed = not options.smoke and not options.no_tests and run_tests()
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["ZOO_HOME"] = str(Path(scratch, "zoo-home"))
        report(Path(scratch), options, until)
    if failed:
        sys.exit("tests marked cuda failed, see above")


def run_tests() -> bool:
    """Run the tests that need a device, and return whether one failed."""
    argv = [sys.executable, "-m", "pytest", "-m", "cuda", "-p", "no:cacheprovider", "tests/cuda"]
    return subprocess.run(argv, check=False).returncode != 0


def report(folder: Path, options: argparse.Namespace, until: float) -> None:
    """Compare losses, measure all cells, and print the tables."""
    for workload in SMOKE:
        difference = loss_difference(workload)
        print(f"{workload.name}, tiny: losses differ by {difference:.1e}", flush=True)
        if not difference < SAME_LOSS:
            sys.exit("the losses differ; there is nothing to time")
    workloads = SMOKE if options.smoke else scaled(WORKLOADS, options.device)
    workloads = [w for w in workloads if options.only in w.name]
    tasks = [task for task in TASKS if options.only in task]
    if tasks:
        make_models(folder, smoke=options.smoke)
    cells = [*product((w.name for w in workloads), CELLS), *product(tasks, SIDES)]
    if options.smoke:
        results = {}
        for cell in cells:
            results[cell] = measure(cell, folder, options, 1)
            print(f"{', '.join(cell)}: {time.process_time():.0f} s", file=sys.stderr, flush=True)
    else:
        results = run_cells(cells, folder, options, until)
    print(f"\n{describe(options.device)}\n")
    print(training_table(workloads, results, options.device), end="\n\n")
    print(inference_table(tasks, results, exact=options.smoke))


def scaled(workloads: Sequence[Workload], device: str) -> list[Workload]:
    """Return the workloads with as many rows as the memory of the device has room for."""
    import torch

    memory = torch.cuda.get_device_properties(torch.device(device)).total_memory / 2**30
    divisor = next((part for part in (1, 2, 4, 8) if memory * part >= 75), 16)
    return [
        Workload(**{**vars(w), "rows": max(1, w.rows // divisor)}) if divisor > 1 else w
        for w in workloads
    ]


def measure(cell: Cell, folder: Path, options: argparse.Namespace, steps: int) -> dict[str, Any]:
    """Measure one cell in this process."""
    import torch

    device = torch.device(options.device)
    name, side = cell
    if device.type == "cuda":
        device = torch.device("cuda", device.index or 0)
        torch.set_float32_matmul_precision("high")  # TF32, for both sides
    if name in TASKS:
        return TASKS[name](folder, side, device, smoke=options.smoke)
    workloads = SMOKE if options.smoke else scaled(WORKLOADS, options.device)
    workload = next(workload for workload in workloads if workload.name == name)
    return CELLS[side](workload, device, steps)


def slug(cell: Cell) -> str:
    return "-".join(cell).lower().replace(" ", "-").replace(",", "")


def run_cells(
    cells: Sequence[Cell], folder: Path, options: argparse.Namespace, until: float
) -> Results:
    """Measure cells one after another, after each ran once with others beside it."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda cell: run_cell(cell, folder, options, 1, until), cells))
    results = {}
    for cell in cells:
        results[cell] = run_cell(cell, folder, options, STEPS, until)
        print(f"{', '.join(cell)}: {results[cell]}", file=sys.stderr, flush=True)
    return results


def run_cell(
    cell: Cell, folder: Path, options: argparse.Namespace, steps: int, until: float
) -> dict[str, Any]:
    """Measure a cell in a process; the result has ``error`` if it failed or time is over."""
    left = min(TIMEOUT, until - time.monotonic())
    if left < 5:
        return {"error": "no time left"}
    argv = [sys.executable, "-m", "benchmarks.cuda", "--device", options.device]
    argv += ["--cell", *cell, str(folder), str(steps)]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=left, check=False)
    except subprocess.TimeoutExpired:
        return {"error": "no time left"}
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["failed"]
        print(f"{', '.join(cell)}:\n{done.stderr[-3000:]}", file=sys.stderr, flush=True)
        return {"error": lines[-1][:80]}
    result: dict[str, Any] = json.loads((folder / f"{slug(cell)}.json").read_text())
    return result


def describe(device: str) -> str:
    """Return a line with device and versions."""
    packages = versions("torch", "transformers", "onnxruntime")
    if device.startswith("cuda"):
        from zoo.nn.devices import describe_cuda

        return f"{describe_cuda()}. {machine()}. {packages}."
    return f"{machine()}. {packages}."


def training_table(workloads: Sequence[Workload], results: Results, device: str) -> str:
    """Return the table of training: tokens per second, MFU and memory of both sides."""
    import torch

    from zoo.training.logging.throughput import peak_flops

    peak = peak_flops(torch.device(device))
    header = ["training", "zoo tokens/s", "MFU", "GiB", "transformers", "tokens/s", "MFU", "GiB"]
    rows = []
    for workload in workloads:
        ours, theirs = (results[workload.name, side] for side in CELLS)
        flops = ours.get("flops_per_token")
        share = flops / peak if flops and peak else None
        ratio = None
        if "error" not in ours and "error" not in theirs:
            ratio = ours["tokens_per_second"] / theirs["tokens_per_second"]
        rows.append(
            [
                f"{workload.name}, {workload.rows} rows",
                *figures(ours, share),
                theirs.get("peer", workload.peer),
                *figures(theirs, share),
                "" if ratio is None else f"{ratio:.2f}x",
            ]
        )
    return table([*header, "ratio"], rows)


def figures(result: Mapping[str, Any], share: float | None) -> list[str]:
    """Return tokens per second, MFU and memory of a cell as text, or the error."""
    if "error" in result:
        return [str(result["error"]), "", ""]
    speed = result["tokens_per_second"]
    memory = result["memory_gib"]
    mfu = "" if share is None else f"{speed * share:.1%}"
    return [f"{speed:,.0f}", mfu, "" if memory is None else f"{memory:.1f}"]


def inference_table(tasks: Sequence[str], results: Results, *, exact: bool) -> str:
    """Return the table of inference, after a check that sides agree: exactly in float32."""
    rows = []
    for task in tasks:
        measured = {side: results[task, side] for side in SIDES}
        paths = {side: r["result"] for side, r in measured.items() if "error" not in r}
        agree = agreement(task, paths)
        if exact and not min(agree.values()) > 1 - AGREE:
            sys.exit(f"{task}: results differ: {agree}")
        for side, result in measured.items():
            speed = result.get("error") or f"{result['per_second']:,.1f}"
            rows.append([f"{task}, {side}", speed, f"{agree[side]:.4f}" if side in agree else ""])
    unit = "sentences or tokens per second"
    return table(["inference", unit, "agreement with transformers"], rows)


if __name__ == "__main__":
    main()
