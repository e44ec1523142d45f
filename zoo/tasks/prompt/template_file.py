"""A file of named templates with their label words."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from zoo.errors import UsageError, ZooError
from zoo.io.yaml import read_yaml
from zoo.tasks.prompt.template import PromptTemplate, require_label_words


@dataclass(frozen=True)
class NamedTemplate:
    """A template of a file."""

    name: str
    template: PromptTemplate
    # Label -> word; ``None`` if the file has no words for the template.
    words: Mapping[str, str] | None


class TemplateEntry(msgspec.Struct, forbid_unknown_fields=True):
    """An entry of the file; labels may be numbers, as in tables."""

    template: str
    label_words: dict[str | int, str] | None = None


def read_named_templates(path: Path) -> list[NamedTemplate]:
    """Return the templates of a YAML or JSON file, in its order.

    The file maps names to templates, or to a ``template`` and its ``label_words``. Either all
    templates have words or none has.

    Raises:
        UsageError: the file is missing, has no templates, or one of them is none; the message
            names the file and the template.
        VerificationError: the file is not YAML.
    """
    values = read_yaml(path)
    if not isinstance(values, dict) or not values:
        raise UsageError(
            f"{path} does not map names to templates", 'write lines such as name: "{text} {label}"'
        )
    templates = [_named_template(path, str(name), value) for name, value in values.items()]
    with_words = [template.name for template in templates if template.words is not None]
    for template in templates:
        if with_words and template.words is None:
            raise UsageError(
                f"{path}: {template.name} has no label_words, and {with_words[0]} has some",
                "give them to all templates, or to none",
            )
    return templates


def _named_template(path: Path, name: str, value: object) -> NamedTemplate:
    try:
        entry = msgspec.convert(value, TemplateEntry | str)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"{path}: {name}: {error}", "quote words such as yes and no, which YAML reads as true"
        ) from None
    if isinstance(entry, str):
        entry = TemplateEntry(entry)
    words = None
    try:
        template = PromptTemplate.parse(entry.template)
        if entry.label_words is not None:
            texts = {str(label): word for label, word in entry.label_words.items()}
            words = require_label_words(texts)
    except ZooError as error:
        raise UsageError(f"{path}: {name}: {error.what}", error.hint) from None
    return NamedTemplate(name, template, words)
