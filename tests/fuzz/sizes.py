"""``python -m tests.fuzz.sizes``: bytes in, memory and seconds out, for each reader.

Two kinds of hostile files are read by the commands of each reader. Files that *declare* much are
small: one number of theirs, such as a rank or a length, is replaced by a large one. Files that
*hold* much are grown to some 20 MB, mostly of what their reader lists or skips.
"""

import argparse
import contextlib
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.campaign import prepared
from tests.fuzz.case import RESIDENT, Runner
from tests.fuzz.gguf_headers import header_mutation as gguf_mutation
from tests.fuzz.octets import lie_about_length
from tests.fuzz.reader import Reader
from tests.fuzz.readers import all_readers
from tests.fuzz.records import message_mutation
from tests.fuzz.trees import Pairs, Raw, dump, parse

DECLARED = (10**6, 2**24 - 2, 2**62, 10**30)
GROWN = 20 << 20  # bytes
VARIANTS = 12  # numbers that are replaced in a file, one in each variant
JSON = (".json", ".yaml", ".lock", ".metadata", ".index")
Change = Callable[[bytes], bytes]


@dataclass(frozen=True)
class Measured:
    """The variant of a reader's files that takes the most memory.

    Attributes:
        file: the file that was changed.
        size: bytes of the file.
        peak: resident memory of the commands in bytes, in addition to an idle process's.
        seconds: most CPU time of any variant.
        failure: what a variant did that no reader may do, or empty.
    """

    file: str
    size: int
    peak: int
    seconds: float
    failure: str = ""


def measure(runner: Runner, reader: Reader, kind: str) -> Measured | None:
    """Run the commands of a reader on all variants of its files; ``None`` if it has none."""
    worst: Measured | None = None
    for variety in reader.kinds or ("",):
        folder = example_of(runner, reader, variety)
        for name in target_files(reader, folder / "scene"):
            for change in list(variants(folder / "scene" / name, kind)):
                measured = one(runner, reader, variety, name, change)
                if worst is not None:
                    seconds = max(worst.seconds, measured.seconds)
                    failure = worst.failure or measured.failure
                    larger = measured if measured.peak > worst.peak else worst
                    measured = Measured(larger.file, larger.size, larger.peak, seconds, failure)
                worst = measured
    return worst


def example_of(runner: Runner, reader: Reader, variety: str) -> Path:
    """Return a copy of the valid example of a reader, of one of its kinds of files."""
    folder = runner.scratch / "case"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(runner.examples / reader.name, folder, symlinks=True)
    if variety:
        reader.choose(folder / "scene", variety)
    return folder


def one(runner: Runner, reader: Reader, variety: str, name: str, change: Change) -> Measured:
    folder = example_of(runner, reader, variety)
    path = folder / "scene" / name
    path.write_bytes(change(path.read_bytes()))
    size = path.stat().st_size
    with contextlib.suppress(Exception):  # the changed manifest may be unreadable
        reader.seal(folder / "scene")
    done = runner.execute(reader, folder, reader.commands(Random(0)))
    # That values differ is a matter for the fuzzer, which knows which files of the example count.
    failure = done.failure if done.code or done.peak > RESIDENT else ""
    return Measured(path.name, size, done.peak, done.seconds, failure)


def target_files(reader: Reader, scene: Path) -> list[str]:
    """Return one file for each pattern of a reader's targets."""
    names = dict[str, None]()
    for pattern in dict.fromkeys(reader.targets):
        for start in (scene, *sorted(path for path in scene.iterdir() if path.is_dir())):
            files = sorted(path for path in start.glob(pattern) if path.is_file())
            if files:
                names[str(files[0].relative_to(scene))] = None
                break
    return list(names)


def variants(path: Path, kind: str) -> Iterator[Change]:
    if kind == "grown":
        yield lambda data: grown(path, data)
        return
    data = path.read_bytes()
    if path.suffix in JSON or path.name.endswith(".jsonl"):
        count = data.count(b"\n") if path.name.endswith(".jsonl") else number_of_integers(data)
        step = max(1, count // VARIANTS)
        for variant, place in enumerate(range(0, count, step)):
            number = DECLARED[variant % len(DECLARED)]
            yield lambda data, place=place, number=number: declare(data, place, number)  # type: ignore[misc]
        return
    mutation = {".gguf": gguf_mutation, ".model": message_mutation}.get(
        path.suffix, lie_about_length
    )
    for seed in range(VARIANTS):
        yield lambda data, seed=seed: mutation(data, Random(seed))  # type: ignore[misc]


def number_of_integers(data: bytes) -> int:
    try:
        return sum(1 for _ in integers(parse(data)))
    except ValueError:
        return 0


def integers(value: Any) -> Iterator[tuple[list[Any], int]]:
    """Yield the places of all integers of a tree."""
    if not isinstance(value, list):
        return
    for place, item in enumerate(value):
        content = item[1] if isinstance(value, Pairs) else item
        if isinstance(content, int) and not isinstance(content, bool):
            yield value, place
        yield from integers(content)


def declare(data: bytes, place: int, number: int) -> bytes:
    """Replace an integer of a tree, or of the first line of several."""
    first, newline, following = data.partition(b"\n") if data[-1:] == b"\n" else (data, b"", b"")
    try:
        tree = parse(data)
        newline = following = b""
    except ValueError:
        tree = parse(first)
    places = list(integers(tree))
    if places:
        container, index = places[place % len(places)]
        pair = isinstance(container, Pairs)
        container[index] = (container[index][0], number) if pair else number
    return dump(tree).encode() + newline + following


def grown(path: Path, data: bytes) -> bytes:
    """Return a file of some 20 MB."""
    if path.suffix == ".safetensors":
        length = int.from_bytes(data[:8], "little")
        header = parse(data[8 : 8 + length])
        empty = Pairs([("dtype", "F32"), ("shape", [0]), ("data_offsets", [0, 0])])
        header += [(f"tensor{number:05d}", empty) for number in range(90_000)]
        text = dump(header).encode()
        return len(text).to_bytes(8, "little") + text + data[8 + length :]
    if path.suffix in JSON:
        with contextlib.suppress(ValueError):
            tree = parse(data)
            if isinstance(tree, Pairs):
                zeros = Raw("[" + "0," * (GROWN // 2) + "0]")
                return dump(Pairs([*tree, ("grown", zeros)])).encode()
            item = dump(tree[-1])
            return dump([*tree, Raw(",".join([item] * (GROWN // (len(item) + 1))))]).encode()
    if b"\n" in data and path.suffix not in (".bin", ".model", ".gguf", ".parquet"):
        body = data if data.endswith(b"\n") else data + b"\n"
        return body * (GROWN // len(body))
    return data + bytes(GROWN)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.sizes", description=__doc__)
    parser.add_argument("--reader", action="append", help="only this reader; may be repeated")
    parser.add_argument("-o", "--output", type=Path, help="file for the results, as JSON")
    options = parser.parse_args()
    readers = all_readers()
    names = options.reader or list(readers)
    results = dict[str, Any]()
    if options.output is not None and options.output.exists():
        results = json.loads(options.output.read_text("utf-8"))
    failures = 0
    for name in names:
        with prepared([readers[name]], None) as runner:
            measured = {
                kind: measure(runner, readers[name], kind) for kind in ("declared", "grown")
            }
        results[name] = {kind: asdict(item) for kind, item in measured.items() if item is not None}
        for item in measured.values():
            if item is not None and item.failure and not readers[name].computes:
                failures += 1
        print(name, json.dumps(results[name]), flush=True)
        if options.output is not None:
            text = json.dumps(dict(sorted(results.items())), indent=1) + "\n"
            options.output.write_text(text, "utf-8")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
