"""Much used text models and the families that hold them: docs/models.md.

    python -m tools.models

The list is tools/models.yaml; families, heads, sizes and licences are those of registry.yaml. A
test converts a tiny model with the configuration keys of each row that is held, see
tests/registry/test_configurations.py.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from zoo.hub.registry import RegistryEntry, builtin
from zoo.io.yaml import read_yaml

LIST = Path(__file__).with_suffix(".yaml")
PAGE = Path(__file__).parents[1] / "docs" / "models.md"
TEXT = """# Models

Families of `zoo` hold {held} of {count} much used text models, with their tokenizers. Any other
checkpoint with one of their architectures converts in the same way: `zoo models` lists the names
in the registry, and `zoo convert REPOSITORY` takes the rest. The licence is the one that the
publishers state; "unchecked" means that their page could not be read when the entry was written.
`python -m tools.models` writes this page.

| model | use | family | name in the registry | licence |
| --- | --- | --- | --- | --- |
{rows}
"""
MISSING = """
## Not held

| model | use | why |
| --- | --- | --- |
{rows}
"""


class ListedModel(msgspec.Struct, forbid_unknown_fields=True):
    """A row of the list.

    Attributes:
        use: what it is mostly used for.
        reason: why no family holds it.
    """

    use: str
    reason: str | None = None


def listed_models() -> dict[str, ListedModel]:
    """Return repository -> row of the list."""
    return msgspec.convert(read_yaml(LIST), dict[str, ListedModel])


def entries_by_repository() -> dict[str, tuple[str, RegistryEntry]]:
    """Return repository -> name and entry of the registry."""
    return {row.repo: (name, row) for name, row in builtin().items() if row.repo is not None}


def page(
    models: Mapping[str, ListedModel], entries: Mapping[str, tuple[str, RegistryEntry]]
) -> str:
    """Return the contents of docs/models.md."""
    held = []
    missing = []
    for repository, model in models.items():
        if repository not in entries:
            missing.append(f"| {repository} | {model.use} | {model.reason} |")
            continue
        name, entry = entries[repository]
        licence = entry.licence or "not stated"
        if entry.unchecked:
            licence += ", unchecked"
        held.append(f"| {repository} | {model.use} | {entry.family} | `{name}` | {licence} |")
    text = TEXT.format(held=len(held), count=len(models), rows="\n".join(held))
    if missing:
        text += MISSING.format(rows="\n".join(missing))
    return text


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(listed_models(), entries_by_repository()), "utf-8")


if __name__ == "__main__":
    main()
