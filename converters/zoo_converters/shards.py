"""Sharded checkpoints: selection of files, and comparison of the index with the shards."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from zoo.errors import VerificationError
from zoo.io.json import read_json_object
from zoo.io.limits import MAX_INDEX_BYTES, MAX_TENSORS
from zoo.io.paths import safe_join
from zoo.io.sizes import check_size


def choose(names: Sequence[str], stem: str, suffix: str) -> tuple[str, ...]:
    """Return a single file, or an index and its shards, among file names."""
    # A single file has precedence over shards, as in transformers, so that a directory has the same
    # weights in both
    if f"{stem}.{suffix}" in names:
        return (f"{stem}.{suffix}",)
    index = f"{stem}.{suffix}.index.json"
    shards = [name for name in names if name.startswith(f"{stem}-") and is_shard(name, suffix)]
    return tuple([index] * (index in names) + sorted(shards))


def is_shard(name: str, suffix: str) -> bool:
    """Return ``True`` if a file name ends like ``-00001-of-00002.safetensors``."""
    before, _, count = name.removesuffix(f".{suffix}").rpartition("-of-")
    numbered = before.rpartition("-")[2].isdigit() and count.isdigit()
    return numbered and name.endswith(f".{suffix}") and "/" not in name


@dataclass(frozen=True)
class Index:
    """Contents of an index file."""

    path: Path
    shards: Mapping[str, Path]  # tensor name -> name of the shard

    @property
    def files(self) -> list[Path]:
        """Paths of the shards, sorted, without duplicates."""
        return sorted(set(self.shards.values()))

    def check_files(self, present: Collection[Path]) -> None:
        """Check that all shards of the index exist, and no others."""
        for path in self.files:
            if not path.is_file():
                raise VerificationError(
                    f"{path} is missing, {self.path.name} names it", "fetch the checkpoint again"
                )
        for path in sorted(set(present) - set(self.files)):
            raise VerificationError(
                f"{path} lies next to {self.path.name}, which does not list it",
                "remove it if it is of another checkpoint",
            )

    def check_tensors(self, held: Mapping[Path, Collection[str]]) -> None:
        """Check that each shard holds exactly the tensors that the index lists."""
        for name, path in self.shards.items():
            if name not in held[path]:
                raise VerificationError(
                    f"{path} does not hold {name}, but {self.path.name} lists it",
                    "fetch both again",
                )
        for path, names in held.items():
            for name in names:
                if self.shards.get(name) != path:
                    raise VerificationError(
                        f"{path} holds {name}, but {self.path.name} does not list it",
                        "fetch both again",
                    )


def read_index(path: Path) -> Index:
    """Read an index file."""
    index = read_json_object(path, max_bytes=MAX_INDEX_BYTES)
    shards = index.get("weight_map")
    if (
        not isinstance(shards, dict)
        or not shards
        or not all(type(name) is str for name in shards.values())
    ):
        raise VerificationError(f"{path} has no weight_map of tensors to files", "fetch it again")
    check_size(path, "number of tensors", len(shards), MAX_TENSORS)
    files = {name: safe_join(path.parent, name, path.name) for name in set(shards.values())}
    return Index(path, {tensor: files[name] for tensor, name in shards.items()})


def open_index(directory: Path, names: Sequence[str]) -> Index | None:
    """Return the checked index among the file names that ``choose`` returned, or ``None``."""
    if not names[0].endswith(".index.json"):
        if is_shard(names[0], names[0].rpartition(".")[2]):
            raise VerificationError(
                f"{directory / names[0]} is one shard of several, and their index is missing",
                "fetch the checkpoint again",
            )
        return None
    index = read_index(directory / names[0])
    index.check_files([directory / name for name in names[1:]])
    return index
