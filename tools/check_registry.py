"""Convert and verify every checkpoint of the registry, and print the results as a table.

usage: python -m tools.check_registry [NAME ...] [--folder DIR] [--results FILE] [--keep]

For each name, ``zoo convert`` downloads the checkpoint and accounts for its tensors, and ``zoo
verify`` compares its outputs with transformers if that is installed. The number of parameters is
compared with the registry's. Results are appended to a file of JSON lines, and a name that is in
it is not repeated, so that an interrupted check continues. Models are removed once they are
verified; downloads stay in the cache of huggingface_hub. The exit code is 3 if a check failed.
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

COLUMNS = ("name", "commit", "parameters", "mapping", "transformers", "seconds", "result")
Row = dict[str, Any]


def main(arguments: list[str] | None = None) -> int:
    """Check the names that have no result yet, and print all results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="names of the registry; all without any")
    parser.add_argument("--folder", type=Path, default=Path("registry-check"))
    parser.add_argument("--results", type=Path, help="default: FOLDER/results.jsonl")
    parser.add_argument("--keep", action="store_true", help="keep the converted models")
    given = parser.parse_args(arguments)

    from zoo.hub.registry import entries

    registry = entries(plugins=False)
    unknown = sorted(set(given.names) - registry.keys())
    if unknown:
        parser.error(f"not in the registry: {', '.join(unknown)}")
    names = given.names or [name for name, entry in registry.items() if entry.repo]
    results = given.results or given.folder / "results.jsonl"
    given.folder.mkdir(parents=True, exist_ok=True)
    rows = {row["name"]: row for row in read_rows(results)}
    for name in names:
        if name in rows:
            continue
        rows[name] = check(name, registry[name].parameters, given.folder / name, keep=given.keep)
        with results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(rows[name]) + "\n")
        print(f"{name}: {rows[name]['result']}", file=sys.stderr, flush=True)
    chosen = [rows[name] for name in names]
    print(table(chosen))
    return 0 if {row["result"] for row in chosen} <= {"ok"} else 3


def read_rows(path: Path) -> list[Row]:
    """Return the results of an earlier check; a line that was cut off is ignored."""
    lines = path.read_text("utf-8").splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def check(name: str, parameters: int | None, model: Path, *, keep: bool) -> Row:
    """Convert and verify one checkpoint, and return its row of the table."""
    begin = time.perf_counter()
    row: Row = dict.fromkeys(COLUMNS, "") | {"name": name}
    code, done = zoo("convert", name, "-o", str(model), "--force")
    if code == 0:
        row |= {"commit": commit_of(model), "parameters": done["parameters"], "mapping": "ok"}
        code, verified = zoo("verify", str(model))
        outcomes = {part["name"]: part["outcome"] for part in verified.get("checks", [])}
        row["transformers"] = outcomes.get("transformers", "")
        done = verified
    counted = row["parameters"]
    if code != 0:
        row["result"] = f"exit {code}: {done.get('error', 'see zoo verify')}"
    elif parameters is not None and counted != parameters:
        row["result"] = f"the registry has {parameters:,} parameters"
    else:
        row["result"] = "ok"
    row["seconds"] = round(time.perf_counter() - begin, 1)
    if not keep:
        shutil.rmtree(model, ignore_errors=True)
    return row


def zoo(*arguments: str) -> tuple[int, Row]:
    """Run a command, and return its exit code and its JSON object."""
    command = [sys.executable, "-m", "zoo", *arguments, "--json", "--quiet"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    try:
        return done.returncode, json.loads(done.stdout)
    except ValueError:
        return done.returncode, {"error": done.stdout.strip()[-200:] or "no output"}


def commit_of(model: Path) -> str:
    """Return the first characters of the commit that a model was converted from."""
    manifest = json.loads((model / "zoo.json").read_text("utf-8"))
    return str(manifest["source"].get("revision") or "")[:12]


def table(rows: list[Row]) -> str:
    """Return the results in Markdown."""
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{' --- |' * len(COLUMNS)}"]
    for row in rows:
        cells = [f"{v:,}" if isinstance(v, int) else str(v) for v in (row[c] for c in COLUMNS)]
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
