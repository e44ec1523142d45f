"""ModernBERT at several lengths, packed and padded, compared with transformers (SDPA).

    python -m benchmarks.modernbert [--size ettin-17m] [--tokens 512 2048 8192] [--threads 2]
    python -m benchmarks.modernbert --device cuda --size base --minutes 6
    python -m benchmarks.modernbert --tokens 8192 --layouts packed --passes training

Each cell is a length, a layout and a pass: the forward pass without gradients, or a step of masked
language modelling with 30 % of the tokens predicted: forward, backward and an update by fused
AdamW. Both sides have the same weights and the same texts, and score only the predicted tokens,
transformers by its ``sparse_prediction``.

* Padded: texts of half to all of the length, padded on the right. In training on a CPU, the zoo
  packs them, as in ``zoo finetune``.
* Packed: documents of a half, a quarter and two eighths of the length in each row. transformers has
  no packed rows for SDPA; it gets positions and masks of both kinds of attention, made beforehand.

First, outputs or losses must agree. On CUDA, they are compared in float32, and time and memory are
then taken in bfloat16: of weights in the forward pass, by autocast in training. Memory is what a
pass takes in addition to what is there before it.
"""

import argparse
import gc
import sys
import time
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks._common import Timing, alternate, machine, table, versions
from zoo.conformance.hf_reference import reference_model
from zoo.errors import UsageError
from zoo.families.random_inputs import randomize_weights
from zoo.nn.devices import describe_cuda, resolve_device
from zoo.plugins import get_family

LAYOUTS = ("padded", "packed")
PASSES = ("forward", "training")
FRACTIONS = (2, 4, 8, 8)  # of a row: documents of packed rows
BATCH_TOKENS = {"cuda": 32768, "cpu": 8192}
AGREE = {"forward": 1e-4, "training": 1e-4}  # of the largest magnitude, in float32
MASKED = 0.3
Batch = dict[str, Tensor]
Run = Callable[[], Tensor]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--size", default="base")
    parser.add_argument("--tokens", nargs="+", type=int, default=(512, 2048, 8192))
    parser.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=LAYOUTS)
    parser.add_argument("--passes", nargs="+", choices=PASSES, default=PASSES)
    parser.add_argument("--batch-tokens", type=int, help="at least two rows, whatever their length")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=60.0, help="leave out what is left then")
    parser.add_argument("--smoke", action="store_true", help="a tiny model and few tokens")
    options = parser.parse_args()
    try:
        device = torch.device(resolve_device("auto", options.device))
    except UsageError as error:
        sys.exit(f"error: {error}")
    torch.set_num_threads(options.threads)
    if options.smoke:
        options.size = "tiny"
        options.tokens = (96, 160)
        options.rounds = 1
    until = time.monotonic() + 60 * options.minutes
    rows = []
    cells = product(sorted(options.tokens), options.passes, options.layouts)
    for tokens, what, layout in cells:
        cell = f"{tokens:,} tokens, {layout}, {what}"
        if time.monotonic() > until:
            print(f"{cell}: no time left", file=sys.stderr)
            continue
        rows.append([cell, *measure(tokens, layout, what, device, options)])
        print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    header = ("", "zoo ms", "transformers ms", "zoo is faster by", "zoo MB", "transformers MB")
    place = describe_cuda() if device.type == "cuda" else machine(options.threads)
    print(f"ModernBERT {options.size}. {place}. {versions('torch', 'transformers')}.\n")
    print(table((*header, "difference"), rows))


def measure(
    tokens: int, layout: str, what: str, device: torch.device, options: argparse.Namespace
) -> list[str]:
    """Return the columns of a cell."""
    size = max(options.batch_tokens or BATCH_TOKENS[device.type], 2 * tokens)
    ours, theirs = models(options.size, device, trained=what == "training")
    batch = {
        name: tensor.to(device)
        for name, tensor in make_batch(tokens, size // tokens, layout, ours.vocab_size).items()
    }
    passes = training if what == "training" else forward
    worst = difference(*passes(ours, theirs, batch, half=False))
    if not worst <= AGREE[what]:
        raise SystemExit(f"{tokens}, {layout}, {what}: results differ by {worst:.1e}")
    half = device.type == "cuda"
    if half and what == "forward":
        ours = ours.bfloat16()
        theirs = theirs.bfloat16()
    runs = dict(zip(("zoo", "transformers"), passes(ours, theirs, batch, half=half), strict=True))
    peaks = {name: peak_mb(run, device) for name, run in runs.items()}
    timed = {name: synchronized(run, device) for name, run in runs.items()}
    timings = alternate(timed, rounds=options.rounds, warm_up=1)
    del ours, theirs, runs, timed
    gc.collect()
    return columns(timings, peaks, worst)


def columns(timings: dict[str, Timing], peaks: dict[str, float], worst: float) -> list[str]:
    zoo = timings["zoo"].median
    peer = timings["transformers"].median
    times = (f"{zoo * 1e3:,.1f}", f"{peer * 1e3:,.1f}", f"{peer / zoo:.2f}x")
    return [*times, f"{peaks['zoo']:,.0f}", f"{peaks['transformers']:,.0f}", f"{worst:.0e}"]


def models(size: str, device: torch.device, *, trained: bool) -> tuple[Any, Any]:
    """Return the zoo's model and transformers' model, with the same random weights."""
    family: Any = get_family("modernbert")
    config = family.sizes()[size]
    ours = family.model(config, "masked-lm")
    randomize_weights(ours)
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.mul_(0.5)  # without scaled scores, attention would saturate
    theirs: Any = reference_model(family, config, "masked-lm", ours.state_dict())
    theirs.set_attn_implementation("sdpa")
    theirs.sparse_prediction = True
    ours.packs_rows = trained and device.type == "cpu"
    for model in (ours, theirs):
        model.to(device).train(trained).requires_grad_(trained)
    return ours, theirs


def make_batch(tokens: int, rows: int, layout: str, vocabulary: int) -> Batch:
    """Return ids, labels (-100 for tokens that are not predicted) and what tells texts apart."""
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(5, vocabulary, (rows, tokens), generator=draw)
    batch: Batch = {"input_ids": ids}
    if layout == "padded":
        lengths = torch.tensor([tokens - row * tokens // (2 * rows) for row in range(rows)])
        real = torch.arange(tokens) < lengths[:, None]
        batch |= {"attention_mask": real.long()}
    else:
        sizes = torch.tensor([tokens // part for part in FRACTIONS])
        sizes[0] += tokens - int(sizes.sum())
        documents = torch.arange(1, len(sizes) + 1).repeat_interleave(sizes).expand(rows, -1)
        positions = torch.cat([torch.arange(int(size)) for size in sizes]).expand(rows, -1)
        batch |= {"document_ids": documents, "position_ids": positions}
        real = torch.ones_like(ids, dtype=torch.bool)
    chosen = (torch.rand(ids.shape, generator=draw) < MASKED) & real
    return {**batch, "labels": torch.where(chosen, ids, -100), "real": real}


def hidden_states(ours: Any, batch: Batch) -> Tensor:
    if "attention_mask" in batch:
        return ours.encode_batch(batch["input_ids"], batch["attention_mask"])  # type: ignore[no-any-return]
    inputs = {name: batch[name] for name in ("input_ids", "position_ids", "document_ids")}
    return ours.encode(**inputs)  # type: ignore[no-any-return]


def reference_inputs(theirs: Any, batch: Batch) -> dict[str, Any]:
    """Return the inputs of transformers: masks of documents are made here, and not timed."""
    if "attention_mask" in batch:
        return {name: batch[name] for name in ("input_ids", "attention_mask")}
    ids = batch["document_ids"]
    place = torch.arange(batch["input_ids"].shape[1])
    same = (ids[:, :, None] == ids[:, None, :])[:, None]
    near = (place[:, None] - place).abs() <= theirs.config.sliding_window
    masks = {"full_attention": same, "sliding_attention": same & near.to(ids.device)}
    return {
        "input_ids": batch["input_ids"],
        "position_ids": batch["position_ids"],
        "attention_mask": masks,
    }


def forward(ours: Any, theirs: Any, batch: Batch, *, half: bool) -> tuple[Run, Run]:
    """Return functions that compute the last hidden states of the texts' tokens."""
    inputs = reference_inputs(theirs, batch)
    real = batch["real"]

    @torch.inference_mode()
    def run_ours() -> Tensor:
        return hidden_states(ours, batch)[real]

    @torch.inference_mode()
    def run_theirs() -> Tensor:
        return theirs.model(**inputs).last_hidden_state[real]  # type: ignore[no-any-return]

    return run_ours, run_theirs


def training(ours: Any, theirs: Any, batch: Batch, *, half: bool) -> tuple[Run, Run]:
    """Return functions that do a training step, and return its loss."""
    inputs = reference_inputs(theirs, batch)
    labels = batch["labels"]
    chosen = labels != -100
    device = labels.device.type

    def our_loss() -> Tensor:
        scores = ours.scores(hidden_states(ours, batch)[chosen])
        return F.cross_entropy(scores.float(), labels[chosen])

    def their_loss() -> Tensor:
        return theirs(**inputs, labels=labels).loss  # type: ignore[no-any-return]

    def step(model: Any, loss: Callable[[], Tensor]) -> Run:
        # without a rate, weights stay the same, so that each step has the same loss
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.0, fused=True)

        def run() -> Tensor:
            with torch.autocast(device, torch.bfloat16, enabled=half):
                value = loss()
            value.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            return value.detach()

        return run

    return step(ours, our_loss), step(theirs, their_loss)


def difference(ours: Run, theirs: Run) -> float:
    """Return the largest difference of the results, relative to their largest magnitude."""
    result = ours().double()
    expected = theirs().double()
    return float((result - expected).abs().max() / expected.abs().max())


def synchronized(run: Run, device: torch.device) -> Callable[[], None]:
    def timed() -> None:
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return timed


def peak_mb(run: Run, device: torch.device) -> float:
    """Return the memory that a run takes in addition to what is there before it, in MB."""
    run()  # states of the optimizer
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        return (torch.cuda.max_memory_allocated(device) - before) / 2**20
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before_kb = resident_kb("VmRSS")
    run()
    return (resident_kb("VmHWM") - before_kb) / 1024


def resident_kb(name: str) -> int:
    """Return a size of this process, in kB, by its name in Linux."""
    lines: Sequence[str] = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


if __name__ == "__main__":
    main()
