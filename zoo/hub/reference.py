"""What the text after a command means.

In this order: a path, a name in the store, a name in the registry, a family (its default
checkpoint), a Hub repository ``organisation/name``. A path is that of a directory or, as TensorFlow
has it, what the files of a checkpoint in it begin with.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from zoo.errors import UsageError, did_you_mean
from zoo.hub import registry
from zoo.io.paths import store

Kind = Literal["path", "store", "registry", "hub"]
REPO = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True)
class Reference:
    """What a reference means, before anything is read or downloaded.

    Attributes:
        text: as it was typed.
        kind: where it was found.
        name: what a model made from it is called in the store.
        path: the directory, for kinds ``path`` and ``store``.
        stem: what the files of the weights begin with, if the path names them and not a directory.
        row: the registry's row, for kind ``registry``, and of a repository that one names.
        repo: the Hub repository, for kinds ``registry`` and ``hub``.
        revision: the branch, tag or commit asked for, if any.
    """

    text: str
    kind: Kind
    name: str
    path: Path | None = None
    stem: str | None = None
    row: registry.RegistryEntry | None = None
    repo: str | None = None
    revision: str | None = None

    @property
    def stored(self) -> Path:
        """The directory in the store for a model made from this."""
        return store() / (f"{self.name}@{self.revision}" if self.revision else self.name)


def resolve(text: str, *, revision: str | None = None, stored: bool = True) -> Reference:
    """Say what a reference means. Reads no model and opens no connection.

    Args:
        text: the reference.
        revision: a branch, tag or commit of the repository.
        stored: whether a model of that name in the store comes before the registry's.

    Raises:
        UsageError: nothing has that name; the nearest names are listed.
    """
    path = Path(text).expanduser()
    if text and path.is_dir():
        return Reference(text, "path", path.resolve().name, path=path, revision=revision)
    if (stem := _stem(path)) is not None:
        return Reference(text, "path", stem, path=path.parent, stem=stem, revision=revision)
    if not text or text.startswith((".", "/", "~")) or path.exists():
        what = "is not a directory" if path.exists() and text else "does not exist"
        raise UsageError(f"{text or 'an empty name'} {what}", "give the directory of a checkpoint")
    here = None
    if _is_stored(text) and revision is None:
        here = Reference(text, "store", text, path=store() / text)
    if here is not None and stored:
        return here
    row = registry.entries(plugins=False).get(text)
    default = _default_of_family(text) if row is None else None
    if default is not None:
        return resolve(default, revision=revision, stored=stored)
    row = row or registry.entries().get(text)
    if row is not None:
        wanted = revision or (None if row.revision == "main" else row.revision)
        return Reference(text, "registry", text, row=row, repo=row.repo, revision=wanted)
    if REPO.fullmatch(text):
        row = next((row for row in registry.entries().values() if row.repo == text), None)
        return Reference(text, "hub", text, row=row, repo=text, revision=revision)
    if here is not None:
        return here
    known = (*registry.entries(), *_families(), *stored_names())
    raise UsageError(
        f"no model is called {text!r}",
        did_you_mean(text, known) or "see `zoo models`, or give a path or organisation/name",
    )


def _stem(path: Path) -> str | None:
    """Return what files begin with that a path names together: ``model.ckpt``, or its index."""
    stem = path.name.removesuffix(".index")
    return stem if (path.parent / f"{stem}.index").is_file() else None


def _is_stored(text: str) -> bool:
    inside = ".." not in Path(text).parts and text not in ("", ".")
    return inside and any((store() / text / f).is_file() for f in ("zoo.json", "config.json"))


def stored_names() -> list[str]:
    """Return the names in the store."""
    root = store()
    found = [*root.glob("*/zoo.json"), *root.glob("*/*/zoo.json")]
    return sorted(str(path.parent.relative_to(root)) for path in found)


def _families() -> Sequence[str]:
    from zoo.plugins import installed

    return tuple(installed())


def _default_of_family(text: str) -> str | None:
    from zoo.plugins import get_family, installed

    if text not in installed():
        return None
    try:
        family = get_family(text)
    except UsageError:  # a plugin of formats alone
        return None
    return family.default_checkpoint
