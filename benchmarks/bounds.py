"""What bounds the speed on a CPU: the share of matrix products, and of everything else.

    python -m benchmarks.bounds MODEL --texts FILE [--train TRAIN.tsv] [--threads 1]

MODEL is an encoder in the Hub's layout. The profilers of torch and of ONNX Runtime sum the time of
each operator, for 96 texts in batches of 16 of similar length, in float32 and int8; with --train
also for steps of fine-tuning with the defaults of ``zoo finetune``. Without faster products, the
inverse of their share is the most that can be gained.
"""

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks._common import machine, table, versions, zoo

TEXTS = 96
BATCH = 16
STEPS = 6
# kind -> parts of the names of its operators; the first kind that matches counts. Kernels for
# attention compute products and softmax, ``DynamicQuantizeMatMul`` scales its inputs as well
KINDS = {
    "products": ("mm", "linear_pointwise", "gemm", "matmul", "attention"),
    "scales and casts": ("quantize", "amax", "amin", "reducem", "mul_", "sub", "copy_", "cast"),
    "norms, activations, sums": ("norm", "gelu", "tanh", "softmax", "add", "erf", "div", "sum"),
    "optimizer": ("adam", "foreach", "zero_"),
}
OTHER = "everything else"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--texts", type=Path, required=True, help="a text on each line")
    parser.add_argument("--train", type=Path, help="texts and labels, in columns 1 and 2")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = list(measured(options))
    print(f"{machine(options.threads)}; {versions('torch', 'onnxruntime')}\n")
    print(table(("", *KINDS, OTHER, "at most faster by"), rows))


def measured(options: argparse.Namespace) -> Iterator[list[str]]:
    """Yield the row of each kind of run."""
    from zoo.conversion.cache import resolve_checkpoint
    from zoo.exporting.session import open_session

    checkpoint = resolve_checkpoint(options.model)
    batches = list(encoded(checkpoint, options.texts))
    for dtype in ("float32", "int8"):
        session = open_session(checkpoint, "cpu", dtype=dtype, threads=options.threads)
        run = partial(run_all, session, batches)
        yield row(f"torch, {dtype}", in_torch(run))
    with tempfile.TemporaryDirectory() as scratch:
        for dtype in ("float32", "int8"):
            times = in_onnx_runtime(checkpoint, Path(scratch), dtype, batches, options.threads)
            yield row(f"ONNX Runtime, {dtype}", times)
        if options.train is not None:
            step = training_step(options, Path(scratch))
            yield row("fine-tuning, float32", in_torch(step))


def run_all(session: Any, batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the outputs of each batch."""
    return [session.run(batch) for batch in batches]


def encoding_parser(doc: str | None) -> argparse.ArgumentParser:
    """Return the options of scripts that time the encoding of texts in torch."""
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--texts", type=Path, required=True, help="a text on each line")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    return parser


def encoded(checkpoint: Any, file: Path) -> Iterator[dict[str, Any]]:
    """Yield batches of texts of similar length."""
    from zoo.checkpoint import load_text_tokenizer

    lines = [line.strip() for line in file.read_text("utf-8").splitlines()]
    texts = [line for line in lines if 60 < len(line) < 200][:TEXTS]
    found = load_text_tokenizer(checkpoint).encode(texts, max_tokens=128, offsets=False)
    ids = sorted((list(text.ids) for text in found), key=len)
    for start in range(0, len(ids), BATCH):
        part = ids[start : start + BATCH]
        rows = np.zeros((len(part), max(map(len, part))), np.int64)
        for number, tokens in enumerate(part):
            rows[number, : len(tokens)] = tokens
        yield {"input_ids": rows, "attention_mask": (rows != 0).astype(np.int64)}


def in_torch(run: Callable[[], object]) -> Counter[str]:
    """Return the time of each operator of torch."""
    run()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(STEPS):
            run()
    return Counter({e.key: e.self_cpu_time_total for e in profiler.key_averages()})


def in_onnx_runtime(
    checkpoint: Any, folder: Path, dtype: str, batches: list[Any], threads: int
) -> Counter[str]:
    """Return the time of each operator of ONNX Runtime."""
    import onnxruntime as ort

    from zoo.inference.ort.runtime import SLOW_ON_CPU

    directory = folder / "onnx"
    if not directory.exists():
        quantized = ["--int8", "--max-drop", "0.05"]
        zoo("export", str(checkpoint.path), "--onnx", *quantized, "-o", str(directory))
    name = {"float32": "model.onnx", "int8": "model_quantized.onnx"}[dtype]
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.enable_profiling = True
    settings.profile_file_prefix = str(folder / dtype)
    (path,) = directory.rglob(name)
    session = ort.InferenceSession(
        path, settings, providers=["CPUExecutionProvider"], disabled_optimizers=SLOW_ON_CPU
    )
    wanted = {value.name for value in session.get_inputs()}
    for batch in batches * STEPS:
        given = {"token_type_ids": np.zeros_like(batch["input_ids"]), **batch}
        session.run(None, {name: given[name] for name in wanted})
    events = json.loads(Path(session.end_profiling()).read_text("utf-8"))
    times: Counter[str] = Counter()
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            times[event["args"]["op_name"]] += event["dur"]
    return times


def training_step(options: argparse.Namespace, scratch: Path) -> Callable[[], object]:
    """Return a function that does one step of fine-tuning."""
    from zoo.finetuning.runs import FineTuneRun
    from zoo.training.build import prepare_run
    from zoo.training.distributed.context import DistContext
    from zoo.training.trainer import Trainer

    config = {
        "task": "text-classification",
        "init_from": {"model": options.model},
        "data": {"train": [str(options.train)], "text": "1", "label": "2"},
        "preset": "default",
        "batch_size": 32,
        "max_steps": 4 * STEPS,
        "report_to": [],
    }
    dist = DistContext.initialize("cpu")
    setup: Any = FineTuneRun.build_setup(FineTuneRun.build_config(config, {}))
    prepared = prepare_run(setup, scratch / "none", dist)
    loader = prepared.train_dataloader
    trainer = Trainer(prepared.loss_module, setup.config, dist, loader)
    numbers = iter(range(4 * STEPS))
    return lambda: trainer.train_step(loader.batches(next(numbers)))


def row(name: str, times: Counter[str]) -> list[str]:
    """Return a row of the table: the share of each kind of operator."""
    shares: Counter[str] = Counter()
    for operator, time in times.items():
        lower = operator.lower()
        kinds = (kind for kind, parts in KINDS.items() if any(part in lower for part in parts))
        kind = next(kinds, OTHER)
        shares[kind] += time
    total = sum(shares.values())
    products = shares["products"] / total
    cells = [f"{shares[kind] / total:.0%}" for kind in (*KINDS, OTHER)]
    return [name, *cells, f"{1 / products:.2f}"]


if __name__ == "__main__":
    main()
