"""Conversion of checkpoints, compared with ``from_pretrained`` and ``save_pretrained``.

    python -m benchmarks.convert [--family bert gpt ...] [--rounds 5] [--folder DIR]

Targets: at most a third of the time for every family, and a peak memory that does not depend on the
size of the file.

Whole processes are timed alternately on checkpoints with random weights, which transformers writes
at base size, and for BERT at large size, too. ELMo's HDF5 and the arrays of OpenAI's first GPT,
which transformers does not read, are compared with copying alone. The conversion verifies the
source, digests what it reads and writes, checks the round trip and flushes to the disk, which
``cp`` does not; ``cp`` followed by ``sync`` is the lower bound for a copy that is as durable, and
1.1 of its time is the aim.

What bounds a conversion there is the processor, where the disk is fast: the source is read three
times from the system's cache, to be copied, hashed and compared, and the result twice, to be hashed
and compared, each after Python has started. The source is hashed during the copy, the result is
hashed and flushed during the comparison. Of BERT-large, the start with its imports and the plan of
tensors takes about as long on a processor as the copy or the comparison: two cores that are busy
all the time would still take a third longer than ``cp`` and ``sync``. Hashing what is compared in
the same pass takes a tenth less processor time, and leaves a core idle; hashing what is copied
takes longer, since the kernel no longer copies by itself. On two threads of one core, none of these
changed the time by more than a tenth: flushing while the file is written, maps instead of reads,
smaller buffers, digests of what is in a buffer instead of the file, and comparing what is hashed.

First, the exported checkpoints are compared with the sources, bit for bit.
"""

import argparse
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._common import Process, Timing, alternate, machine, run_process, table, versions
from zoo.families.base import Family
from zoo.plugins import get_family

PEER = (
    "import sys, transformers\n"
    "model = getattr(transformers, sys.argv[1]).from_pretrained(sys.argv[2])\n"
    "model.save_pretrained(sys.argv[3])\n"
)
DURABLE = 'cp -r "$1" "$2" && sync "$2"/*'
HEADER = (
    "checkpoint",
    "MB",
    "zoo s",
    "zoo MB of memory",
    "load and save s",
    "its MB of memory",
    "zoo is faster by",
    "cp s",
    "zoo / cp",
    "cp, sync s",
    "zoo / cp, sync",
)


@dataclass(frozen=True)
class Case:
    """A checkpoint to convert.

    Attributes:
        family: name of the family.
        size: name of the model size.
        head: name of the head.
        format: format of the weights.
    """

    family: str
    size: str
    head: str
    format: str = "safetensors"

    @property
    def peer(self) -> bool:
        """True if transformers reads the checkpoint."""
        return self.format == "safetensors"


CASES = {
    "bert": Case("bert", "base", "pretraining"),
    "bert-large": Case("bert", "large", "pretraining"),
    "roberta": Case("roberta", "base", "masked-lm"),
    "albert": Case("albert", "base-v2", "masked-lm"),
    "distilbert": Case("distilbert", "base", "masked-lm"),
    "electra": Case("electra", "base", "replaced-token-detection"),
    "deberta": Case("deberta", "base", "none"),
    "deberta-v3": Case("deberta", "v3-base", "none"),
    "gpt": Case("gpt", "gpt", "causal-lm"),
    "gpt2": Case("gpt", "small", "causal-lm"),
    "t5": Case("t5", "base", "seq2seq-lm"),
    "elmo": Case("elmo", "original", "none", "hdf5"),
    "gpt-npy": Case("gpt", "gpt", "causal-lm", "npy"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--family", nargs="+", choices=CASES, default=list(CASES), metavar="NAME")
    parser.add_argument("--folder", type=Path, help="where to work; 8 GB are needed")
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    print(machine(), versions("plm-zoo", "numpy", "blake3", "transformers"), sep="\n", end="\n\n")
    rows = []
    for name in chosen.family:
        with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
            rows.append(measure(name, Path(folder), chosen.rounds))
            print("\t".join(rows[-1]), file=sys.stderr, flush=True)
    print(table(HEADER, rows))


def measure(name: str, folder: Path, rounds: int) -> list[str]:
    """Return the row of a case in the table."""
    # cache byte code between processes, as for an installed package
    os.environ |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": f"{folder}/bytecode"}
    source = folder / "source"
    aside(make, name, source)
    aside(check, name, source, folder)
    size = sum(path.stat().st_size for path in source.iterdir()) / 1e6
    return row(name, size, race(CASES[name], source, folder, rounds))


def aside(function: Callable[..., None], *arguments: object) -> None:
    """Run a function in a new process: the peak memory of a child includes that of its parent."""
    process = multiprocessing.get_context("spawn").Process(target=function, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        sys.exit(process.exitcode)


def make(name: str, path: Path) -> None:
    """Write a checkpoint with random weights."""
    case = CASES[name]
    family = get_family(case.family)
    config = family.sizes()[case.size]
    path.mkdir()
    makers = {"safetensors": make_safetensors, "hdf5": make_hdf5, "npy": make_npy}
    makers[case.format](path, family, config, case.head)


def make_safetensors(path: Path, family: Family, config: Any, head: str) -> None:
    import torch
    import transformers

    hub = family.to_hub(config)
    kind = getattr(transformers, family.architecture(config, head))
    with torch.device("meta"):
        model = kind(kind.config_class.from_dict(hub))
    model.to_empty(device="cpu").tie_weights()
    torch.manual_seed(0)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    model.save_pretrained(path)


def make_hdf5(path: Path, family: Family, config: Any, head: str) -> None:
    import h5py

    with h5py.File(path / "weights.hdf5", "w") as file:
        for source, array in draw(family, config, head):
            file[source] = array
    (path / "options.json").write_text(json.dumps(family.to_hub(config)))


def make_npy(path: Path, family: Family, config: Any, head: str) -> None:
    """Write the format of OpenAI's release: one flat array in ten parts of equal length."""
    arrays = dict(draw(family, config, head))
    names = family.map_release_tensors("npy", [str(number) for number in range(len(arrays))], head)
    ordered = [arrays[foreign.name] for foreign in names.values()]
    flat = np.concatenate([array.reshape(-1) for array in ordered])
    for number, part in enumerate(np.array_split(flat, 10)):
        np.save(path / f"params_{number}.npy", part)
    (path / "params_shapes.json").write_text(json.dumps([array.shape for array in ordered]))
    hub = family.to_hub(config) | {"architectures": [family.architecture(config, head)]}
    (path / "config.json").write_text(json.dumps(hub))


def draw(family: Family, config: Any, head: str) -> list[tuple[str, Any]]:
    """Return random tensors under the names of the published checkpoint."""
    generator = np.random.default_rng(0)
    weights = family.weights(config, head)
    return [
        (name, generator.standard_normal(shape, dtype=np.float32))
        for entry in weights.entries()
        for name, shape in zip(entry.sources, entry.source_shapes, strict=True)
    ]


def check(name: str, source: Path, folder: Path) -> None:
    """Compare the exported checkpoint with the source, tensor by tensor."""
    from zoo.conversion.open import open_source
    from zoo.hub.source import CheckpointDir

    case = CASES[name]
    convert(source, folder / "ours")
    convert(folder / "ours", folder / "back", "--to", "hub")
    before, after = (open_source(CheckpointDir(path, "")) for path in (source, folder / "back"))
    with before.for_head(case.head).reader as theirs, after.reader as ours:
        assert theirs.tensors.keys() <= ours.tensors.keys(), "a tensor is missing"
        for tensor in theirs.tensors:
            expected = theirs.read(tensor)
            actual = ours.read(tensor)
            assert expected.dtype == actual.dtype, f"{tensor} differs"
            assert np.array_equal(expected, actual), f"{tensor} differs"
    shutil.rmtree(folder / "back")


def convert(source: Path, target: Path, *more: str) -> Process:
    zoo = str(Path(sys.executable).parent / "zoo")
    return run_process([zoo, "convert", str(source), "-o", str(target), *more])


def race(case: Case, source: Path, folder: Path, rounds: int) -> dict[str, Timing]:
    """Return the timings of the contenders by name."""

    def output(name: str) -> Path:
        shutil.rmtree(folder / name, ignore_errors=True)
        return folder / name

    def peer() -> Process:
        family = get_family(case.family)
        kind = family.architecture(family.sizes()[case.size], case.head)
        argv = [sys.executable, "-c", PEER, kind, str(source), str(output("peer"))]
        return run_process(argv, {"HF_HUB_OFFLINE": "1"})

    contenders: dict[str, Callable[[], Process]] = {
        "zoo": lambda: convert(source, output("ours")),
        "cp": lambda: run_process(["cp", "-r", str(source), str(output("copy"))]),
        "sync": lambda: run_process(
            ["sh", "-c", DURABLE, "sh", str(source), str(output("durable"))]
        ),
    }
    return alternate(contenders | ({"peer": peer} if case.peer else {}), rounds=rounds)


def row(name: str, size: float, timings: dict[str, Timing]) -> list[str]:
    """Return a row of the table."""
    ours, copy, sync = (timings[tool] for tool in ("zoo", "cp", "sync"))
    peer = timings.get("peer")
    theirs = ["none", "", ""]
    if peer:
        ratio = f"{peer.median / ours.median:.2f}x"
        theirs = [f"{peer.median:.2f}", f"{max(peer.peak_mb):.0f}", ratio]
    copies = [f"{copy.median:.2f}", f"{ours.median / copy.median:.1f}"]
    copies += [f"{sync.median:.2f}", f"{ours.median / sync.median:.1f}"]
    return [name, f"{size:.0f}", f"{ours.median:.2f}", f"{max(ours.peak_mb):.0f}", *theirs, *copies]


if __name__ == "__main__":
    main()
