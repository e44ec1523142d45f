"""Checkpoints in several files: which belong to one, and the index checked both ways."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from zoo.errors import VerificationError
from zoo.io.json import read_json_object
from zoo.io.limits import MAX_INDEX_BYTES, TENSORS, check_limit
from zoo.io.paths import safe_join


def choose(names: Sequence[str], stem: str, suffix: str) -> tuple[str, ...]:
    """Choose one file, or an index and its shards, among a directory's file names.

    If both are there, the single file is read and the shards are not, as the Hub's own clients
    do: a directory must not give other weights here than there.

    Args:
        names: the file names; those in folders below are passed over.
        stem: what the files are called, ``model``.
        suffix: how their names end, ``safetensors``.

    Returns:
        the single file; or the index, if there is one, and the shards; or ().
    """
    if f"{stem}.{suffix}" in names:
        return (f"{stem}.{suffix}",)
    index = f"{stem}.{suffix}.index.json"
    shards = [name for name in names if name.startswith(f"{stem}-") and is_shard(name, suffix)]
    return tuple([index] * (index in names) + sorted(shards))


def is_shard(name: str, suffix: str) -> bool:
    """Whether a file name ends like ``-00001-of-00002.safetensors``."""
    before, _, count = name.removesuffix(f".{suffix}").rpartition("-of-")
    numbered = before.rpartition("-")[2].isdigit() and count.isdigit()
    return numbered and name.endswith(f".{suffix}") and "/" not in name


@dataclass(frozen=True)
class Index:
    """An index file: which tensor is in which shard.

    Attributes:
        path: the index file.
        shards: each tensor's shard, by name.
    """

    path: Path
    shards: Mapping[str, Path]

    @property
    def files(self) -> list[Path]:
        """The shards, each once, sorted."""
        return sorted(set(self.shards.values()))

    def check_files(self, found: Collection[Path]) -> None:
        """Check that the shards it names are there, and that no other shard is.

        Args:
            found: the shards that were found beside the index.

        Raises:
            VerificationError: a shard is missing, or there is one that the index does not name.
        """
        for path in self.files:
            if not path.is_file():
                raise VerificationError(
                    f"{path} is missing, {self.path.name} names it", "fetch the checkpoint again"
                )
        for path in sorted(set(found) - set(self.files)):
            raise VerificationError(
                f"{path} lies beside {self.path.name}, which does not name it",
                "remove it if it is of another checkpoint",
            )

    def check_tensors(self, held: Mapping[Path, Collection[str]]) -> None:
        """Check that each shard holds what the index says, no less and no more.

        Args:
            held: the names of the tensors that each shard holds.

        Raises:
            VerificationError: names the first tensor and the file where the two differ.
        """
        for name, path in self.shards.items():
            if name not in held[path]:
                raise VerificationError(
                    f"{path} does not hold {name}, {self.path.name} says it does",
                    "fetch both again",
                )
        for path, names in held.items():
            for name in names:
                if self.shards.get(name) != path:
                    raise VerificationError(
                        f"{path} holds {name}, {self.path.name} does not say so",
                        "fetch both again",
                    )


def read_index(path: Path) -> Index:
    """Read an index file.

    Raises:
        SourceError: it cannot be read.
        VerificationError: it is not an index, or names a file outside of its directory.
    """
    index = read_json_object(path, max_bytes=MAX_INDEX_BYTES)
    shards = index.get("weight_map")
    if (
        not isinstance(shards, dict)
        or not shards
        or not all(type(name) is str for name in shards.values())
    ):
        raise VerificationError(f"{path} has no weight_map of tensors to files", "fetch it again")
    check_limit(path, "number of tensors", len(shards), TENSORS)
    files = {name: safe_join(path.parent, name, path.name) for name in set(shards.values())}
    return Index(path, {tensor: files[name] for tensor, name in shards.items()})


def open_index(directory: Path, names: Sequence[str]) -> Index | None:
    """Return the index among the names that ``choose`` chose, its files checked, or ``None``.

    Raises:
        SourceError: the index cannot be read.
        VerificationError: it is not sound, its shards are not those that are there, or there
            are shards and no index.
    """
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
