"""The rule list: templates that name Hub tensors and ours, read in both directions.

A template holds placeholders and no regular expression: ``{i}`` and ``{j}`` run over the counts
that the map gives, ``{p}`` over ``weight`` and ``bias``. Both sides of a rule expand with the
same bindings, so a rule inverts by construction and the full list of tensors is known from a
configuration alone: no file, and no torch.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from string import Formatter
from typing import TYPE_CHECKING, Any, Self

from zoo.io import limits
from zoo.weights.ops import SAME, Op, Shape

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Rule:
    """One or several Hub tensors become one of ours.

    Attributes:
        source: template of the Hub's name, or several where ``op`` joins them. Names carry the
            prefix of the family's head models, see ``WeightMap.prefix``.
        target: template of our name.
        shape: shape of our tensor. With ``{p}`` it is the weight's, and the bias has its first
            dimension.
        op: how the bytes are rearranged.
        optional: name of a boolean field of the configuration that says whether the tensors
            are there. The checkpoint decides it: all of the rules with that name are present,
            or none.
    """

    source: str | tuple[str, ...]
    target: str
    shape: Shape
    op: Op = SAME
    optional: str = ""


@dataclass(frozen=True)
class Ignore:
    """A Hub tensor that is left out.

    Attributes:
        source: template of its name.
        reason: the reason, printed in the account.
        value_check: a check of its values where only known values may go, such as ``is_arange``.
    """

    source: str
    reason: str
    value_check: "Callable[[NDArray[np.generic[Any]]], bool] | None" = None


@dataclass(frozen=True)
class TiedAlias:
    """A Hub tensor that is another name for the one that a rule reads.

    Attributes:
        source: template of the alias.
        to: template of the tensor that owns the values, the source of a rule.
        stored: whether the Hub's class, which does not tie them, wants both in the file.
    """

    source: str
    to: str
    stored: bool = False


@dataclass(frozen=True)
class TensorMapping:
    """A rule for one tensor of ours: every placeholder filled in."""

    sources: tuple[str, ...]
    target: str
    shape: Shape
    op: Op
    optional: str

    @property
    def source_shapes(self) -> tuple[Shape, ...]:
        """Shapes of the Hub tensors."""
        return self.op.hub_shapes(self.shape)


@dataclass(frozen=True)
class WeightMap:
    """All rules for one configuration and head.

    Attributes:
        rules: what becomes what.
        drops: what is left out, and why.
        ties: what is stored twice.
        legacy: old last components of a name and their present form, such as
            ``LayerNorm.gamma`` -> ``LayerNorm.weight``. Only whole components at the end match.
        prefix: what names of trunk tensors begin with in head models. A bare trunk is stored
            without it, and wrappers put more in front: the engine finds what a file uses.
        counts: how far each numeric placeholder runs.
    """

    rules: Sequence[Rule]
    drops: Sequence[Ignore] = ()
    ties: Sequence[TiedAlias] = ()
    legacy: Mapping[str, str] = field(default_factory=dict)
    prefix: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)

    def plus(
        self,
        *rules: Rule,
        drops: Sequence[Ignore] = (),
        ties: Sequence[TiedAlias] = (),
    ) -> Self:
        """Return the map with a head's rules added."""
        return replace(
            self,
            rules=(*self.rules, *rules),
            drops=(*self.drops, *drops),
            ties=(*self.ties, *ties),
        )

    def entries(self) -> list[TensorMapping]:
        """Expand the rules: one entry for each tensor of ours, in the order of the list."""
        return [entry for rule in self.rules for entry in self._expand(rule)]

    def parameters(self) -> int:
        """Count the parameters, tied ones once."""
        return sum(math.prod(entry.shape) for entry in self.entries())

    def aliases(self) -> dict[str, str]:
        """Expand the ties: alias -> owner, both Hub names."""
        return {
            tie.source.format(**b): tie.to.format(**b)
            for tie in self.ties
            for b in self._bindings(tie.source)
        }

    def copies(self) -> dict[str, tuple[str, ...]]:
        """Return owner -> the aliases that the Hub's class wants in the file too."""
        found: dict[str, tuple[str, ...]] = {}
        for tie in self.ties:
            for b in self._bindings(tie.source) if tie.stored else ():
                owner = tie.to.format(**b)
                found[owner] = (*found.get(owner, ()), tie.source.format(**b))
        return found

    def dropped(self) -> dict[str, Ignore]:
        """Expand the drops by Hub name."""
        return {
            drop.source.format(**b): drop
            for drop in self.drops
            for b in self._bindings(drop.source)
        }

    def written(self, name: str) -> str:
        """Return the name under which the Hub's class for this head stores a tensor.

        A map without a head describes the bare trunk, which the Hub stores without prefix.
        """
        return name.removeprefix(self.prefix) if self.bare else name

    @property
    def bare(self) -> bool:
        """Whether there is no head: every rule is the trunk's, and every tie."""
        sources = [(r.source,) if isinstance(r.source, str) else r.source for r in self.rules]
        sources += [(tie.source,) for tie in self.ties]
        return all(name.startswith(self.prefix) for names in sources for name in names)

    def current(self, name: str) -> str:
        """Return a name with a legacy ending replaced by its present form."""
        for old, new in self.legacy.items():
            if name == old or name.endswith("." + old):
                return name[: len(name) - len(old)] + new
        return name

    def _expand(self, rule: Rule) -> Iterator[TensorMapping]:
        sources = (rule.source,) if isinstance(rule.source, str) else rule.source
        for bound in self._bindings(*sources):
            target = rule.target.format(**bound)
            shape = rule.shape[:1] if bound.get("p") == "bias" else rule.shape
            names = tuple(source.format(**bound) for source in sources)
            yield TensorMapping(names, target, shape, rule.op, rule.optional)

    def _bindings(self, *templates: str) -> Iterator[dict[str, str]]:
        """Yield the values of placeholders, in every combination.

        Raises:
            VerificationError: they are more than a checkpoint may have tensors.
        """
        names = {key for text in templates for _, key, _, _ in Formatter().parse(text) if key}
        combinations = math.prod(self.counts[key] for key in names - {"p"})
        limits.check_limit(
            "the configuration", f"number of {templates[0]}", combinations, limits.TENSORS
        )
        values: dict[str, Sequence[str]] = {
            key: ("weight", "bias") if key == "p" else [str(n) for n in range(self.counts[key])]
            for key in sorted(names)
        }
        for chosen in itertools.product(*values.values()):
            yield dict(zip(values, chosen, strict=True))
