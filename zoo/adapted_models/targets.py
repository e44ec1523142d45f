"""The linear maps of a model under the Hub's names, for adapters."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zoo.errors import UsageError, did_you_mean
from zoo.families.heads import with_head
from zoo.weights import TensorMapping

if TYPE_CHECKING:
    from torch import nn

    from zoo.families.adapters import AdapterTargets
    from zoo.families.base import Family
    from zoo.families.config import Config

ALL_LINEAR = "all-linear"  # all linear maps of the backbone, as in peft
WEIGHT = ".weight"
MAX_NAMES_SHOWN = 8


@dataclass(frozen=True)
class Part:
    """A matrix of the Hub that is a linear map here, or some rows of one."""

    name: str  # name of the Hub's module
    rows: range  # its rows in our matrix
    in_hub: bool = True  # whether it is a module of the Hub's library; else the name is ours


@dataclass(frozen=True)
class Site:
    """A linear map of a model, with the parts of it that an adapter changes."""

    module: str  # name of the module
    entry: TensorMapping  # rule of its matrix
    parts: dict[str, Part] = field(default_factory=dict)  # by the number of the rule's source

    @property
    def rows(self) -> dict[str, range]:
        """Rows of each part."""
        return {number: part.rows for number, part in self.parts.items()}


@dataclass(frozen=True)
class AdaptableModel:
    """The linear maps of a model outside of its head, and the model itself."""

    model: "nn.Module"
    family: "Family"
    config: "Config"
    head: str
    sites: Sequence[Site]

    @classmethod
    def from_model(
        cls, model: "nn.Module", family: "Family", config: "Config", head: str
    ) -> "AdaptableModel":
        """Return the linear maps of a model with a configuration and head."""
        from zoo.nn.adapters import can_adapt

        modules = dict(model.named_modules())
        backbone = {entry.target for entry in family.weights(config, "none").entries()}
        sites = []
        for entry in family.weights(config, head).entries():
            module = entry.target.removesuffix(WEIGHT)
            if entry.target not in backbone or module == entry.target:
                continue
            if len(entry.shape) == 2 and can_adapt(modules[module]):
                sites.append(Site(module, entry, list_parts(entry)))
        return cls(model, family, config, head, sites)

    @property
    def targets(self) -> "AdapterTargets":
        """The family's default targets."""
        return self.family.adapter_targets

    @property
    def names(self) -> list[str]:
        """Names of the Hub's modules."""
        names = []
        for site in self.sites:
            names += [part.name for part in site.parts.values()]
        return names

    def select(
        self, setting: Sequence[str] | str | None, default: Iterable[str]
    ) -> tuple[str, ...]:
        """Return the targets of a setting, or the default's as far as the model has them."""
        if setting is not None:
            targets = list_names(setting)
            for target in targets:
                if target != ALL_LINEAR and not self._has_target(target):
                    raise UsageError(
                        f"no linear map of {self.family.name} is called {target!r}",
                        self._suggest_targets(target),
                    )
        else:
            targets = tuple(target for target in default if self._has_target(target))
        if not targets and not self.sites:
            raise UsageError(
                f"{with_head(self.family.name, self.head)} has no linear maps that an adapter "
                "changes",
                "train all weights, or choose --adapter prompt",
            )
        if not targets:
            raise UsageError(
                f"{self.family.name} has no default targets of adapters with the head {self.head}",
                f"--set adapter.target_modules=[...] names some of {self._last_names()}",
            )
        return targets

    def _has_target(self, target: str) -> bool:
        return any(matches(name, target) for name in self.names)

    def _suggest_targets(self, target: str) -> str:
        """Return names that are similar to a target that the model lacks, or all names."""
        endings = set[str]()
        for name in self.names:
            endings.update(_endings(name))
        suggestion = did_you_mean(target, sorted(endings, key=len))
        return suggestion or f"there are {self._last_names()}"

    def find_sites(self, targets: Sequence[str]) -> list[Site]:
        """Return the linear maps that targets name, each with the parts that they name."""
        sites = []
        for site in self.sites:
            parts = {}
            for number, part in site.parts.items():
                if any(target == ALL_LINEAR or matches(part.name, target) for target in targets):
                    parts[number] = part
            if parts:
                sites.append(Site(site.module, site.entry, parts))
        return sites

    def _last_names(self) -> str:
        """Return the last parts of the modules' names, for an error message."""
        last_names = list(dict.fromkeys(name.rpartition(".")[2] for name in self.names))
        names = last_names[:MAX_NAMES_SHOWN]
        if len(last_names) > MAX_NAMES_SHOWN:
            names.append("...")
        return ", ".join(names)


def list_parts(entry: TensorMapping) -> dict[str, Part]:
    """Return the Hub's matrices of a rule, by the number of the source.

    A matrix that is not the weight of a module there has the name of our module.
    """
    names = [source.removesuffix(WEIGHT) for source in entry.sources]
    if not any(source.endswith(WEIGHT) for source in entry.sources):
        return {"0": Part(entry.target.removesuffix(WEIGHT), range(entry.shape[0]), in_hub=False)}
    if len(names) == 1:
        return {"0": Part(names[0], range(entry.shape[0]))}
    parts = {}
    end = 0
    for number, (name, shape) in enumerate(zip(names, entry.source_shapes, strict=True)):
        parts[str(number)] = Part(name, range(end, end + shape[0]))
        end += shape[0]
    return parts


def list_names(setting: Sequence[str] | str | None) -> tuple[str, ...]:
    """Return the names of a setting that may be one name, or none."""
    if isinstance(setting, str):
        return (setting,)
    return tuple(setting or ())


def matches(name: str, target: str) -> bool:
    """Return whether a target means a module: its name, or the last parts of it."""
    return name == target or name.endswith(f".{target}")


def _endings(name: str) -> list[str]:
    pieces = name.split(".")
    return [".".join(pieces[-count:]) for count in (1, 2) if count <= len(pieces)]
