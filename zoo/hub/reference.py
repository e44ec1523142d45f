"""Resolution of model references."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from zoo.errors import UsageError, did_you_mean
from zoo.hub import registry
from zoo.io.local import require_local
from zoo.io.paths import store
from zoo.io.remote.cache import fetch
from zoo.io.urls import parse_url

if TYPE_CHECKING:
    from zoo.io.tensors.formats import Format

Kind = Literal["path", "store", "registry", "hub"]
REPO = re.compile(r"(?!.*\.\.)\w[\w.-]*/\w[\w.-]*")


@dataclass(frozen=True)
class Reference:
    """A resolved model reference; nothing is read or downloaded yet."""

    text: str  # reference as the user typed it
    kind: Kind
    name: str  # name of the converted model in the store
    # directory, for kinds ``path`` and ``store``; or a file that describes its model
    path: Path | None = None
    stem: str | None = None  # prefix of the files, if the path is not a directory
    # registry entry, for kind ``registry`` and for repositories that the registry has
    row: registry.RegistryEntry | None = None
    repo: str | None = None  # Hub repository, for kinds ``registry`` and ``hub``
    revision: str | None = None  # requested branch, tag or commit, or ``None``

    @property
    def short_name(self) -> str:
        """Name for what is made of the model: no organisation, and a run's for its model."""
        name = self.name.rpartition("/")[2]
        if name == "model" and self.path is not None:
            name = self.path.resolve().parent.name or name
        return name

    @property
    def stored(self) -> Path:
        """Directory of the converted model in the store."""
        return store() / (f"{self.name}@{self.revision}" if self.revision else self.name)


def resolve(text: str, *, revision: str | None = None, stored: bool = True) -> Reference:
    """Resolve a reference, without reading files or opening connections."""
    return _resolve(text, revision=revision, stored=stored, follow_family=True)


def _resolve(text: str, *, revision: str | None, stored: bool, follow_family: bool) -> Reference:
    # A reference is, in this order of precedence: a path or URL, a name in the store, a name in the
    # registry, a family (its default checkpoint), or a Hub repository ``organisation/name``. A path
    # is a directory or, as in TensorFlow, the common prefix of the files of a checkpoint.
    url = parse_url(text)
    if url is not None and not url.is_web:
        path = fetch(text)
        return Reference(str(url), "path", url.name, path=path, revision=revision)
    require_local(text, "model")
    path = Path(text).expanduser()
    if text and path.is_dir():
        return Reference(text, "path", path.resolve().name, path=path, revision=revision)
    stem = path.name.removesuffix(".index")  # of the files of a TensorFlow checkpoint
    if (path.parent / f"{stem}.index").is_file():
        return Reference(text, "path", stem, path=path.parent, stem=stem, revision=revision)
    if path.is_file() and self_contained_format([path.name]) is not None:
        return Reference(text, "path", path.stem, path=path, revision=revision)
    if not text or text.startswith((".", "/", "~")) or path.exists():
        problem = "is not a directory" if path.exists() and text else "does not exist"
        hint = "give the directory of a checkpoint"
        raise UsageError(f"{text or 'an empty name'} {problem}", hint)
    stored_reference = None
    inside = ".." not in path.parts and text != "."
    manifests = (store() / text / name for name in ("zoo.json", "config.json"))
    if revision is None and inside and any(file.is_file() for file in manifests):
        stored_reference = Reference(text, "store", text, path=store() / text)
    if stored_reference is not None and stored:
        return stored_reference
    row = registry.entries(plugins=False).get(text)
    default = _default_of_family(text) if row is None and follow_family else None
    if default is not None:
        # The default is the name of a checkpoint, also if the family has the same name.
        return _resolve(default, revision=revision, stored=stored, follow_family=False)
    row = row or registry.entries().get(text)
    if row is not None:
        branch = revision or (None if row.revision == "main" else row.revision)
        return Reference(text, "registry", text, row=row, repo=row.repo, revision=branch)
    if REPO.fullmatch(text):
        # plugins are asked if no other registry has it
        rows = (e for plugins in (False, True) for e in registry.entries(plugins=plugins).values())
        row = next((entry for entry in rows if entry.repo == text), None)
        return Reference(text, "hub", text, row=row, repo=text, revision=revision)
    if stored_reference is not None:
        return stored_reference
    from zoo.plugins import installed

    here = (path.parent.name for path in Path().glob("*/config.json"))
    names = (*here, *registry.entries(), *installed(), *stored_names())
    raise UsageError(
        f"no model is called {text!r}",
        did_you_mean(text, names) or "see `zoo models`, or give a path or organisation/name",
    )


def self_contained_format(names: Sequence[str]) -> "Format | None":
    """Return the format of the file among several that describes its model, if there is one."""
    from zoo.plugins import all_formats, built_in_formats

    for formats in (built_in_formats, all_formats):  # plugins are asked if no other format fits
        if found := [f for f in formats() if f.find(names)]:
            return next((f for f in found if f.self_contained), None)
    return None


def stored_names() -> list[str]:
    """Return the names in the store."""
    root = store()
    manifests = [*root.glob("*/zoo.json"), *root.glob("*/*/zoo.json")]
    return sorted(str(path.parent.relative_to(root)) for path in manifests)


def _default_of_family(text: str) -> str | None:
    from zoo.plugins import entry_points_by_name, get_family

    if text not in entry_points_by_name():
        return None
    try:
        family = get_family(text)
    except UsageError:  # a plugin without families
        return None
    if not family.default_checkpoint:
        raise UsageError(
            f"no checkpoint of {text} is published",
            f"`zoo pretrain {text}` trains one; or give the directory of a checkpoint",
        )
    return family.default_checkpoint
