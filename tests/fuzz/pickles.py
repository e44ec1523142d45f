"""Mutations of ``.bin`` files: of instructions of the pickle, in a valid archive."""

import io
import pickletools
import warnings
import zipfile
from random import Random

from tests.fuzz.octets import BYTES

INSTRUCTIONS = (
    b"(",
    b"}",
    b"]",
    b")",
    b"N",
    b"0",
    b"1",
    b"2",
    b"R",
    b"Q",
    b"b",
    b"s",
    b"u",
    b"a",
    b"e",
    b"t",
    b"\x85",
    b"\x86",
    b"\x88",
    b"h\x00",
    b"q\x00",
    b"j\xff\xff\xff\x7f",
    b"r\xff\xff\xff\x7f",
    b"\x8a\xff" + b"\x7f" * 255,
    b"\x8b\xff\xff\xff\x7f",
    b"X\xff\xff\xff\xff",
    b"K\xff",
    b"J\xff\xff\xff\xff",
    b"G\x7f\xf0\x00\x00\x00\x00\x00\x00",
    b"cos\nsystem\n",
    b"cbuiltins\neval\n",
    b"ctorch\nFloatStorage\n",
    b"ctorch._utils\n_rebuild_tensor_v2\n",
    b"ccollections\nOrderedDict\n",
    b"\x93",
    b"\x95\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"i__main__\nX\n",
    b"(" * 5000,
    b"]" * 5000,
    b"}" * 20_000,
)


def pickle_mutation(data: bytes, random: Random) -> bytes:
    """Remove, repeat, swap, insert or change instructions of a pickle."""
    parts = _instructions(data)
    if len(parts) < 3:
        return random.choice(BYTES)(data, random)
    for _ in range(random.choice((1, 1, 2, 4))):
        at, other = (random.randrange(1, len(parts)) for _ in range(2))
        change = random.randrange(5)
        if change == 0:
            del parts[at]
        elif change == 1:
            parts[at:at] = parts[at : at + random.choice((1, 3, 10))] * random.choice((1, 2, 50))
        elif change == 2:
            parts[at], parts[other] = parts[other], parts[at]
        elif change == 3:
            parts.insert(at, random.choice(INSTRUCTIONS))
        elif len(parts[at]) > 1:
            parts[at] = parts[at][:1] + random.choice(BYTES)(parts[at][1:], random)
        if len(parts) < 3:
            break
    return b"".join(parts)


def archive_mutation(data: bytes, random: Random) -> bytes:
    """Mutate the records of an archive, with correct checksums and lengths."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    at = random.randrange(len(members))
    if random.random() < 0.6:
        at = next(n for n, (name, _) in enumerate(members) if name.endswith("data.pkl"))
    name, content = members[at]
    change = random.randrange(10)
    if change == 0:
        del members[at]
    elif change == 1:
        members.append((name, content))
    elif change == 2:
        members[at] = (random.choice(("x", "../escape", "/a/b", f"{name}\x1b", "")), content)
    elif name.endswith("data.pkl"):
        members[at] = (name, pickle_mutation(content, random))
    else:
        members[at] = (name, random.choice(BYTES)(content or b"\0", random))
    compression = zipfile.ZIP_DEFLATED if random.random() < 0.05 else zipfile.ZIP_STORED
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w", compression) as archive:
        warnings.simplefilter("ignore")  # names may be duplicates
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name or "x"), content)
    return file.getvalue()


def stream_mutation(data: bytes, random: Random) -> bytes:
    """Mutate one of the five pickles of the format before torch 1.6."""
    stream = io.BytesIO(data)
    ends = [0]
    for _ in range(5):
        for _ in pickletools.genops(stream):
            pass
        ends.append(stream.tell())
    number = random.choice((0, 1, 2, 3, 3, 3, 3, 4))
    start, end = ends[number : number + 2]
    return data[:start] + pickle_mutation(data[start:end], random) + data[end:]


def _instructions(data: bytes) -> list[bytes]:
    positions = [at for _, _, at in pickletools.genops(data) if at is not None]
    return [data[a:b] for a, b in zip(positions, [*positions[1:], len(data)], strict=True)]
