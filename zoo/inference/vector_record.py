"""Record of what made the vectors of a file, which a search compares with its model."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.errors import UsageError
from zoo.io.digests.self_digest import NO_DIGEST, add_digest, parse_record
from zoo.io.files import read_regular
from zoo.io.json import JsonStruct, encode_json
from zoo.io.limits import MAX_JSON_BYTES
from zoo.io.output.vectors import record_of
from zoo.version import __version__

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint

BEGIN_AGAIN = "embed the texts again"


class VectorRecord(JsonStruct):
    """What made the vectors of a file."""

    zoo: int  # version of the format
    created_by: str
    model: str  # name of the model, for messages
    model_digest: str  # see ``model_digest``
    prompt: str  # text before each text
    pooling: list[str]  # types of the modules after the backbone
    similarity: str  # function that compares the vectors
    dimension: int
    normalized: bool  # whether the vectors have unit length
    dtype: str  # float32, float16, int8 or binary
    rows: int
    digest: str

    def encode(self) -> bytes:
        """Return the record as JSON, with its digest."""
        return add_digest(encode_json(self))


def model_digest(checkpoint: "Checkpoint") -> str:
    """Return a digest of what a model computes; two conversions of one model have the same."""
    from blake3 import blake3

    return blake3(checkpoint.file_digests).hexdigest()


def make_record(checkpoint: "Checkpoint", **values: Any) -> VectorRecord:
    """Return the record of vectors of a model; ``values`` are its other fields."""
    return VectorRecord(
        zoo=1,
        created_by=__version__,
        model=checkpoint.name,
        model_digest=model_digest(checkpoint),
        digest=NO_DIGEST,
        **values,
    )


def read_record(path: Path) -> VectorRecord | None:
    """Return the record of an array, which is next to it; ``None`` if there is none."""
    file = record_of(path)
    if not file.is_file():
        return None
    return parse_vector_record(read_regular(file, "record", MAX_JSON_BYTES), file)


def parse_vector_record(content: bytes, path: Path) -> VectorRecord:
    """Return a record from the JSON of a file."""
    return parse_record(content, path, VectorRecord, hint=BEGIN_AGAIN)


def require_same_model(path: Path, record: VectorRecord, checkpoint: "Checkpoint") -> None:
    """Check that a model made the vectors of a file."""
    if record.model_digest != model_digest(checkpoint):
        raise UsageError(
            f"{path}: the vectors are from {record.model}, {record.model_digest[:12]}, and "
            f"{checkpoint.name} is {model_digest(checkpoint)[:12]}",
            f"search with the model that embedded the texts, or {BEGIN_AGAIN}",
        )


def require_same_prompt(path: Path, record: VectorRecord, prompt: str) -> None:
    """Check that the texts of vectors had the prompt that a search expects."""
    if record.prompt != prompt:
        raise UsageError(
            f"{path}: the prompt of the texts is {record.prompt!r}, and the search expects "
            f"{prompt!r}",
            f"give --corpus-prompt-text {record.prompt!r}, or {BEGIN_AGAIN} with the other prompt",
        )
