"""Base class of readers: an example to mutate, commands that read it, and a check."""

import contextlib
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import ClassVar

from tests.fuzz.octets import BYTES, Mutate, change_line
from tests.fuzz.trees import TREES

TEXT = (".txt", ".json", ".jsonl", ".yaml", ".lock", ".model-lines")


class Reader(ABC):
    """One kind of file.

    Attributes:
        name: unique name.
        weight: its share of the cases, compared with other readers.
        targets: glob patterns of the files to mutate, inside the example.
        also_named: what an error may name in the place of a file.
        unusual: whether a target is sometimes a FIFO, a device, a folder or missing.
    """

    name: str
    weight: ClassVar[float] = 1.0
    targets: Sequence[str]
    also_named: ClassVar[Sequence[str]] = ()
    unusual: ClassVar[bool] = True

    def names(self) -> list[str]:
        """Return what an error may name beside the files that are there: a target may be gone."""
        return [*self.also_named, *(Path(target).name for target in self.targets)]

    @abstractmethod
    def make(self, folder: Path) -> None:
        """Write the sound example, and beside it what ``check`` compares with."""

    @abstractmethod
    def commands(self, random: Random) -> list[list[str]]:
        """Return the arguments of ``zoo``, run one after the other in the example's folder.

        After the first that fails none is run.
        """

    @abstractmethod
    def check(self, folder: Path) -> str:
        """Compare what the commands made, all of which succeeded, with an independent view.

        Returns:
            the difference, or nothing.
        """

    def mutations(self, path: Path) -> Sequence[Mutate]:
        """Return the mutations of a file; structural ones are as likely as those of bytes."""
        return by_suffix(path)

    def seal(self, folder: Path) -> None:
        """Write digests anew, where an attacker would."""
        return

    def mutate(self, folder: Path, random: Random) -> str:
        """Mutate one file of the example in place, and describe that."""
        pattern = random.choice(self.targets)
        path = random.choice(sorted(p for p in folder.glob(pattern) if p.is_file()))
        name = str(path.relative_to(folder))
        if self.unusual and random.random() < 0.01:
            return f"{name}: {_replace(path, random)}"
        data = path.read_bytes()
        change = random.choice(self.mutations(path))
        path.write_bytes(change(data, random))
        with contextlib.suppress(Exception):  # the manifest itself is what cannot be read
            self.seal(folder)
        return f"{name}: {change.__name__}"


def by_suffix(path: Path) -> Sequence[Mutate]:
    """Return mutations that suit a file by the end of its name."""
    structural = TREES.get(path.suffix)
    if structural is not None:
        return (*BYTES, *[structural] * (2 * len(BYTES)))
    if path.suffix in TEXT:
        return (*BYTES, *[change_line] * len(BYTES))
    return BYTES


def _replace(path: Path, random: Random) -> str:
    """Put something else in the place of a file."""
    path.unlink()
    kind = random.choice(("missing", "FIFO", "folder", "device", "dangling link", "unreadable"))
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "dangling link":
        path.symlink_to("nowhere")
    elif kind == "unreadable":
        path.symlink_to(path.name)  # a loop: even root cannot read it
    return kind


def copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, symlinks=True)
