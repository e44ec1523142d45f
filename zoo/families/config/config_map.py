"""The translation of configurations to and from the Hub's keys.

Every key of a Hub ``config.json`` is either *mapped* to a field of ours, *fixed* (the family
implements one value and refuses the others by name), *ignored* (it does not change what is
computed, and the reason is on record) or *unknown*. Ignored and unknown keys are carried along
verbatim, so that a conversion back to the Hub's layout loses nothing.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from reprlib import repr as shown
from typing import Any

import msgspec

from zoo.errors import VerificationError
from zoo.families.config.base import Config, field_error
from zoo.families.config.keys import BOOKKEEPING, COMMON, NOT_IMPLEMENTED, WRITTEN_ANEW
from zoo.io import limits


@dataclass(frozen=True)
class TranslatedConfig:
    """A Hub configuration in our terms.

    Attributes:
        config: the family's configuration.
        extra: keys that no field of ours holds, with their values, to be written back.
        unknown: the names of those that this family does not know.
        declared_optional: fields of optional parts (see ``zoo.weights.Rule``) that the file
            declares: their tensors must be there.
    """

    config: Config
    extra: dict[str, Any]
    unknown: tuple[str, ...]
    declared_optional: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ConfigMap:
    """Translates a family's Hub ``config.json`` in both directions from one table.

    Attributes:
        keys: Hub key -> our field. A key that is absent takes our field's default, which
            therefore equals the Hub's. Where the field has none, the key must be there. Here
            and in the other tables, a key of a nested object is written ``group.key``.
        fixed: Hub key -> the values that mean what this family computes; any other value is
            refused by name. The first is what a model that was made here says.
        ignored: Hub key -> why it does not change what is computed.
        follows: Hub key -> the field or property of ours that says it already; another value is
            refused.
        aliases: another spelling of a key in ``keys`` -> that key, which is written back. The
            words of ``COMMON`` need not be said.
        values: Hub key -> the Hub's word for a value -> ours, where the two differ; other words
            are refused. The first of several words for one value is written back.
        implied: our field -> its value where no key says one, if that is not our default.
        unsaid: keys that are not written where our field has its default.
    """

    keys: Mapping[str, str]
    fixed: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    ignored: Mapping[str, str] = field(default_factory=dict)
    follows: Mapping[str, str] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Mapping[Any, Any]] = field(default_factory=dict)
    implied: Mapping[str, Any] = field(default_factory=dict)
    unsaid: Collection[str] = ()

    def to_ours(
        self, hub: Mapping[str, Any], kind: type[Config], where: str = "config.json"
    ) -> TranslatedConfig:
        """Translate a Hub configuration.

        Args:
            hub: the parsed ``config.json``.
            kind: the family's configuration class.
            where: the file, for messages.

        Raises:
            VerificationError: a value is missing or of the wrong type, a contradiction, or a
                setting that the family does not implement; the message names the Hub's key.
        """
        hub = self._spelled(self._flat(hub, where), where)
        self._check_complete(hub, kind, where)
        for key, accepted in {**NOT_IMPLEMENTED, **self.fixed, **self.values}.items():
            if key in hub and hub[key] not in tuple(accepted):
                raise VerificationError(
                    f"{where}: {key} = {shown(hub[key])} is not implemented",
                    f"only {' or '.join(map(repr, accepted))} is, and a model that ignored the "
                    "key would compute something else",
                )
        values = dict(self.implied) | {
            ours: _typed(kind, ours, self._value(key, hub[key]), f"{where}: {key}")
            for key, ours in self.keys.items()
            if key in hub
        }
        try:
            config = kind(**values, **_labels(hub, where))
        except (ValueError, TypeError, msgspec.ValidationError) as error:
            raise VerificationError(f"{where}: {error}") from error
        self._check_following(hub, config, where)
        ours = {*self.keys, "id2label", "num_labels", "problem_type", *WRITTEN_ANEW}
        extra = {key: value for key, value in hub.items() if key not in ours}
        known = {*BOOKKEEPING, *self.ignored, *self.follows, *self.fixed, *NOT_IMPLEMENTED}
        unknown = tuple(key for key in extra if key not in known)
        return TranslatedConfig(config, extra, unknown)

    def to_hf(self, config: Config, extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Translate back.

        Args:
            config: the family's configuration.
            extra: what ``to_ours`` set aside; ``None`` for a model that did not come from the
                Hub, whose configuration then says every fixed setting.

        Raises:
            VerificationError: the Hub has no word for a value.
        """
        hub: dict[str, Any] = dict(extra or {})
        default = {f.name: f.default for f in msgspec.structs.fields(config)}
        for key, ours in self.keys.items():
            value = getattr(config, ours)
            if key not in self.unsaid or value != default[ours]:
                hub[key] = self._word(key, value)
        if extra is None:
            fixed = {key: accepted[0] for key, accepted in self.fixed.items()}
            hub |= {key: value for key, value in fixed.items() if value is not None}
        hub["id2label"] = {str(i): label for i, label in enumerate(config.labels)}
        hub["label2id"] = {label: i for i, label in enumerate(config.labels)}
        if config.problem:
            hub["problem_type"] = config.problem
        return self._grouped(hub)

    @cached_property
    def _spellings(self) -> dict[str, str]:
        """Each alias -> its key: the common ones, where a family's key is another, and its own."""
        own = {ours: key for key, ours in self.keys.items()}
        known = {*self.keys, *self.fixed, *self.ignored, *self.follows}
        common = {word: own[ours] for word, ours in COMMON.items() if ours in own}
        return {word: key for word, key in common.items() if word not in known} | {**self.aliases}

    @cached_property
    def _groups(self) -> frozenset[str]:
        """Names of the nested objects that any table has a key of; of one in another, both."""
        tables = (self.keys, self.fixed, self.ignored, self.follows, self.aliases)
        paths = [key.split(".")[:-1] for table in tables for key in table]
        paths += [key.split(".")[:-1] for key in self.aliases.values()]
        return frozenset(
            ".".join(path[: depth + 1]) for path in paths for depth in range(len(path))
        )

    def _flat(self, hub: Mapping[str, Any], where: str, group: str = "") -> dict[str, Any]:
        """Return the configuration with the keys of nested objects written ``group.key``.

        Raises:
            VerificationError: a key of the file has a dot and would be taken for a nested one.
        """
        flat: dict[str, Any] = {}
        for key, value in hub.items():
            if "." in key and group + key.rpartition(".")[0] in self._groups:
                raise VerificationError(
                    f"{where}: {shown(key)} has a dot in its name",
                    f"nest it in {key.split('.')[0]!r}",
                )
            name = group + key
            inner = name in self._groups and isinstance(value, Mapping) and value
            flat |= self._flat(value, where, f"{name}.") if inner else {name: value}
        return flat

    def _grouped(self, flat: Mapping[str, Any]) -> dict[str, Any]:
        """Undo ``_flat``."""
        nested: dict[str, Any] = {}
        for name, value in flat.items():
            *path, last = name.split(".") if name.split(".")[0] in self._groups else [name]
            place = nested
            for key in path:
                if not isinstance(place.get(key), dict):  # null stood there, or an empty object
                    place[key] = {}
                place = place[key]
            place[last] = dict(value) if isinstance(value, Mapping) else value
        return nested

    def _check_complete(self, hub: Mapping[str, Any], kind: type[Config], where: str) -> None:
        needed = {f.name for f in msgspec.structs.fields(kind) if f.required} - {*self.implied}
        for key, ours in self.keys.items():
            if ours in needed and key not in hub:
                raise VerificationError(f"{where}: {key} is missing", "the model cannot be built")

    def _check_following(self, hub: Mapping[str, Any], config: Config, where: str) -> None:
        for key, ours in self.follows.items():
            value = getattr(config, ours)
            if hub.get(key, value) != value:
                said = f"{where}: {key} = {shown(hub[key])} contradicts the other keys"
                raise VerificationError(said, f"it follows from them, and is {shown(value)}")

    def _spelled(self, hub: Mapping[str, Any], where: str) -> dict[str, Any]:
        """Return the configuration with every alias replaced by the key that it stands for."""
        found = dict(hub)
        for alias in self._spellings.keys() & found.keys():
            key, value = self._spellings[alias], found.pop(alias)
            if found.setdefault(key, value) != value:
                raise VerificationError(
                    f"{where}: {alias} = {shown(value)} contradicts {key} = {shown(found[key])}",
                    "they are two names of one setting",
                )
        return found

    def _value(self, key: str, word: Any) -> Any:
        return self.values[key][word] if key in self.values else word

    def _word(self, key: str, value: Any) -> Any:
        """Return what the Hub says for a value of ours.

        Raises:
            VerificationError: it has no word for it.
        """
        if key not in self.values:
            return list(value) if isinstance(value, tuple) else msgspec.to_builtins(value)
        for word, meaning in self.values[key].items():
            if meaning == value:
                return word
        raise VerificationError(f"the Hub's key {key} has no word for {shown(value)}")


def _typed(kind: type[Config], name: str, value: Any, where: str) -> Any:
    """Check one value against the type and the range of the field it is for."""
    wanted = next(f for f in msgspec.structs.fields(kind) if f.name == name)
    try:
        found = msgspec.convert(value, wanted.type)
    except msgspec.ValidationError as error:
        raise VerificationError(f"{where} = {shown(value)}: {error}") from error
    if wrong := field_error(wanted, found):
        raise VerificationError(f"{where} = {shown(value)} is {wrong}")
    return found


def _labels(hub: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Read id2label, num_labels and problem_type: they are the same in every family."""
    found: dict[str, Any] = {}
    if hub.get("id2label"):
        try:
            by_id = {int(i): str(label) for i, label in hub["id2label"].items()}
        except (AttributeError, ValueError, TypeError) as error:
            raise VerificationError(f"{where}: id2label is not a map of number to name") from error
        if sorted(by_id) != list(range(len(by_id))):
            raise VerificationError(f"{where}: id2label has gaps: {sorted(by_id)}")
        found["labels"] = tuple(by_id[i] for i in range(len(by_id)))
    elif "num_labels" in hub:
        count = hub["num_labels"]
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise VerificationError(
                f"{where}: num_labels = {shown(count)} is not a positive number"
            )
        limits.check_limit(where, "num_labels", count, limits.CONFIG_LABELS)
        found["labels"] = tuple(f"LABEL_{i}" for i in range(count))
    if hub.get("problem_type") is not None:
        found["problem"] = _typed(Config, "problem", hub["problem_type"], f"{where}: problem_type")
    return found
