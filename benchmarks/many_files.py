"""Many files in shards and on Ray, compared with one process on the same cores.

    python -m benchmarks.many_files MODEL [--texts 100000] [--files 50] [--shards 4] [--actors 2]
        [--kill SECONDS] [--folder DIR]

Short texts are written to Parquet files, and embedded three times: by one process with all cores,
by ``--shard`` in several processes, and on Ray if it is installed. With ``--kill``, the first shard
and one actor are killed after so many seconds; the shard is then started again. Every row must be
there once, and the outputs must have the bytes of the first process. All runs have one thread
for each model, but for the first, which has as many as there are shards.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pyarrow
import pyarrow.parquet

from benchmarks._common import machine, versions

WORDS = [
    "river",
    "stone",
    "garden",
    "winter",
    "letter",
    "market",
    "bridge",
    "morning",
    "silver",
    "road",
    "music",
    "paper",
]


def write_texts(folder: Path, texts: int, files: int) -> None:
    """Write short texts to tables; the ids count through all of them."""
    rng = random.Random(0)
    folder.mkdir(parents=True)
    for number in range(files):
        ids = list(range(texts * number // files, texts * (number + 1) // files))
        lines = [" ".join(rng.choices(WORDS, k=rng.randint(4, 16))) for _ in ids]
        table = pyarrow.table({"id": ids, "text": lines})
        pyarrow.parquet.write_table(table, folder / f"part-{number:05d}.parquet")


def command(model: str, source: Path, output: Path, *options: str) -> list[str]:
    words = [sys.executable, "-m", "zoo", "run", "embed", model, "--backend", "cpu", "--quiet"]
    return [*words, "--input", str(source), "--output", str(output), *options]


def run_together(
    commands: Sequence[Sequence[str]], kill_after: float | None, again: Sequence[str] = ()
) -> float:
    """Run commands at the same time; return the seconds until all have ended.

    Args:
        commands: the commands.
        kill_after: seconds after which the first one is killed; ``None`` to leave it.
        again: command that is run after the killed one.
    """
    begin = time.perf_counter()
    processes = [subprocess.Popen(words, stdout=subprocess.DEVNULL) for words in commands]
    if kill_after is not None:
        time.sleep(kill_after)
        processes[0].send_signal(signal.SIGKILL)
        processes[0].wait()
        processes[0] = subprocess.Popen(again, stdout=subprocess.DEVNULL)
    codes = [process.wait() for process in processes]
    if any(codes):
        raise SystemExit(f"exit codes {codes}")
    return time.perf_counter() - begin


def kill_actor(folder: Path, kill_after: float) -> None:
    """Kill a process of an actor that works in a folder."""
    time.sleep(kill_after)
    for path in Path("/proc").glob("[0-9]*"):
        try:
            is_actor = b"ray::_FileActor.run" in (path / "cmdline").read_bytes()
            if is_actor and Path(os.readlink(path / "cwd")) == folder:
                os.kill(int(path.name), signal.SIGKILL)
                return
        except OSError:  # The process has ended, or belongs to somebody else.
            continue
    print("no actor ran at that time: none was killed")


def check(output: Path, expected: Path, texts: int) -> None:
    """Check that an output has every row once, with the expected bytes."""
    ids: list[int] = []
    different_names = []
    for path in sorted(expected.glob("*.parquet")):
        if (output / path.name).read_bytes() != path.read_bytes():
            different_names.append(path.name)
        ids += pyarrow.parquet.read_table(output / path.name).column("id").to_pylist()
    if ids != list(range(texts)):
        raise SystemExit(f"{output} does not have every row once")
    same = "the bytes of one process"
    if different_names:
        same = f"{len(different_names)} files with other bytes, which threads explain"
    print(f"  every row once; {same}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the rate of each way to run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--texts", type=int, default=100_000)
    parser.add_argument("--files", type=int, default=50)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--actors", type=int, default=2)
    parser.add_argument("--kill", type=float, metavar="SECONDS")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args(arguments)
    model = options.model
    if Path(model).exists():
        model = str(Path(model).resolve())
    folder = Path(tempfile.mkdtemp(dir=options.folder)).resolve()
    source = folder / "texts"
    print(machine(), versions("torch", "pyarrow"), sep="\n")
    try:
        write_texts(source, options.texts, options.files)
        one = folder / "one"
        threads = ("--threads", str(options.shards))
        seconds = run_together([command(model, source, one, *threads)], None)
        print(f"one process   {options.texts / seconds:8.0f} texts/s")

        shards = folder / "shards"
        shard_commands = []
        for number in range(1, options.shards + 1):
            part = ("--threads", "1", "--shard", f"{number}/{options.shards}", "--resume")
            shard_commands.append(command(model, source, shards, *part))
        seconds = run_together(shard_commands, options.kill, shard_commands[0])
        print(f"{options.shards} shards      {options.texts / seconds:8.0f} texts/s")
        check(shards, one, options.texts)

        if find_spec("ray") is None:
            print("ray is not installed")
            return
        on_ray = folder / "ray"
        words = command(model, source, on_ray, "--engine", "ray", "--actors", str(options.actors))
        begin = time.perf_counter()
        process = subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL)
        if options.kill is not None:
            while process.poll() is None and not list(on_ray.glob("*.parquet")):
                time.sleep(0.1)
            kill_actor(folder, options.kill)
        if process.wait():
            raise SystemExit(f"exit code {process.returncode}")
        seconds = time.perf_counter() - begin
        print(f"{options.actors} actors      {options.texts / seconds:8.0f} texts/s")
        check(on_ray, one, options.texts)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
