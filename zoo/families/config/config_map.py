"""Translation of configurations to and from the Hub's keys."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from reprlib import repr as shown
from typing import Any

import msgspec

from zoo.errors import VerificationError
from zoo.families.config.base import Config, field_error
from zoo.families.config.keys import (
    BOOKKEEPING,
    COMMON,
    LABELS,
    NOT_IMPLEMENTED,
    WRITTEN_ANEW,
    refused_except,
)
from zoo.io import limits
from zoo.io.file_keys import FileKeys, carried, honoured, refused
from zoo.io.json import dump_json
from zoo.io.numbers import parse_int
from zoo.io.sizes import check_size, size_problem
from zoo.sentence_models.cross_encoder_files import CROSS_ENCODER_KEYS


@dataclass(frozen=True)
class TranslatedConfig:
    """A translated Hub configuration."""

    config: Config  # the family's configuration
    extra: dict[str, Any]  # keys without a field, with their values, for the way back
    unknown: tuple[str, ...]  # the keys in ``extra`` that the family does not know
    # fields of optional parts (see ``zoo.weights.Rule``) that the file declares: their tensors must
    # be there
    declared_optional: frozenset[str] = frozenset()
    # a contradiction of the file about the outputs, which explains tensors of another shape; empty
    # for none
    doubt: str = ""
    # ``num_labels``, where it is another number than the names of ``id2label``
    num_labels: int | None = None


@dataclass(frozen=True)
class ConfigMap:
    """Translates a family's Hub ``config.json`` in both directions by one table.

    In all attributes, a key of a nested object is written ``group.key``.

    Attributes:
        keys: Hub key -> field. An absent key takes the field's default, which therefore has to
            equal the Hub's; a field without default makes the key mandatory.
        fixed: Hub key -> the values that this family implements; others are refused by name. The
            first is written for a model that was trained here.
        ignored: Hub key -> why it does not change the outputs.
        follows: Hub key -> the field or property that determines it; other values are refused.
        aliases: another spelling of a key -> that key, which is written, as is the alias where the
            file had it. Those of ``COMMON`` are implied.
        both: aliases that are also written for a model that was trained here.
        values: Hub key -> the Hub's value -> ours, where they differ; others are refused. Of
            several Hub values for one of ours, the first is written.
        implied: field -> its value where the key is absent, if it is not the field's default.
        unsaid: keys that are not written where the field has its default.
    """

    # Every key of a Hub ``config.json`` is *mapped* to a field, *fixed* (the family implements one
    # value and refuses others by name), *ignored* (it does not change the outputs, with a reason)
    # or *unknown*. Ignored and unknown keys are kept, so that a conversion back to the Hub's layout
    # is lossless.

    keys: Mapping[str, str]
    fixed: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    ignored: Mapping[str, str] = field(default_factory=dict)
    follows: Mapping[str, str] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Mapping[Any, Any]] = field(default_factory=dict)
    implied: Mapping[str, Any] = field(default_factory=dict)
    unsaid: Collection[str] = ()
    both: Collection[str] = ()
    supplied: Mapping[str, Any] = field(default_factory=dict)

    def from_hub(
        self, hub: Mapping[str, Any], kind: type[Config], location: str = "config.json"
    ) -> TranslatedConfig:
        """Translate a Hub configuration.

        Args:
            hub: the parsed ``config.json``.
            kind: the family's configuration class.
            location: name of the file, for messages.

        Raises:
            VerificationError: a value is missing, of the wrong type, contradictory, or not
                implemented by the family; the message names the Hub's key.
        """
        written = {**self.supplied, **self._flat(hub, location)}
        hub = self._spelled(written, location)
        required = {f.name for f in msgspec.structs.fields(kind) if f.required} - {*self.implied}
        for key, name in self.keys.items():
            if name in required and key not in hub:
                raise VerificationError(
                    f"{location}: {key} is missing", "the model cannot be built"
                )
        not_used = {k: v for k, v in NOT_IMPLEMENTED.items() if k not in self._own_keys}
        for key, accepted in {**not_used, **self.fixed, **self.values}.items():
            if key in hub and hub[key] not in tuple(accepted):
                raise VerificationError(
                    f"{location}: {key} = {shown(hub[key])} is not implemented",
                    f"only {' or '.join(map(repr, accepted))} is, and a model that ignored the "
                    "key would compute something else",
                )
        values = dict(self.implied) | {
            name: _typed(kind, name, value, f"{location}: {key}")
            for key, name in self.keys.items()
            if key in hub
            for value in [self.values[key][hub[key]] if key in self.values else hub[key]]
        }
        try:
            config = kind(**values, **_labels(hub, location))
        except (ValueError, TypeError, msgspec.ValidationError) as error:
            raise VerificationError(f"{location}: {error}") from error
        for key, name in self.follows.items():
            value = getattr(config, name)
            if hub.get(key, value) != value:
                message = f"{location}: {key} = {shown(hub[key])} contradicts the other keys"
                raise VerificationError(message, f"it follows from them, and is {shown(value)}")
        hub_keys = {*self.keys, *LABELS, *WRITTEN_ANEW}
        extra = {key: value for key, value in {**written, **hub}.items() if key not in hub_keys}
        known = {*BOOKKEEPING, *self.ignored, *self.follows, *self.fixed, *NOT_IMPLEMENTED}
        known |= {*self._spellings, *CROSS_ENCODER_KEYS}
        unknown = tuple(key for key in extra if key not in known)
        doubt, count = "", hub.get("num_labels")
        if not hub.get("id2label") or count in (None, len(config.labels)):
            return TranslatedConfig(config, extra, unknown)
        doubt = f"num_labels is {shown(count)}, and id2label names {len(config.labels)}"
        problem = size_problem("num_labels", count, limits.MAX_CONFIG_LABELS, least=1)
        number = count if problem is None else None
        return TranslatedConfig(config, extra, unknown, doubt=doubt, num_labels=number)

    def to_hub(self, config: Config, extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Translate to the Hub's keys.

        Args:
            config: the family's configuration.
            extra: ``TranslatedConfig.extra``; ``None`` for a model that did not come from the
                Hub, for which the fixed keys are written.

        Raises:
            VerificationError: the Hub has no counterpart of a value.
        """
        hub: dict[str, Any] = dict(extra or {})
        default = {f.name: f.default for f in msgspec.structs.fields(config)}
        for key, name in self.keys.items():
            value = getattr(config, name)
            if key not in self.unsaid or value != default[name]:
                hub[key] = self._word(key, value)
        if extra is None:
            fixed = {key: accepted[0] for key, accepted in self.fixed.items()}
            hub |= {key: value for key, value in fixed.items() if value is not None}
        for alias in self._spellings.keys() & {*(self.both if extra is None else extra)}:
            key = self._spellings[alias]
            hub[alias] = (
                hub[key] if key in hub else self._word(key, getattr(config, self.keys[key]))
            )
        hub["id2label"] = {str(i): label for i, label in enumerate(config.labels)}
        hub["label2id"] = {label: i for i, label in enumerate(config.labels)}
        if config.problem:
            hub["problem_type"] = config.problem
        return self._grouped(hub)

    def file_keys(self) -> FileKeys:
        """Return what becomes of each key of the family's tables, for the documentation."""
        words = {
            key: ": " + ", ".join(f"`{dump_json(word)}`" for word in accepted)
            for key, accepted in self.values.items()
        }
        return {
            **{key: carried(reason) for key, reason in self.ignored.items()},
            **{key: refused_except(accepted) for key, accepted in self.fixed.items()},
            **{key: honoured(f"`{name}`{words.get(key, '')}") for key, name in self.keys.items()},
            **{
                key: refused(f"values other than `{name}`, from which it follows")
                for key, name in self.follows.items()
            },
            **{key: honoured(f"another name of `{same}`") for key, same in self._spellings.items()},
        }

    @cached_property
    def _spellings(self) -> dict[str, str]:
        """Alias -> key: from ``COMMON`` where the family has a different key, and ``aliases``."""
        key_of = {name: key for key, name in self.keys.items()}
        common = {word: key_of[name] for word, name in COMMON.items() if name in key_of}
        others = {word: key for word, key in common.items() if word not in self._own_keys}
        return others | {**self.aliases}

    @cached_property
    def _own_keys(self) -> frozenset[str]:
        """Keys in a table of the family; aliases are no keys."""
        return frozenset({*self.keys, *self.fixed, *self.ignored, *self.follows})

    @cached_property
    def _groups(self) -> frozenset[str]:
        """Names of the nested objects with a key in any table, at every depth."""
        tables = (self.keys, self.fixed, self.ignored, self.follows, self.aliases)
        paths = [key.split(".")[:-1] for table in tables for key in table]
        paths += [key.split(".")[:-1] for key in self.aliases.values()]
        return frozenset(
            ".".join(path[: depth + 1]) for path in paths for depth in range(len(path))
        )

    def _flat(self, hub: Mapping[str, Any], location: str, group: str = "") -> dict[str, Any]:
        """Return the configuration with the keys of nested objects written ``group.key``."""
        flat: dict[str, Any] = {}
        for key, value in hub.items():
            if "." in key and group + key.rpartition(".")[0] in self._groups:
                raise VerificationError(
                    f"{location}: {shown(key)} has a dot in its name",
                    f"nest it in {key.split('.')[0]!r}",
                )
            name = group + key
            inner = name in self._groups and isinstance(value, Mapping) and value
            flat |= self._flat(value, location, f"{name}.") if inner else {name: value}
        return flat

    def _grouped(self, flat: Mapping[str, Any]) -> dict[str, Any]:
        """Undo ``_flat``."""
        nested: dict[str, Any] = {}
        for name, value in flat.items():
            *path, last = name.split(".") if name.split(".")[0] in self._groups else [name]
            group = nested
            for key in path:
                if not isinstance(group.get(key), dict):  # the file had null or an empty object
                    group[key] = {}
                group = group[key]
            group[last] = dict(value) if isinstance(value, Mapping) else value
        return nested

    def _spelled(self, hub: Mapping[str, Any], location: str) -> dict[str, Any]:
        """Return the configuration with every alias replaced by the key that it stands for."""
        spelled = dict(hub)
        for alias in self._spellings.keys() & spelled.keys():
            key, value = self._spellings[alias], spelled.pop(alias)
            if spelled.setdefault(key, value) != value:
                raise VerificationError(
                    f"{location}: {alias} = {shown(value)} contradicts "
                    f"{key} = {shown(spelled[key])}",
                    "they are two names of one setting",
                )
        return spelled

    def _word(self, key: str, value: Any) -> Any:
        """Return the Hub's counterpart of a value."""
        if key not in self.values:
            return list(value) if isinstance(value, tuple) else msgspec.to_builtins(value)
        for word, meaning in self.values[key].items():
            if meaning == value:
                return word
        raise VerificationError(f"the Hub's key {key} has no word for {shown(value)}")


def _typed(kind: type[Config], name: str, value: Any, location: str) -> Any:
    """Return a value converted to the type of its field, in whose range it is."""
    field = next(f for f in msgspec.structs.fields(kind) if f.name == name)
    try:
        converted = msgspec.convert(value, field.type)
    except msgspec.ValidationError as error:
        raise VerificationError(f"{location} = {shown(value)}: {error}") from error
    if message := field_error(field, converted):
        raise VerificationError(f"{location} = {shown(value)} is {message}")
    return converted


def default_labels(count: int) -> tuple[str, ...]:
    """Return the names of outputs that have none, as in the Hub's library."""
    return tuple(f"LABEL_{number}" for number in range(count))


def _labels(hub: Mapping[str, Any], location: str) -> dict[str, Any]:
    """Return the fields of id2label, num_labels and problem_type, common to all families."""
    fields: dict[str, Any] = {}
    if hub.get("id2label"):
        names = hub["id2label"]
        items = names.items() if isinstance(names, Mapping) else [(None, None)]
        numbered = [(parse_int(str(i)), str(label)) for i, label in items]
        by_id = {number: label for number, label in numbered if number is not None}
        if not by_id or len(by_id) < len(numbered):
            raise VerificationError(f"{location}: id2label is not a map of number to name")
        if sorted(by_id) != list(range(len(by_id))):
            raise VerificationError(f"{location}: id2label has gaps: {sorted(by_id)}")
        fields["labels"] = tuple(by_id[i] for i in range(len(by_id)))
    elif hub.get("num_labels") is not None:
        count = hub["num_labels"]
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise VerificationError(
                f"{location}: num_labels = {shown(count)} is not a positive number"
            )
        check_size(location, "num_labels", count, limits.MAX_CONFIG_LABELS)
        fields["labels"] = default_labels(count)
    if hub.get("problem_type") is not None:
        fields["problem"] = _typed(
            Config, "problem", hub["problem_type"], f"{location}: problem_type"
        )
    return fields
