"""Weight rules: templates of Hub names and ours, used for import, export and checks.

A template has placeholders and no regular expressions: ``{i}`` and ``{j}`` run over ``counts`` of
the map, ``{p}`` over ``weight`` and ``bias``. Both sides of a rule expand with the same values, so
a rule is invertible, and a configuration determines all tensors, without file or torch.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from string import Formatter
from typing import TYPE_CHECKING, Any, Self

from zoo.io import limits
from zoo.io.sizes import check_size
from zoo.weights.ops import SAME, Op, Shape

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Rule:
    """Maps one or several Hub tensors to one of ours.

    Attributes:
        source: template of the Hub name, or of several that ``op`` joins. Names have the prefix
            of models with a head; see ``WeightMap.prefix``.
        target: template of our name.
        shape: shape of our tensor; with ``{p}``, of the weight, whose first dimension is the
            bias's.
        op: rearrangement of the bytes.
        optional: name of a boolean field of the configuration for an optional part. The
            checkpoint decides its value: it has all tensors of the rules with that name, or none.
        fallback: template of a Hub name that is read if a file lacks ``source``: of a table that
            is stored once for several parameters, although they are not tied.
    """

    source: str | tuple[str, ...]
    target: str
    shape: Shape
    op: Op = SAME
    optional: str = ""
    fallback: str = ""


@dataclass(frozen=True)
class Ignore:
    """A Hub tensor that is left out.

    Attributes:
        source: template of its name.
        reason: the reason, shown in reports.
        value_check: condition on the values, such as ``is_arange``; ``None`` for any values.
    """

    source: str
    reason: str
    value_check: "Callable[[NDArray[np.generic[Any]]], bool] | None" = None


@dataclass(frozen=True)
class TiedAlias:
    """A second Hub name of a tensor that a rule reads.

    Attributes:
        source: template of the alias.
        to: template of the owner of the values, the source of a rule.
        unused: the Hub's class has the alias as a parameter of its own, which its forward pass
            does not read. The alias is dropped where a file has both names, and a file of the
            Hub's layout gets both.
    """

    source: str
    to: str
    unused: bool = False


@dataclass(frozen=True)
class Constant:
    """A Hub tensor whose values follow from the configuration, such as sinusoidal positions."""

    # The model computes it itself, in a formula or in a buffer with ``persistent=False``, so that
    # it is neither trained nor stored. A source may lack the tensor. If it has the tensor, a
    # conversion compares the values; a conversion to the Hub's layout writes it.

    source: str  # template of its name
    shape: Shape  # shape of the tensor
    # function that returns the values, in float32 or integers
    values: "Callable[[], NDArray[np.generic[Any]]]"
    reason: str  # what it is, shown in reports
    # largest absolute difference from the values that is accepted in a source, for functions that
    # libraries round differently; by default the values must be equal. Half precision is compared
    # after rounding
    tolerance: float = 0.0
    written: bool = True  # whether the Hub's layout has the tensor


@dataclass(frozen=True)
class TensorMapping:
    """A rule for one tensor of ours, with the values of all placeholders."""

    sources: tuple[str, ...]
    target: str
    shape: Shape
    op: Op
    optional: str
    fallback: str = ""

    @property
    def source_shapes(self) -> tuple[Shape, ...]:
        """Shapes of the Hub tensors."""
        return self.op.hub_shapes(self.shape)


@dataclass(frozen=True)
class WeightMap:
    """All rules for one configuration and head.

    Attributes:
        rules: the tensors that are read.
        drops: the tensors that are left out.
        ties: the tensors that are aliases.
        constants: the tensors that follow from the configuration.
        legacy: old ending of a name -> current ending, in whole components, such as
            ``LayerNorm.gamma`` -> ``LayerNorm.weight``.
        prefix: prefix of the backbone's names in models with a head. A bare backbone is stored
            without it, wrappers add to it; matching finds the prefix that a file uses.
        counts: number of values of each numeric placeholder.
    """

    rules: Sequence[Rule]
    drops: Sequence[Ignore] = ()
    ties: Sequence[TiedAlias] = ()
    constants: Sequence[Constant] = ()
    legacy: Mapping[str, str] = field(default_factory=dict)
    prefix: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)

    def plus(
        self,
        *rules: Rule,
        drops: Sequence[Ignore] = (),
        ties: Sequence[TiedAlias] = (),
        constants: Sequence[Constant] = (),
    ) -> Self:
        """Return the map with further rules, such as a head's."""
        return replace(
            self,
            rules=(*self.rules, *rules),
            drops=(*self.drops, *drops),
            ties=(*self.ties, *ties),
            constants=(*self.constants, *constants),
        )

    def entries(self) -> list[TensorMapping]:
        """Return the expanded rules: one for each tensor of ours, in the order of ``rules``."""
        entries = []
        for rule in self.rules:
            sources = (rule.source,) if isinstance(rule.source, str) else rule.source
            for values in self._bindings(*sources):
                target = rule.target.format(**values)
                shape = rule.shape[:1] if values.get("p") == "bias" else rule.shape
                names = tuple(source.format(**values) for source in sources)
                fallback = rule.fallback.format(**values)
                entry = TensorMapping(names, target, shape, rule.op, rule.optional, fallback)
                entries.append(entry)
        return entries

    def targets(self) -> dict[tuple[str, ...], str]:
        """Return our names by their sources, without the prefix that depends on the head."""
        targets = {}
        for entry in self.entries():
            sources = tuple(source.removeprefix(self.prefix) for source in entry.sources)
            targets[sources] = entry.target
        return targets

    def parameters(self) -> int:
        """Return the number of parameters; tied ones count once."""
        return sum(math.prod(entry.shape) for entry in self.entries())

    def aliases(self) -> dict[str, str]:
        """Return the expanded ties: Hub name of the alias -> the owner's."""
        aliases = {}
        for tie in self.ties:
            for values in self._bindings(tie.source):
                aliases[tie.source.format(**values)] = tie.to.format(**values)
        return aliases

    def copies(self) -> dict[str, tuple[str, ...]]:
        """Return Hub name of an owner -> its aliases that the Hub's file stores as well."""
        aliases: dict[str, tuple[str, ...]] = {}
        for tie in self.ties:
            if not tie.unused:
                continue
            for values in self._bindings(tie.source):
                owner = tie.to.format(**values)
                aliases[owner] = (*aliases.get(owner, ()), tie.source.format(**values))
        return aliases

    def dropped(self) -> dict[str, Ignore]:
        """Return the expanded drops: Hub name -> drop."""
        drops = {}
        for drop in self.drops:
            for values in self._bindings(drop.source):
                drops[drop.source.format(**values)] = drop
        return drops

    def constant_tensors(self) -> dict[str, Constant]:
        """Return the expanded constants: Hub name -> constant."""
        constants = {}
        for constant in self.constants:
            for values in self._bindings(constant.source):
                constants[constant.source.format(**values)] = constant
        return constants

    def written(self, name: str) -> str:
        """Return the name under which the Hub's class for this head stores a tensor.

        The Hub stores a backbone without a head without ``prefix``.
        """
        return name.removeprefix(self.prefix) if self.bare else name

    @property
    def bare(self) -> bool:
        """``True`` if the map has no head: all rules and ties have the backbone's prefix."""
        names = [tie.source for tie in self.ties]
        for rule in self.rules:
            if isinstance(rule.source, str):
                names.append(rule.source)
            else:
                names += rule.source
        return all(name.startswith(self.prefix) for name in names)

    def current(self, name: str) -> str:
        """Return a name with a legacy ending replaced by the current one."""
        for old, new in self.legacy.items():
            if name == old or name.endswith("." + old):
                return name[: len(name) - len(old)] + new
        return name

    def _bindings(self, *templates: str) -> Iterator[dict[str, str]]:
        """Yield all combinations of the placeholders' values."""
        placeholders = set[str]()
        for template in templates:
            for _, placeholder, _, _ in Formatter().parse(template):
                if placeholder:
                    placeholders.add(placeholder)
        number = math.prod(self.counts[name] for name in placeholders - {"p"})
        check_size("the configuration", f"number of {templates[0]}", number, limits.MAX_TENSORS)
        values: dict[str, Sequence[str]] = {}
        for name in sorted(placeholders):
            if name == "p":
                values[name] = ("weight", "bias")
            else:
                values[name] = [str(index) for index in range(self.counts[name])]
        for combination in itertools.product(*values.values()):
            yield dict(zip(values, combination, strict=True))
