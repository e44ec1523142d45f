"""``python -m tests.fuzz``: run the fuzzer, and print a table and the failures."""

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from tests.fuzz.campaign import Summary, campaign, lines, plan, summarise
from tests.fuzz.case import Outcome
from tests.fuzz.readers import all_readers
from tests.fuzz.table import CHECKS, READERS
from tests.reporting import VARIABLE, record


def main() -> None:
    options = _options()
    readers = all_readers()
    names = options.reader or list(readers)
    if unknown := [name for name in names if name not in readers]:
        sys.exit(f"no reader is called {', '.join(unknown)}; there are {', '.join(readers)}")
    cases = plan([readers[name] for name in names], options.cases)
    if options.case is not None:
        cases = [(name, options.case) for name in names]
    begin = time.monotonic()
    outcomes = []
    running = campaign(
        cases, seed=options.seed, seconds=options.seconds, jobs=options.jobs, keep=options.keep
    )
    for number, outcome in enumerate(running, 1):
        outcomes.append(outcome)
        if outcome.failure or options.case is not None:
            print(_line(outcome), flush=True)
        if number % 1000 == 0:
            seconds = round(time.monotonic() - begin)
            print(f"{number} cases, {seconds} s", flush=True)
            if options.output is not None:  # what has run, should the campaign be cut off
                _write(options, summarise(outcomes), seconds)
    summaries = summarise(outcomes)
    seconds = round(time.monotonic() - begin)
    failures = sum(len(summary.failures) for summary in summaries.values())
    print("\n".join(lines(summaries)))
    print(f"{len(outcomes)} of {len(cases)} cases in {seconds} s: {failures} failures")
    if options.output is not None:
        _write(options, summaries, seconds)
    sys.exit(1 if failures else 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=1800, help="stop after this time")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reader", action="append", help="run only this reader; may be repeated")
    parser.add_argument("--case", type=int, help="run only this case of each reader")
    parser.add_argument("--output", type=Path, help="folder for the results, as JSON")
    parser.add_argument(
        "--keep", type=Path, default=Path("build/fuzz"), help="folder for the files of failures"
    )
    return parser.parse_args()


def _line(outcome: Outcome) -> str:
    place = f"{outcome.reader} --seed {outcome.seed} --case {outcome.number}"
    error = " ".join(outcome.stderr.split())[-300:]
    return f"{place}: {outcome.mutation}: {outcome.failure or 'as it should be'} [{error!r}]"


def _write(options: argparse.Namespace, summaries: Mapping[str, Summary], seconds: int) -> None:
    """Write the result for docs/reliability.md, and the figures of the readers that ran."""
    os.environ[VARIABLE] = str(options.output)
    cases = sum(summary.cases for summary in summaries.values())
    failures = sum(len(summary.failures) for summary in summaries.values())
    named = "".join(f"--reader {name} " for name in options.reader or ())
    command = (
        f"python -m tests.fuzz {named}--cases {options.cases} --seconds {options.seconds:g} "
        f"--jobs {options.jobs} --seed {options.seed} --output {options.output}"
    )
    measured = f"{seconds} s"
    record("fuzz", cases=cases, failures=failures, measured=measured, command=command)
    path = options.output / READERS
    readers = json.loads(path.read_text()) if path.exists() else {}
    readers |= {name: summary.figures() for name, summary in summaries.items()}
    path.write_text(json.dumps(dict(sorted(readers.items())), indent=1) + "\n")
    path = options.output / CHECKS
    checks = json.loads(path.read_text()) if path.exists() else {}
    checks |= {name: dict(summary.checks.most_common()) for name, summary in summaries.items()}
    path.write_text(json.dumps(dict(sorted(checks.items())), indent=1) + "\n")


if __name__ == "__main__":
    main()
