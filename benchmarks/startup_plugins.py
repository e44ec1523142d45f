"""Start-up time of ``zoo --help`` with many third-party plugins, compared with none.

    python -m benchmarks.startup_plugins

Each plugin is a distribution with a family and a command, which pip installs from a wheel into a
folder of its own. Whole processes are timed alternately; the target is a ratio of at most 1.1.
"""

import argparse
import subprocess
import sys
import tempfile
import zipfile
from functools import partial
from pathlib import Path

from benchmarks._common import alternate, compare, machine, run_process, versions

MODULE = """
from zoo.families.encoder import WordPieceFamily
from zoo.plugins.hookspecs import hookimpl


class Mine(WordPieceFamily):
    name = "{name}"
    model_types = ("{name}",)


@hookimpl
def zoo_families():
    return [Mine()]
"""
ENTRY_POINTS = """
[zoo.api1]
{name} = zoo_{name}

[zoo.api1.commands]
{name} = zoo_{name}:command
"""
BIN = Path(sys.executable).parent


def write_wheel(folder: Path, name: str) -> Path:
    """Write the wheel of a plugin, and return its path."""
    info = f"zoo_{name}-1.0.dist-info"
    files = {
        f"zoo_{name}.py": MODULE.format(name=name),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: zoo-{name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": ENTRY_POINTS.format(name=name),
    }
    record = "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD"))
    path = folder / f"zoo_{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for member, text in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(member, text)
    return path


def install(folder: Path, count: int) -> Path:
    """Install plugins into a folder, and return it."""
    wheels = [write_wheel(folder, f"plugin{number}") for number in range(count)]
    options = ("--quiet", "--disable-pip-version-check", "--no-index", "--no-deps")
    target = folder / "site"
    paths = [str(path) for path in (target, *wheels)]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", *paths]
    subprocess.run(command, check=True)
    return target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--plugins", type=int, default=30, help="number of plugins")
    arguments = parser.parse_args()
    label = f"with {arguments.plugins} plugins"
    with tempfile.TemporaryDirectory() as folder:
        site = install(Path(folder), arguments.plugins)
        program = [str(BIN / "zoo"), "--help"]
        processes = {
            label: partial(run_process, program, {"PYTHONPATH": str(site)}),
            "without": partial(run_process, program),
        }
        timings = alternate(processes, rounds=arguments.rounds)
    print(machine(), versions("plm-zoo", "click"), sep="\n", end="\n\n")
    print(compare(timings, label))
    ratio = timings[label].median / timings["without"].median
    print(f"\nratio {ratio:.2f}, at most 1.10: {'met' if ratio <= 1.1 else 'NOT met'}")


if __name__ == "__main__":
    main()
