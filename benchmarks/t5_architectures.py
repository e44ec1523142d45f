"""Architectures and objectives of T5's table 2, in small and at equal compute.

    python -m benchmarks.t5_architectures FOLDER [--seeds 3] [--steps 100] [--output DIR]

Raffel et al. 2020, arXiv:1910.10683, section 3.2: an encoder-decoder, one that shares its weights,
one of half the layers, a language model and a prefix language model, each trained to denoise or to
continue a text. FOLDER has the folders ``train`` and ``validation`` with text files.
``zoo.pretrain`` trains each, on the same rows in the same order for a seed. The paper fine-tunes on
tasks; here, the score is what the run's last evaluation says of held-out rows: the loss of the
tokens of targets, in nats, which is comparable within an objective. A language model that is
trained to continue texts also learns from sources (section 3.2.3), whose loss is not in the table.
``--output DIR`` keeps the losses, and repeats no run that it has.

Parameters and operations are counted in all blocks, without cross-attention, which the paper leaves
out. The unit is the language model for parameters, and the encoder-decoder for operations.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import zoo
from benchmarks._common import RunResults, machine, table, versions
from zoo.nn.encoder_decoder import CrossAttention
from zoo.training.logging.run_history import RunHistory
from zoo_t5.config import T5Config
from zoo_t5.model import build

HEAD = "seq2seq-lm"
LAYERS = 4
VOCABULARY = 1024
SEQ_LEN = 64
ROWS = 8  # Rows of a step.
EVAL_ROWS = 128
SIZES: dict[str, Any] = {
    "hidden_size": 96,
    "head_size": 24,
    "intermediate_size": 384,
    "num_heads": 4,
    "dropout": 0.0,
    # The recipe of the size tiny gives cross-attention a better start than the other parts have.
    "mimetic_init_scale": None,
}
NOISE_DENSITY = 0.15  # As in the paper.
OBJECTIVES = {
    "denoising": ("span-corruption", {"noise_density": NOISE_DENSITY}),
    "language modelling": ("prefix-lm", {}),
}
LANGUAGE_MODEL = "language model"
ENCODER_DECODER = "encoder-decoder"
# Row of the paper's table -> changes of the configuration.
ARCHITECTURES: dict[str, dict[str, Any]] = {
    ENCODER_DECODER: {"num_layers": LAYERS},
    "encoder-decoder, shared": {"num_layers": LAYERS, "tie_encoder_decoder": True},
    "encoder-decoder, half of the layers": {"num_layers": LAYERS // 2},
    LANGUAGE_MODEL: {"num_layers": LAYERS, "single_stack": "causal"},
    "prefix language model": {"num_layers": LAYERS, "single_stack": "prefix"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--output", type=Path, help="directory for the losses")
    options = parser.parse_args()
    if options.output is not None:
        options.output.mkdir(parents=True, exist_ok=True)
    results = RunResults(
        options.output and options.output / "losses.jsonl",
        {"steps": options.steps, "rows": ROWS, "sizes": SIZES, "folder": options.folder},
    )
    rows = []
    for objective in OBJECTIVES:
        for architecture in ARCHITECTURES:
            runs = []
            for seed in range(options.seeds):
                name = f"{architecture} {objective} {seed}"
                if name not in results.known:
                    results.add(name, measure(architecture, objective, seed, options))
                runs.append(results.known[name])
            rows.append(summarize(architecture, objective, runs))
            print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    header = ("architecture", "objective", "parameters", "operations", "loss (median)", "range")
    print(table(header, rows))
    seconds = sum(run["seconds"] for run in results.known.values())
    print(f"\n{options.steps} steps, {options.seeds} seeds, {seconds:.0f} s of CPU time,")
    print(f"{machine(1)}; {versions('torch', 'tokenizers')}")


def measure(
    architecture: str, objective: str, seed: int, options: argparse.Namespace
) -> dict[str, float]:
    """Train a model; return its loss on held-out targets, and the CPU time."""
    name, objective_args = OBJECTIVES[objective]
    begin = time.process_time()
    scratch = Path(tempfile.mkdtemp())
    try:
        training = zoo.pretrain(
            "t5",
            objective=name,
            train=options.folder / "train",
            eval=options.folder / "validation",
            max_seq_len=SEQ_LEN,
            batch_size=ROWS,
            max_steps=options.steps,
            seed=seed,
            threads=1,
            device="cpu",
            output=scratch / "run",
            settings={
                "config": {**SIZES, **ARCHITECTURES[architecture]},
                "objective_args": objective_args,
                "vocab_size": VOCABULARY,
                "seq_len_warmup": None,
                "eval_sequences": EVAL_ROWS,
                "eval_steps": options.steps,
                "save_steps": options.steps,
            },
        )
        record = RunHistory.read(training.run).validation[-1]
    finally:
        shutil.rmtree(scratch)
    seconds = time.process_time() - begin
    # A run with a single term only has the total.
    loss = record.get("losses", {}).get(HEAD, record["loss"])
    return {"loss": loss, "seconds": seconds}


def summarize(architecture: str, objective: str, runs: list[dict[str, float]]) -> tuple[str, ...]:
    """Return a row of the table."""
    losses = [run["loss"] for run in runs]
    return (
        architecture,
        objective,
        f"{parameters(architecture) / parameters(LANGUAGE_MODEL):.2f} P",
        f"{operations(architecture) / operations(ENCODER_DECODER):.2f} M",
        f"{statistics.median(losses):.3f}",
        f"{min(losses):.3f} to {max(losses):.3f}",
    )


def make_model(architecture: str) -> nn.Module:
    """Return an architecture with new weights."""
    config = T5Config(vocab_size=VOCABULARY, **SIZES, **ARCHITECTURES[architecture])
    return build(config, HEAD)


def parameters(architecture: str) -> int:
    """Return the parameters of the blocks, without cross-attention."""
    count = 0
    for name, parameter in make_model(architecture).named_parameters():
        if name.startswith(("layers.", "decoder.layers.")) and ".cross" not in name:
            count += parameter.numel()
    return count


def operations(architecture: str) -> int:
    """Return the operations of the blocks for a source and a target, without cross-attention."""
    model: Any = make_model(architecture)
    for module in model.modules():
        if isinstance(module, CrossAttention):
            module.forward = lambda x, *_: torch.zeros_like(x)  # type: ignore[method-assign]
    tokens = torch.ones(1, SEQ_LEN // 2, dtype=torch.int64)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model.hidden(tokens, None, tokens)
    return int(counter.get_total_flops())


if __name__ == "__main__":
    main()
