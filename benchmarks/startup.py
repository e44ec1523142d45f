"""Start-up time of ``zoo --help``, compared with ``transformers --help``.

    python -m benchmarks.startup

Targets: less than 150 ms, and at least 20 times as fast. Whole processes are timed alternately; the
bare interpreter is the lower bound.
"""

import argparse
import sys
from functools import partial
from pathlib import Path

from benchmarks._common import alternate, compare, machine, run_process, versions

BIN = Path(sys.executable).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    commands = {
        "zoo --help": [str(BIN / "zoo"), "--help"],
        "transformers --help": [str(BIN / "transformers"), "--help"],
        "python -c pass": [sys.executable, "-c", "pass"],
    }
    timings = alternate(
        {name: partial(run_process, argv) for name, argv in commands.items()}, rounds=rounds
    )
    print(machine(), versions("plm-zoo", "click", "transformers"), sep="\n", end="\n\n")
    print(compare(timings, "zoo --help"))
    zoo = timings["zoo --help"].median
    peer = timings["transformers --help"].median
    met = zoo < 0.150 and peer / zoo >= 20
    print(f"\nunder 150 ms and at least 20 times as fast: {'met' if met else 'NOT met'}")


if __name__ == "__main__":
    main()
