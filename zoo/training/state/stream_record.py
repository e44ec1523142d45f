"""The stream of a run, in its manifest."""

from zoo.io.json import JsonStruct


class ShardRecord(JsonStruct):
    """A shard of a stream, in the manifest of a run."""

    name: str
    bytes: int
    modified: int  # Time of the last modification, in nanoseconds.
    blake3: str = ""  # Digest of its content; empty in large streams, which are not hashed.


class StreamRecord(JsonStruct):
    """The stream of a run, in its manifest."""

    lanes: int
    shards: list[ShardRecord]
