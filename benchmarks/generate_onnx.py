"""Greedy generation in float32, int8 and int4, in ONNX Runtime and torch, against transformers.

    python -m benchmarks.generate_onnx [--family t5 --size base] [--batch 1 8] [--new-tokens 32]

All sides have the random weights of ``benchmarks.generate``, and generate from the same prompts. In
float32, all tokens must be those of transformers. In int8 and int4, the table has the share of
equal tokens, at the same position, over 50 prompts; random weights, whose best tokens are less
distinct than those of a trained model, make it a lower bound. The export and these prompts take
several minutes before the first round; each side is named as it is done.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks._common import Timing, alternate, machine, table, versions, zoo
from benchmarks.generate import contenders, pair, prompts, sides
from zoo.conversion.cache import resolve_checkpoint
from zoo.exporting.session import open_session
from zoo.inference.generation.config import GenerationConfig
from zoo.inference.generation.decoder import SessionDecoder, pad
from zoo.inference.generation.generate import generate
from zoo.plugins import get_family

PEER = "transformers"
PROMPTS = 50
Rows = list[list[int]]
Generator = Callable[[Sequence[Sequence[int]]], Rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--family", default="gpt")
    parser.add_argument("--size", default="small")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--prompt", type=int, default=24, help="tokens of the longest prompt")
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    vocabulary = get_family(options.family).sizes()[options.size].vocab_size
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["ZOO_HOME"] = str(Path(scratch, "home"))
        generators = dict(all_sides(options, Path(scratch)))
        shares = equal_tokens(generators, prompts(PROMPTS, options.prompt, vocabulary))
        timings = {
            batch: alternate(
                {
                    name: partial(run, prompts(batch, options.prompt, vocabulary))
                    for name, run in generators.items()
                },
                rounds=options.rounds,
            )
            for batch in options.batch
        }
    print(machine(options.threads), versions("torch", "transformers", "onnxruntime"), sep="\n")
    print(f"{options}\n\n{result_table(timings, shares, options.new_tokens)}")


def all_sides(options: argparse.Namespace, scratch: Path) -> Iterator[tuple[str, Generator]]:
    """Yield functions that generate new tokens from rows of token ids, by name."""
    family = get_family(options.family)
    head, side = sides(family)
    model, reference = pair(family, family.sizes()[options.size], head)
    reference.save_pretrained(scratch / "hub")
    settings = GenerationConfig(max_new_tokens=options.new_tokens)

    def peer(rows: Sequence[Sequence[int]]) -> Rows:
        inputs = pad(rows, side=side, pad_id=0, device="cpu")
        return contenders(model, reference, inputs, settings)[1]()

    def ours(decoder: SessionDecoder, rows: Sequence[Sequence[int]]) -> Rows:
        return generate(decoder, pad(rows, side=side, pad_id=0, device="cpu"), settings)

    yield PEER, peer
    words = ("--onnx", "--int8", "--int4", "--max-drop", "1")
    zoo("export", scratch / "hub", *words, "--head", head, "-o", scratch / "onnx")
    for name, folder, backend, dtype in (
        ("zoo, torch", "hub", "cpu", "float32"),
        ("zoo, torch int8", "hub", "cpu", "int8"),
        ("zoo, ONNX Runtime", "onnx", "onnx", "float32"),
        ("zoo, ONNX Runtime int8", "onnx", "onnx", "int8"),
        ("zoo, ONNX Runtime int4", "onnx", "onnx", "int4"),
    ):
        checkpoint = resolve_checkpoint(str(scratch / folder))
        session = open_session(checkpoint, backend, None, dtype, options.threads)
        yield name, partial(ours, session.decoder())


def equal_tokens(
    generators: dict[str, Generator], rows: Sequence[Sequence[int]]
) -> dict[str, float]:
    """Return the share of tokens that each side has in common with the peer."""
    tokens = {}
    for name, run in generators.items():
        tokens[name] = torch.tensor([run([row])[0] for row in rows])
        print(f"{name}: {len(rows)} prompts", file=sys.stderr, flush=True)
    shares = {name: float((ids == tokens[PEER]).float().mean()) for name, ids in tokens.items()}
    for name, share in shares.items():
        if "int" not in name and share < 1:
            sys.exit(
                f"{name}: {share:.1%} of the tokens are those of {PEER}; there is nothing to time"
            )
    return shares


def result_table(
    timings: dict[int, dict[str, Timing]], shares: dict[str, float], new_tokens: int
) -> str:
    """Return a table of speeds at each batch size, and of equal tokens."""
    header = ["", "equal tokens"]
    rows = [[name, f"{share:.1%}"] for name, share in shares.items()]
    for batch, measured in timings.items():
        header += [f"tokens/s at batch {batch}", f"of {PEER}"]
        for row in rows:
            seconds = measured[row[0]].median
            rate: Any = batch * new_tokens / seconds
            row += [f"{rate:.1f}", f"{measured[PEER].median / seconds:.2f}x"]
    return table(header, rows)


if __name__ == "__main__":
    main()
