"""Handmade ``.bin`` files: pickles assembled from instructions, and archives."""

import io
import zipfile
from collections.abc import Mapping

from zoo_converters.torch_file import MAGIC, PROTOCOL

ORDERED = b"ccollections\nOrderedDict\n)R"
FLOATS = bytes(range(24))  # the storage "0": six floats


def text(value: str) -> bytes:
    raw = value.encode()
    return b"X" + len(raw).to_bytes(4, "little") + raw


def number(value: int) -> bytes:
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def numbers(values: tuple[int, ...]) -> bytes:
    return b"(" + b"".join(map(number, values)) + b"t"


def storage(
    key: str = "0", kind: str = "torch\nFloatStorage", count: int = 6, view: bytes = b""
) -> bytes:
    """Return the instructions of a storage; in a stream, the last item is ``N`` (no view)."""
    reference = text("storage") + f"c{kind}\n".encode() + text(key) + text("cpu") + number(count)
    return b"(" + reference + view + b"tQ"


def tensor(
    of: bytes | None = None,
    *,
    offset: int = 0,
    shape: tuple[int, ...] = (2, 3),
    strides: tuple[int, ...] = (3, 1),
    rest: bytes = b"\x89" + ORDERED,
    function: str = "torch._utils\n_rebuild_tensor_v2",
) -> bytes:
    layout = number(offset) + numbers(shape) + numbers(strides)
    return f"c{function}\n(".encode() + (of or storage()) + layout + rest + b"tR"


def dictionary(entries: Mapping[str, bytes]) -> bytes:
    return b"}(" + b"".join(text(key) + value for key, value in entries.items()) + b"u"


def pickled(value: bytes) -> bytes:
    return b"\x80\x02" + value + b"."


def zipped(pickle: bytes, records: Mapping[str, bytes] | None = None) -> bytes:
    """Return an archive in the format of ``torch.save``, of a pickle and storages."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickle)
        for name, data in ({"data/0": FLOATS} if records is None else records).items():
            archive.writestr(f"archive/{name}", data)
        archive.writestr("archive/version", b"3\n")
    return file.getvalue()


def streamed(pickle: bytes, storages: Mapping[str, bytes] | None = None, width: int = 4) -> bytes:
    """Return a file in the format before torch 1.6: five pickles, then the storages."""
    if storages is None:
        storages = {"0": FLOATS}
    machine = dictionary({"protocol_version": number(PROTOCOL), "little_endian": b"\x88"})
    keys = b"](" + b"".join(map(text, storages)) + b"e"
    head = [pickled(number(MAGIC)), pickled(number(PROTOCOL)), pickled(machine)]
    data = [(len(d) // width).to_bytes(8, "little") + d for d in storages.values()]
    return b"".join([*head, pickle, pickled(keys), *data])
