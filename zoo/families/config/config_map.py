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
        self, hub: Mapping[str, Any], config_class: type[Config], location: str = "config.json"
    ) -> TranslatedConfig:
        """Translate a Hub configuration.

        Args:
            hub: the parsed ``config.json``.
            config_class: the family's configuration class.
            location: name of the file, for messages.

        Raises:
            VerificationError: a value is missing, of the wrong type, contradictory, or not
                implemented by the family; the message names the Hub's key.
        """
        file_config = {**self.supplied, **self._flatten(hub, location)}
        hub = self._replace_aliases(file_config, location)
        self._check_keys(hub, config_class, location)
        config = self._make_config(hub, config_class, location)
        for key, name in self.follows.items():
            value = getattr(config, name)
            if hub.get(key, value) != value:
                message = f"{location}: {key} = {shown(hub[key])} contradicts the other keys"
                raise VerificationError(message, f"it follows from them, and is {shown(value)}")
        written_keys = {*self.keys, *LABELS, *WRITTEN_ANEW}
        extra = {}
        for key, value in {**file_config, **hub}.items():
            if key not in written_keys:
                extra[key] = value
        declared_keys = {*BOOKKEEPING, *self.ignored, *self.follows, *self.fixed, *NOT_IMPLEMENTED}
        declared_keys |= {*self._spellings, *CROSS_ENCODER_KEYS}
        unknown_keys = tuple(key for key in extra if key not in declared_keys)
        num_labels = hub.get("num_labels")
        if not hub.get("id2label") or num_labels in (None, len(config.labels)):
            return TranslatedConfig(config, extra, unknown_keys)
        doubt = f"num_labels is {shown(num_labels)}, and id2label names {len(config.labels)}"
        problem = size_problem("num_labels", num_labels, limits.MAX_CONFIG_LABELS, least=1)
        if problem is not None:
            num_labels = None
        return TranslatedConfig(config, extra, unknown_keys, doubt=doubt, num_labels=num_labels)

    def _check_keys(
        self, hub: Mapping[str, Any], config_class: type[Config], location: str
    ) -> None:
        """Check that no mandatory key is missing, and that all values are implemented."""
        required_fields = set[str]()
        for struct_field in msgspec.structs.fields(config_class):
            if struct_field.required and struct_field.name not in self.implied:
                required_fields.add(struct_field.name)
        for key, name in self.keys.items():
            if name in required_fields and key not in hub:
                raise VerificationError(
                    f"{location}: {key} is missing", "the model cannot be built"
                )
        accepted_values: dict[str, Collection[Any]] = {}
        for key, neutral_values in NOT_IMPLEMENTED.items():
            if key not in self._own_keys:
                accepted_values[key] = neutral_values
        accepted_values |= self.fixed
        accepted_values |= self.values
        for key, values in accepted_values.items():
            if key in hub and hub[key] not in tuple(values):
                raise VerificationError(
                    f"{location}: {key} = {shown(hub[key])} is not implemented",
                    f"only {' or '.join(map(repr, values))} is, and a model that ignored the "
                    "key would compute something else",
                )

    def _make_config(
        self, hub: Mapping[str, Any], config_class: type[Config], location: str
    ) -> Config:
        """Return the family's configuration for checked keys."""
        values = dict(self.implied)
        for key, name in self.keys.items():
            if key not in hub:
                continue
            value = hub[key]
            if key in self.values:
                value = self.values[key][value]
            values[name] = _convert_value(config_class, name, value, f"{location}: {key}")
        try:
            return config_class(**values, **_labels(hub, location))
        except (ValueError, TypeError, msgspec.ValidationError) as error:
            raise VerificationError(f"{location}: {error}") from error

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
        defaults = {field.name: field.default for field in msgspec.structs.fields(config)}
        for key, name in self.keys.items():
            value = getattr(config, name)
            if key not in self.unsaid or value != defaults[name]:
                hub[key] = self._hub_value(key, value)
        aliases = set(self.both)
        if extra is None:
            for key, accepted_values in self.fixed.items():
                if accepted_values[0] is not None:
                    hub[key] = accepted_values[0]
        else:
            aliases = set(extra)
        for alias in self._spellings.keys() & aliases:
            key = self._spellings[alias]
            if key in hub:
                hub[alias] = hub[key]
            else:
                hub[alias] = self._hub_value(key, getattr(config, self.keys[key]))
        hub["id2label"] = {str(index): label for index, label in enumerate(config.labels)}
        hub["label2id"] = {label: index for index, label in enumerate(config.labels)}
        if config.problem:
            hub["problem_type"] = config.problem
        return self._nest(hub)

    def file_keys(self) -> FileKeys:
        """Return what becomes of each key of the family's tables, for the documentation."""
        file_keys = {}
        for key, reason in self.ignored.items():
            file_keys[key] = carried(reason)
        for key, accepted_values in self.fixed.items():
            file_keys[key] = refused_except(accepted_values)
        for key, name in self.keys.items():
            description = f"`{name}`"
            if key in self.values:
                words = [f"`{dump_json(word)}`" for word in self.values[key]]
                description += f": {', '.join(words)}"
            file_keys[key] = honoured(description)
        for key, name in self.follows.items():
            file_keys[key] = refused(f"values other than `{name}`, from which it follows")
        for alias, key in self._spellings.items():
            file_keys[alias] = honoured(f"another name of `{key}`")
        return file_keys

    @cached_property
    def _spellings(self) -> dict[str, str]:
        """Alias -> key: from ``COMMON`` where the family has a different key, and ``aliases``."""
        key_of_field = {name: key for key, name in self.keys.items()}
        spellings = {}
        for alias, name in COMMON.items():
            if name in key_of_field and alias not in self._own_keys:
                spellings[alias] = key_of_field[name]
        return {**spellings, **self.aliases}

    @cached_property
    def _own_keys(self) -> frozenset[str]:
        """Keys in a table of the family; aliases are no keys."""
        return frozenset({*self.keys, *self.fixed, *self.ignored, *self.follows})

    @cached_property
    def _groups(self) -> frozenset[str]:
        """Names of the nested objects with a key in any table, at every depth."""
        keys = [*self.keys, *self.fixed, *self.ignored, *self.follows]
        keys += [*self.aliases, *self.aliases.values()]
        groups = set()
        for key in keys:
            path = key.split(".")
            for depth in range(1, len(path)):
                groups.add(".".join(path[:depth]))
        return frozenset(groups)

    def _flatten(self, hub: Mapping[str, Any], location: str, group: str = "") -> dict[str, Any]:
        """Return the configuration with the keys of nested objects written ``group.key``."""
        flat: dict[str, Any] = {}
        for key, value in hub.items():
            if "." in key and group + key.rpartition(".")[0] in self._groups:
                raise VerificationError(
                    f"{location}: {shown(key)} has a dot in its name",
                    f"nest it in {key.split('.')[0]!r}",
                )
            name = group + key
            if name in self._groups and isinstance(value, Mapping) and value:
                flat |= self._flatten(value, location, f"{name}.")
            else:
                flat[name] = value
        return flat

    def _nest(self, flat: Mapping[str, Any]) -> dict[str, Any]:
        """Undo ``_flatten``."""
        nested: dict[str, Any] = {}
        for name, value in flat.items():
            path = [name]
            if name.split(".")[0] in self._groups:
                path = name.split(".")
            *group_names, key = path
            group = nested
            for group_name in group_names:
                # The file may have null or an empty object there.
                if not isinstance(group.get(group_name), dict):
                    group[group_name] = {}
                group = group[group_name]
            group[key] = dict(value) if isinstance(value, Mapping) else value
        return nested

    def _replace_aliases(self, hub: Mapping[str, Any], location: str) -> dict[str, Any]:
        """Return the configuration with every alias replaced by the key that it stands for."""
        config = dict(hub)
        for alias in self._spellings.keys() & config.keys():
            key = self._spellings[alias]
            value = config.pop(alias)
            if config.setdefault(key, value) != value:
                raise VerificationError(
                    f"{location}: {alias} = {shown(value)} contradicts "
                    f"{key} = {shown(config[key])}",
                    "they are two names of one setting",
                )
        return config

    def _hub_value(self, key: str, value: Any) -> Any:
        """Return the Hub's counterpart of a value."""
        if key not in self.values:
            if isinstance(value, tuple):
                return list(value)
            return msgspec.to_builtins(value)
        for hub_value, field_value in self.values[key].items():
            if field_value == value:
                return hub_value
        raise VerificationError(f"the Hub's key {key} has no word for {shown(value)}")


def _convert_value(config_class: type[Config], name: str, value: Any, location: str) -> Any:
    """Convert a value to the type of its field, and check that it is in the field's range."""
    fields = {field.name: field for field in msgspec.structs.fields(config_class)}
    try:
        field_value = msgspec.convert(value, fields[name].type)
    except msgspec.ValidationError as error:
        raise VerificationError(f"{location} = {shown(value)}: {error}") from error
    if message := field_error(fields[name], field_value):
        raise VerificationError(f"{location} = {shown(value)} is {message}")
    return field_value


def default_labels(count: int) -> tuple[str, ...]:
    """Return the names of outputs that have none, as in the Hub's library."""
    return tuple(f"LABEL_{number}" for number in range(count))


def _labels(hub: Mapping[str, Any], location: str) -> dict[str, Any]:
    """Return the fields of id2label, num_labels and problem_type, common to all families."""
    fields: dict[str, Any] = {}
    if hub.get("id2label"):
        names = hub["id2label"]
        labels = {}
        if isinstance(names, Mapping):
            for key, label in names.items():
                number = parse_int(str(key))
                if number is not None:
                    labels[number] = str(label)
        if not labels or len(labels) < len(names):
            raise VerificationError(f"{location}: id2label is not a map of number to name")
        if sorted(labels) != list(range(len(labels))):
            raise VerificationError(f"{location}: id2label has gaps: {sorted(labels)}")
        fields["labels"] = tuple(labels[number] for number in range(len(labels)))
    elif hub.get("num_labels") is not None:
        count = hub["num_labels"]
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise VerificationError(
                f"{location}: num_labels = {shown(count)} is not a positive number"
            )
        check_size(location, "num_labels", count, limits.MAX_CONFIG_LABELS)
        fields["labels"] = default_labels(count)
    if hub.get("problem_type") is not None:
        problem = hub["problem_type"]
        fields["problem"] = _convert_value(Config, "problem", problem, f"{location}: problem_type")
    return fields
