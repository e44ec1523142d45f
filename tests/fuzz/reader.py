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
    """Reader of one kind of file.

    Attributes:
        name: unique name of the reader.
        weight: relative number of cases.
        targets: glob patterns of the files to mutate, relative to the example.
        also_named: names that an error may contain instead of a file name.
        unusual: replace a target by a FIFO, a device or a directory in some cases, or remove it.
        computes: a sound file may ask for any amount of computation, such as rows of a table.
        kinds: kinds of files, one of which a case has; empty if all cases have the same files.
    """

    name: str
    weight: ClassVar[float] = 1.0
    targets: Sequence[str]
    also_named: ClassVar[Sequence[str]] = ()
    unusual: ClassVar[bool] = True
    computes: ClassVar[bool] = False
    kinds: Sequence[str] = ()

    def names(self) -> list[str]:
        """Return names that an error may contain besides existing files: also missing targets."""
        return [*self.also_named, *(Path(target).name for target in self.targets)]

    @abstractmethod
    def make(self, folder: Path) -> None:
        """Write the valid example, and the values that ``check`` compares with."""

    @abstractmethod
    def commands(self, random: Random) -> list[list[str]]:
        """Return arguments of ``zoo`` for each command, run in sequence in the example's directory.

        The sequence ends with the first command that fails.
        """

    @abstractmethod
    def check(self, folder: Path) -> str:
        """Compare the results of successful commands with an independent implementation.

        Returns:
            description of the difference; empty if there is none.
        """

    def may_leave(self, stderr: str) -> Sequence[str]:
        """Return directories that a command with an error may leave, such as a run that began."""
        return ()

    def mutations(self, path: Path) -> Sequence[Mutate]:
        """Return the mutations of a file, which are drawn uniformly."""
        return by_suffix(path)

    def seal(self, folder: Path) -> None:
        """Recompute digests that an attacker would update."""
        return

    def choose(self, folder: Path, kind: str) -> None:
        """Keep the files of one of ``kinds``."""
        return

    def mutate(self, folder: Path, random: Random) -> str:
        """Mutate one file of the example in place; return a description."""
        if self.kinds:
            self.choose(folder, random.choice(self.kinds))
        pattern = random.choice(self.targets)
        path = random.choice(sorted(p for p in folder.glob(pattern) if p.is_file()))
        name = str(path.relative_to(folder))
        if self.unusual and random.random() < 0.01:
            return f"{name}: {_replace(path, random)}"
        data = path.read_bytes()
        change = random.choice(self.mutations(path))
        path.write_bytes(change(data, random))
        with contextlib.suppress(Exception):  # the mutated manifest may be unreadable
            self.seal(folder)
        return f"{name}: {change.__name__}"


def by_suffix(path: Path) -> Sequence[Mutate]:
    """Return mutations for the suffix of a file, at least half of them structural if possible."""
    structural = TREES.get(path.suffix)
    if structural is not None:
        return (*BYTES, *[structural] * (2 * len(BYTES)))
    if path.suffix in TEXT:
        return (*BYTES, *[change_line] * len(BYTES))
    return BYTES


def _replace(path: Path, random: Random) -> str:
    """Replace a file by a FIFO, device, link or directory, or remove it."""
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
        path.symlink_to(path.name)  # a loop of links, which root cannot read either
    return kind


def copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, symlinks=True)
