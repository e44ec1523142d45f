"""Longformer and BigBird at lengths from 512 to 16,384 tokens, compared with transformers.

    python -m benchmarks.long_documents [--tokens 512 1024 ... 16384] [--threads 1] [--rounds 3]
    python -m benchmarks.long_documents --family bigbird
    python -m benchmarks.long_documents --quick

A model of 4 blocks of width 384 classifies one text. Longformer has windows of 512 tokens, and its
first token is global. BigBird has blocks of 64 tokens, 3 of them random in training, and full
attention of 512 tokens. The passes are a forward pass without gradients, and a training step:
forward, backward and an update by fused AdamW. Both sides have the same weights and the same text,
and run alternately. First, their logits, or losses, must agree. Memory is what a pass takes in
addition to what is there before it. The last columns have the factor of time from half the length
to this one.
"""

import argparse
import ctypes
import gc
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks._common import alternate, machine, table, versions
from benchmarks.modernbert import difference, resident_kb
from zoo.conformance.hf_reference import reference_model
from zoo.families.random_inputs import randomize_weights
from zoo.plugins import get_family

Run = Callable[[], Tensor]
PASSES = ("forward", "training")
LENGTHS = (512, 1024, 2048, 4096, 8192, 16_384)
QUICK_LENGTHS = (512, 1024, 2048, 4096)
AGREE = 1e-4  # Of the largest magnitude, in float32.
M_MMAP_THRESHOLD = -3  # Of glibc's ``mallopt``.


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tokens", nargs="+", type=int, default=LENGTHS)
    parser.add_argument("--passes", nargs="+", choices=PASSES, default=PASSES)
    parser.add_argument("--family", choices=("longformer", "bigbird"), default="longformer")
    parser.add_argument("--window", type=int, default=512)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="up to 4,096 tokens, one round")
    parser.add_argument("--smoke", action="store_true", help="a tiny model and few tokens")
    options = parser.parse_args()
    if options.quick:
        options.tokens = QUICK_LENGTHS
        options.rounds = 1
    if options.smoke:
        options.tokens = (96, 192)
        options.window = 16
        options.rounds = 1
    torch.set_num_threads(options.threads)
    rows = []
    for name in options.passes:
        seconds: dict[int, dict[str, float]] = {}
        for tokens in sorted(options.tokens):
            columns, seconds[tokens] = measure(tokens, name, options)
            half = seconds.get(tokens // 2)
            for side in ("zoo", "transformers"):
                factor = "" if half is None else f"{seconds[tokens][side] / half[side]:.2f}"
                columns.append(factor)
            rows.append([f"{tokens:,} tokens, {name}", *columns])
            print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    header = (
        "",
        "zoo ms",
        "transformers ms",
        "zoo is faster by",
        "zoo MB",
        "transformers MB",
        "memory",
        "difference",
        "zoo per doubling",
        "transformers per doubling",
    )
    print(f"{options.family}. {machine(options.threads)}. {versions('torch', 'transformers')}.\n")
    print(table(header, rows))


def measure(
    tokens: int, name: str, options: argparse.Namespace
) -> tuple[list[str], dict[str, float]]:
    """Return the columns of a length and a pass, and the median CPU seconds of each side."""
    ours, theirs = models(options.family, max(options.tokens), options.window, small=options.smoke)
    batch = make_batch(tokens, ours.embeddings.tokens.weight.shape[0])
    passes = training(ours, theirs, batch) if name == "training" else forward(ours, theirs, batch)
    worst = difference(*passes)
    if not worst <= AGREE:
        raise SystemExit(f"{tokens:,} tokens, {name}: results differ by {worst:.1e}")
    runs = dict(zip(("zoo", "transformers"), passes, strict=True))
    peaks = {side: peak_mb(run) for side, run in runs.items()}
    timings = alternate(runs, rounds=options.rounds, warm_up=0, clock=time.process_time)
    seconds = {side: timing.median for side, timing in timings.items()}
    ratio = seconds["transformers"] / seconds["zoo"]
    columns = [
        f"{seconds['zoo'] * 1e3:,.1f}",
        f"{seconds['transformers'] * 1e3:,.1f}",
        f"{ratio:.2f}x",
        f"{peaks['zoo']:,.0f}",
        f"{peaks['transformers']:,.0f}",
        f"{peaks['zoo'] / max(peaks['transformers'], 1):.2f}x",
        f"{worst:.0e}",
    ]
    del ours, theirs, runs, passes
    gc.collect()
    return columns, seconds


def peak_mb(run: Run) -> float:
    """Return the memory that a run takes in addition to what is there before it, in MB."""
    # Memory that glibc keeps for itself would hide what a run takes, so that all but small blocks
    # are given back to the system at once.
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_THRESHOLD, 1 << 16)
    run()  # The states of the optimizer stay.
    gc.collect()
    libc.malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # It resets the peak.
    before_kb = resident_kb("VmRSS")
    run()
    libc.mallopt(M_MMAP_THRESHOLD, 1 << 25)
    return (resident_kb("VmHWM") - before_kb) / 1024


def models(family_name: str, longest: int, window: int, *, small: bool) -> tuple[Any, Any]:
    """Return the zoo's model and transformers' model, with the same random weights."""
    family: Any = get_family(family_name)
    width = 48 if small else 384
    settings = {"max_positions": longest + 2, "attention_window": window, "type_vocab_size": 1}
    if family_name == "bigbird":
        settings = {"max_positions": longest, "block_size": 4 if small else 64}
    config = family.config_type(
        vocab_size=1000,
        hidden_size=width,
        num_layers=2 if small else 4,
        num_heads=width // 16 if small else width // 64,
        intermediate_size=4 * width,
        dropout=0.0,
        attention_dropout=0.0,
        **settings,
    )
    ours = family.model(config, "sequence-classification")
    randomize_weights(ours)
    theirs: Any = reference_model(family, config, "sequence-classification", ours.state_dict())
    return ours, theirs


def make_batch(tokens: int, vocabulary: int) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(0)
    input_ids = torch.randint(5, vocabulary, (1, tokens), generator=draw)
    return {"input_ids": input_ids, "attention_mask": torch.ones_like(input_ids)}


def forward(ours: Any, theirs: Any, batch: dict[str, Tensor]) -> tuple[Run, Run]:
    """Return functions that compute the logits."""
    ours.eval()
    theirs.eval()

    @torch.inference_mode()
    def run_ours() -> Tensor:
        return ours(**batch)["logits"]  # type: ignore[no-any-return]

    @torch.inference_mode()
    def run_theirs() -> Tensor:
        return theirs(**batch).logits  # type: ignore[no-any-return]

    return run_ours, run_theirs


def training(ours: Any, theirs: Any, batch: dict[str, Tensor]) -> tuple[Run, Run]:
    """Return functions that do a training step, and return its loss."""
    label = torch.ones(1, dtype=torch.int64)

    def step(model: Any, logits: Callable[[], Tensor]) -> Run:
        model.train()
        # Without a rate, weights stay the same, so that each step has the same loss.
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.0, fused=True)

        def run() -> Tensor:
            loss = F.cross_entropy(logits(), label)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            return loss.detach()

        return run

    return (
        step(ours, lambda: ours(**batch)["logits"]),
        step(theirs, lambda: theirs(**batch).logits),
    )


if __name__ == "__main__":
    main()
