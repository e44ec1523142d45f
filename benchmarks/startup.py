"""Start-up time of ``zoo --help``, compared with ``transformers --help`` and with fewer families.

    python -m benchmarks.startup

Targets: less than 150 ms, at least 20 times as fast as transformers, and at most 1.1 times the CPU
time that it takes with one installed family. Whole processes are timed alternately; the bare
interpreter is the lower bound. Metadata of a distribution with fewer families precedes the one that
is installed.
"""

import argparse
import statistics
import sys
import tempfile
import tomllib
from functools import partial
from pathlib import Path

from benchmarks._common import alternate, compare, machine, run_process, table, versions

BIN = Path(sys.executable).parent
PROJECT = Path(__file__).parents[1] / "pyproject.toml"
FAMILIES = "zoo.api1"  # The group of entry points of families, and of these other plugins.
OTHER_PLUGINS = ("converters", "loggers")


def family_names() -> list[str]:
    """Return the names of the built-in families."""
    groups = tomllib.loads(PROJECT.read_text("utf-8"))["project"]["entry-points"]
    return [name for name in groups[FAMILIES] if name not in OTHER_PLUGINS]


def write_metadata(folder: Path, count: int) -> Path:
    """Write the metadata of a distribution that has the first families only; return its folder."""
    groups = tomllib.loads(PROJECT.read_text("utf-8"))["project"]["entry-points"]
    left_out = {groups[FAMILIES][name] for name in family_names()[count:]}
    lines = []
    for group, entries in groups.items():
        lines.append(f"[{group}]")
        for name, value in entries.items():
            package = value.partition(":")[0].partition(".")[0]
            if package not in left_out:
                lines.append(f"{name} = {value}")
    info = folder / str(count) / "plm_zoo-99.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plm-zoo\nVersion: 99\n")
    (info / "entry_points.txt").write_text("\n".join([*lines, ""]))
    return info.parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    zoo_help = [str(BIN / "zoo"), "--help"]
    all_families = len(family_names())
    processes = {
        "zoo --help": partial(run_process, zoo_help),
        "transformers --help": partial(run_process, [str(BIN / "transformers"), "--help"]),
        "python -c pass": partial(run_process, [sys.executable, "-c", "pass"]),
    }
    counts = {"1 family": 1, "12 families": 12, f"{all_families} families": all_families}
    with tempfile.TemporaryDirectory() as folder:
        for name, count in counts.items():
            path = {"PYTHONPATH": str(write_metadata(Path(folder), count))}
            processes[name] = partial(run_process, zoo_help, path)
        timings = alternate(processes, rounds=rounds)
    print(machine(), versions("plm-zoo", "click", "transformers"), sep="\n", end="\n\n")
    programs = {name: timings[name] for name in processes if name not in counts}
    print(compare(programs, "zoo --help"))
    zoo = timings["zoo --help"].median
    peer = timings["transformers --help"].median
    met = zoo < 0.150 and peer / zoo >= 20
    print(f"\nunder 150 ms and at least 20 times as fast: {'met' if met else 'NOT met'}\n")
    cpu = {name: statistics.median(timings[name].cpu_seconds) for name in counts}
    rows = [[f"zoo --help, {name}", f"{seconds:.3f}"] for name, seconds in cpu.items()]
    print(table(["", "median CPU s"], rows))
    ratio = list(cpu.values())[-1] / cpu["1 family"]
    print(f"\nratio {ratio:.2f}, at most 1.10: {'met' if ratio <= 1.1 else 'NOT met'}")


if __name__ == "__main__":
    main()
