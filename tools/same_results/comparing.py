"""The comparison of two records."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

SHOWN = 300  # characters of a value


def read(file: Path) -> Any:
    """Return the record of a file."""
    return json.loads(file.read_text("utf-8"))


def differences(old: Any, new: Any, path: str) -> Iterator[str]:
    """Yield a line for each value that differs between two results."""
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted(old.keys() | new.keys()):
            yield from differences(old.get(name), new.get(name), f"{path} / {name}")
    elif isinstance(old, list) and isinstance(new, list) and are_names(old) and are_names(new):
        yield from (f"{path}: without {name}" for name in old if name not in new)
        yield from (f"{path}: with {name}" for name in new if name not in old)
    else:
        yield f"{path}: {shown(old)} -> {shown(new)}"


def are_names(values: Sequence[Any]) -> bool:
    return len(values) > 2 and all(isinstance(value, str) for value in values)


def shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)[:SHOWN]


def compare(old: Any, new: Any, only: Sequence[str] | None = None) -> int:
    """Print the results that differ in parts that both records have; return their number."""
    if old["environment"] != new["environment"]:
        print("The environments differ, so sums may be rounded differently:")
        print("\n".join(differences(old["environment"], new["environment"], "environment")))
    number = results = 0
    for part in sorted(old["parts"].keys() | new["parts"].keys()):
        if only and part not in only:
            continue
        if part not in old["parts"] or part not in new["parts"]:
            print(f"{part}: only one record has this part")
            continue
        first = old["parts"][part]
        second = new["parts"][part]
        for key in sorted(first.keys() | second.keys()):
            results += 1
            lines = list(differences(first.get(key), second.get(key), f"{part}: {key}"))
            number += bool(lines)
            print("\n".join(lines), end="\n" if lines else "")
    print(f"{old['commit']} and {new['commit']}: {results} results, {number} of them differ")
    return number
