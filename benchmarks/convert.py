"""Claim: converting a BERT-large-sized fp32 checkpoint (1.3 GB) takes at most a third of the time
of ``from_pretrained`` and ``save_pretrained``, at most 1.5 times that of ``cp``, and 300 MB.

    python -m benchmarks.convert [--folder DIR]

Whole processes, in turn in one run, on a checkpoint with random weights that the script makes.
Ours checks, digests what it reads and what it writes, proves the round trip and flushes to the
disk, which ``cp`` does not; ``cp`` followed by ``sync`` of the copy is the limit for a copy that is
as durable. The answers are compared first: back in the Hub's layout, every tensor is the same.
"""

import argparse
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

from benchmarks._common import Process, alternate, compare, machine, run_process, versions

PEER = (
    "import sys, transformers\n"
    "model = transformers.BertForPreTraining.from_pretrained(sys.argv[1])\n"
    "model.save_pretrained(sys.argv[2])\n"
)
DURABLE = 'cp -r "$1" "$2" && sync "$2"/*'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="where to work; 6 GB are needed")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        # byte code is kept between runs, as it is of a package that pip installed
        os.environ |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": f"{folder}/bytecode"}
        source = folder / "source"
        aside(make, source)
        aside(check, source, folder)
        report(source, folder, options.rounds)


def aside(function: Callable[..., None], *arguments: Path) -> None:
    """Run a function in a process of its own: the peak memory of a child counts its parent's."""
    process = multiprocessing.get_context("spawn").Process(target=function, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        sys.exit(process.exitcode)


def make(path: Path) -> None:
    """Write a checkpoint in the Hub's layout with every value drawn at random."""
    from zoo.plugins import get_family

    family = get_family("bert")
    config = family.sizes()["large"]
    generator = np.random.default_rng(0)
    tensors = {
        name: generator.standard_normal(shape, dtype=np.float32)
        for entry in family.weights(config, "pretraining").entries()
        for name, shape in zip(entry.sources, entry.source_shapes, strict=True)
    }
    path.mkdir()
    save_file(tensors, path / "model.safetensors", {"format": "pt"})
    hub = family.to_hub(config)
    hub |= {"model_type": "bert", "architectures": ["BertForPreTraining"]}
    (path / "config.json").write_text(json.dumps(hub))


def check(source: Path, folder: Path) -> None:
    """Compare what comes back from our layout with the source, tensor by tensor."""
    convert(source, folder / "ours")
    convert(folder / "ours", folder / "back", "--to", "hub")
    with (
        safe_open(source / "model.safetensors", "numpy") as before,
        safe_open(folder / "back" / "model.safetensors", "numpy") as after,
    ):
        assert set(before.keys()) == set(after.keys()), "names differ"
        for name in before.keys():  # noqa: SIM118 (the handle is no mapping)
            same = np.array_equal(before.get_tensor(name), after.get_tensor(name))
            assert same, f"{name} differs"
    shutil.rmtree(folder / "back")


def convert(source: Path, target: Path, *more: str) -> Process:
    zoo = str(Path(sys.executable).parent / "zoo")
    return run_process([zoo, "convert", str(source), "-o", str(target), *more])


def report(source: Path, folder: Path, rounds: int) -> None:
    def fresh(name: str) -> Path:
        shutil.rmtree(folder / name, ignore_errors=True)
        return folder / name

    def peer() -> Process:
        argv = [sys.executable, "-c", PEER, str(source), str(fresh("peer"))]
        return run_process(argv, {"HF_HUB_OFFLINE": "1"})

    timings = alternate(
        {
            "zoo convert": lambda: convert(source, fresh("ours")),
            "from_pretrained, save_pretrained": peer,
            "cp -r": lambda: run_process(["cp", "-r", str(source), str(fresh("copy"))]),
            "cp -r, sync": lambda: run_process(
                ["sh", "-c", DURABLE, "sh", str(source), str(fresh("durable"))]
            ),
            "python -c pass": lambda: run_process([sys.executable, "-c", "pass"]),
        },
        rounds=rounds,
    )
    print(machine(), versions("plm-zoo", "numpy", "blake3", "transformers"), sep="\n", end="\n\n")
    print(compare(timings, "zoo convert"))
    ours = timings["zoo convert"]
    start = timings["python -c pass"].median
    for name in ("cp -r", "cp -r, sync"):
        ratio = (ours.median - start) / timings[name].median
        print(f"\nwithout interpreter start, zoo convert takes {ratio:.2f} times as long as {name}")


if __name__ == "__main__":
    main()
