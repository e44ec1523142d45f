"""Exports to OpenVINO and CTranslate2 with recomputed digests, as an attacker would write them."""

import json
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from tests.fuzz.octets import BYTES, LENGTHS, Mutate, change_line
from tests.fuzz.reader import Reader, by_suffix
from tests.fuzz.readers.examples import zoo
from tests.fuzz.readers.models import MODEL, TEXT, make_model, same_vector, seal

EXPORT = "exported-model"
NAMES = (
    "../../escape",
    "/dev/zero",
    "f16",
    "i64",
    "string",
    "opset1",
    "Parameter",
    "Loop",
)  # in an IR


class RuntimeExport(Reader):
    """A directory of an export; a text is embedded by its runtime."""

    also_named = (EXPORT, "text 1")  # the text whose embedding is not finite
    target: ClassVar[str]
    unusual = False

    def make(self, folder: Path) -> None:
        made = folder / "made"
        make_model(made)
        export = ["export", MODEL, "--to", self.target, "--unverified", "-o", EXPORT]
        zoo(made, export)
        (folder / "scene").mkdir()
        shutil.move(made / EXPORT, folder / "scene" / EXPORT)
        shutil.rmtree(made)
        (folder / "sound.json").write_text(zoo(folder / "scene", self.commands(Random(0))[0]))
        shutil.copytree(folder / "scene" / EXPORT, folder / "sound")

    def seal(self, folder: Path) -> None:
        seal(folder / EXPORT)

    def commands(self, random: Random) -> list[list[str]]:
        return [["run", "embed", EXPORT, TEXT]]

    def check(self, folder: Path) -> str:
        """Compare the vector with the sound one, if the files say the same."""
        sound = folder.parent / "sound"
        for path in sorted(sound.rglob("*")):
            other = folder / EXPORT / path.relative_to(sound)
            if path.is_file() and path.name != "zoo.json" and not same_content(path, other):
                return ""
        printed, expected = (folder.parent / name for name in ("out", "sound.json"))
        return same_vector(printed.read_text(), expected.read_text())


def same_content(path: Path, other: Path) -> bool:
    """Return whether two files hold the same bytes, or the same JSON."""
    if path.suffix != ".json" or path.read_bytes() == other.read_bytes():
        return path.read_bytes() == other.read_bytes()
    try:
        return bool(json.loads(path.read_bytes()) == json.loads(other.read_bytes()))
    except (ValueError, RecursionError):  # a setting that the runtime does not read
        return False


class OpenVino(RuntimeExport):
    name = "openvino"
    target = "openvino"
    targets: Sequence[str] = (
        *[f"{EXPORT}/openvino/openvino_model.xml"] * 4,
        f"{EXPORT}/openvino/openvino_model.bin",
        f"{EXPORT}/config.json",
    )

    def mutations(self, path: Path) -> Sequence[Mutate]:
        if path.suffix == ".xml":
            return (*BYTES, *[change_line] * 4, *[xml_mutation] * (3 * len(BYTES)))
        return by_suffix(path)


class CTranslate2(RuntimeExport):
    name = "ctranslate2"
    target = "ctranslate2"
    targets: Sequence[str] = (
        *[f"{EXPORT}/ctranslate2/model.bin"] * 3,
        f"{EXPORT}/ctranslate2/config.json",
        f"{EXPORT}/ctranslate2/vocabulary.json",
        f"{EXPORT}/config.json",
    )

    def mutations(self, path: Path) -> Sequence[Mutate]:
        if path.suffix == ".bin":
            return (*BYTES, *[variables_mutation] * (3 * len(BYTES)))
        return by_suffix(path)


def xml_mutation(data: bytes, random: Random) -> bytes:
    """Change an attribute or a text of an IR, or remove, repeat or move an element."""
    from xml.etree import ElementTree

    root = ElementTree.fromstring(data)
    parents = [element for element in root.iter() if len(element)]
    element = random.choice(list(root.iter()))
    parent = random.choice(parents)
    change = random.randrange(8)
    numbers = ("0", "-1", "1", "3.5", "x", "", "1000000", str(2**31), str(2**62), str(10**30))
    if change <= 3 and element.attrib:
        name = random.choice(list(element.attrib))
        element.set(name, random.choice((*numbers, *NAMES)))
    elif change <= 4:
        element.text = random.choice(numbers)
    elif change == 5:
        parent.remove(random.choice(list(parent)))
    elif change == 6:
        parent.append(random.choice(list(parent)))
    else:
        children = list(parent)
        random.shuffle(children)
        parent[:] = children
    return ElementTree.tostring(root)


def variables_mutation(data: bytes, random: Random) -> bytes:
    """Change one part of a model of CTranslate2: its specification, a variable or an alias."""
    head, variables, tail = parse_variables(data)
    at = random.randrange(len(variables))
    name, shape, kind, content = variables[at]
    change = random.randrange(8)
    if change == 0:
        del variables[at]
    elif change == 1:
        variables.insert(random.randrange(len(variables)), variables[at])
    elif change == 2:
        other = random.choice(variables)[0]
        variables[at] = (
            random.choice((other, b"x", b"", b"a" * 60_000, b"\xff")),
            shape,
            kind,
            content,
        )
    elif change == 3 and shape:
        sizes = list(shape)
        sizes[random.randrange(len(sizes))] = random.choice((0, 1, 33, *LENGTHS)) % 2**32
        variables[at] = (name, tuple(sizes), kind, content)
    elif change == 4:
        shapes: Any = ((), shape[::-1], (*shape, 1), (1,) * 200)
        variables[at] = (name, random.choice(shapes), kind, content)
    elif change == 5:
        variables[at] = (name, shape, random.choice((0, 1, 2, 3, 4, 5, 6, 255)), content)
    elif change == 6:
        variables[at] = (name, shape, kind, random.choice((b"", content[:-1], content * 2)))
    else:
        place = random.randrange(len(head))
        head = (
            head[:place]
            + random.choice((b"\0", b"\1", b"\7", b"\x7f", b"\xff"))
            + head[place + 1 :]
        )
    return head + dump_variables(variables) + tail


Variable = tuple[bytes, tuple[int, ...], int, bytes]


def parse_variables(data: bytes) -> tuple[bytes, list[Variable], bytes]:
    """Return what precedes the variables of a model, the variables, and what follows them."""
    # of the layout that CTranslate2's converters write: version, name and revision of the
    # specification, and for each variable its name, shape, type and bytes
    at = 4
    (length,) = struct.unpack_from("<H", data, at)
    at += 2 + length + 4
    head = data[:at]
    (count,) = struct.unpack_from("<I", data, at)
    at += 4
    variables = []
    for _ in range(count):
        (length,) = struct.unpack_from("<H", data, at)
        name = data[at + 2 : at + 1 + length]
        at += 2 + length
        axes = data[at]
        shape = struct.unpack_from(f"<{axes}I", data, at + 1)
        at += 1 + 4 * axes
        kind, size = struct.unpack_from("<BI", data, at)
        at += 5
        variables.append((name, shape, kind, data[at : at + size]))
        at += size
    return head, variables, data[at:]


def dump_variables(variables: Sequence[Variable]) -> bytes:
    parts = [struct.pack("<I", len(variables))]
    for name, shape, kind, content in variables:
        parts.append(struct.pack("<H", len(name) + 1) + name + b"\0")
        parts.append(struct.pack(f"<B{len(shape)}I", len(shape), *shape))
        parts.append(struct.pack("<BI", kind, len(content)) + content)
    return b"".join(parts)


READERS = (OpenVino(), CTranslate2())
