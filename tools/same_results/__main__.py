"""The commands ``collect`` and ``compare``."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import tools.same_results
from tools.same_results.collecting import PARTS, RESUMED, collect, installed_commit
from tools.same_results.comparing import compare, read
from tools.same_results.environment import CommandError
from tools.same_results.records import refusals


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.same_results",
        description=tools.same_results.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    collecting = commands.add_parser("collect", help="record what an installed version computes")
    collecting.add_argument("python", help="interpreter of its environment")
    collecting.add_argument("output", type=Path, help="file of the record")
    collecting.add_argument(
        "--only", action="append", choices=[*PARTS, RESUMED], help="part; may be repeated"
    )
    collecting.add_argument("--jobs", type=int, default=1, help="number of parts at a time")
    collecting.add_argument("--runs", type=Path, help="new directory that keeps all runs")
    collecting.add_argument("--resume", type=Path, help="directory of another version's runs")
    comparing = commands.add_parser("compare", help="list what differs between two records")
    comparing.add_argument("files", type=Path, nargs=2)
    comparing.add_argument("--only", action="append", help="part; may be repeated")
    options = parser.parse_args()
    if options.command == "compare":
        old, new = map(read, options.files)
        return min(compare(old, new, options.only), 1)
    if options.only and options.output.exists():
        stored_commit = read(options.output)["commit"]
        commit = installed_commit(options.python)
        if stored_commit != commit:
            raise SystemExit(
                f"same_results: {options.output} is of commit {stored_commit}, not {commit}"
            )
    names = [name for name in options.only or PARTS if name != RESUMED]
    try:
        record = collect(
            options.python, names, jobs=options.jobs, runs=options.runs, resume=options.resume
        )
    except CommandError as error:
        raise SystemExit(f"same_results: {error}") from error
    if options.only and options.output.exists():
        record = updated(read(options.output), record)
    write(record, options.output)
    refused = refusals(record["parts"])
    for part, keys in refused.items():
        print(f"{part}: {len(keys)} commands were refused: {', '.join(keys)}")
    for part, reason in record["failed"].items():
        print(f"{part} ended early: {reason}")
    return int(bool(record["failed"]))


def updated(record: Any, newer: Any) -> Any:
    """Return a record with the parts of a newer one of the same commit."""
    for name in ("commit", "environment"):
        if record[name] != newer[name]:
            raise SystemExit(f"same_results: the record has another {name}: {record[name]}")
    failed = {part: why for part, why in record["failed"].items() if part not in newer["parts"]}
    parts = {**record["parts"], **newer["parts"]}
    return {**newer, "parts": parts, "failed": {**failed, **newer["failed"]}}


def write(record: Any, file: Path) -> None:
    """Write a record with a line for each result, so that differences are read in a diff."""
    head = {name: value for name, value in record.items() if name != "parts"}
    lines = json.dumps(head, indent=1, sort_keys=True).removesuffix("\n}")
    parts = []
    for part, results in sorted(record["parts"].items()):
        rows = [f"{json.dumps(key)}: {compact(value)}" for key, value in sorted(results.items())]
        parts.append(f"{json.dumps(part)}: {{\n" + ",\n".join(rows) + "\n}")
    file.write_text(lines + ',\n "parts": {\n' + ",\n".join(parts) + "\n}}\n")


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)


if __name__ == "__main__":
    sys.exit(main())
