"""The closed account: where each tensor of a file goes, and where each of ours comes from.

Worked out from names, dtypes and shapes alone. An account that is not closed stops a conversion.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from zoo.errors import VerificationError
from zoo.io.tensors.formats import TensorInfo
from zoo.weights.prefix import canonical_names, find_prefix
from zoo.weights.rules import Ignore, TensorMapping, WeightMap

SHOWN = 6


@dataclass(frozen=True)
class TensorCopy:
    """An entry with the names that the file at hand uses.

    Attributes:
        entry: the rule for this tensor.
        names: the file's names for ``entry.sources``, in order; empty if the tensor is fresh.
        dtype: the dtype the file stores.
    """

    entry: TensorMapping
    names: tuple[str, ...]
    dtype: str


@dataclass(frozen=True)
class MappingReport:
    """Every tensor of a file and every tensor of ours, each with what becomes of it.

    Attributes:
        moves: what is read from the file.
        drops: file name -> the drop that leaves it out.
        ties: file name of an alias -> file name of its owner; the values must be equal.
        prefix: what stands in front of the trunk's tensors in the file.
        renamed: file name -> its present form, where it is a legacy one.
        fresh: tensors of a new head that the user asked to initialise.
        absent: optional parts that the file does not have.
        present: optional parts that it has.
        unexpected: names in the file that no rule knows.
        missing: names of the Hub's layout that the file lacks.
        shape_mismatches: one line for each tensor with another shape or dtype than the rules say.
    """

    moves: tuple[TensorCopy, ...]
    drops: Mapping[str, Ignore] = field(default_factory=dict)
    ties: Mapping[str, str] = field(default_factory=dict)
    prefix: str = ""
    renamed: Mapping[str, str] = field(default_factory=dict)
    fresh: tuple[TensorMapping, ...] = ()
    absent: tuple[str, ...] = ()
    present: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    shape_mismatches: tuple[str, ...] = ()

    @property
    def closed(self) -> bool:
        """Whether nothing is left over on either side."""
        return not (self.unexpected or self.missing or self.shape_mismatches)

    @property
    def open_items(self) -> int:
        """How many tensors are not accounted for."""
        return len(self.unexpected) + len(self.missing) + len(self.shape_mismatches)

    def raise_if_incomplete(self, where: str, hint: str = "") -> None:
        """Stop unless the account is closed.

        Raises:
            VerificationError: names what is left over, missing or of another shape.
        """
        if self.closed:
            return
        problems = [
            _some(self.shape_mismatches, "of another shape"),
            _some(self.missing, "missing from the file"),
            _some(self.unexpected, "in the file that no rule knows"),
        ]
        raise VerificationError(
            f"{where}: the account of tensors is open: {'; '.join(filter(None, problems))}",
            hint or "nothing was written",
        )


def match_tensors(
    weights: WeightMap,
    tensors: Mapping[str, TensorInfo],
    *,
    ignored: Mapping[str, str] | None = None,
    init: Collection[str] = (),
    declared_optional: Collection[str] = (),
) -> MappingReport:
    """Work out the account of a file against a weight map.

    Args:
        weights: the rules for a configuration and head.
        tensors: what the file's header declares.
        ignored: canonical names of other heads' tensors that may be left out -> the reason.
        init: those of our tensors that may be initialised if the file lacks them.
        declared_optional: optional parts that may not be absent.

    Raises:
        VerificationError: the prefix of the trunk is ambiguous, or the configuration counts more
            parts than the file has tensors, which could take for ever to list.
    """
    check_counts(weights, tensors)
    return _Matcher(weights, tensors, ignored or {}, init).close(declared_optional)


def check_counts(weights: WeightMap, tensors: Collection[str], source: str = "") -> None:
    """Check that a configuration does not count many more parts than a file has tensors.

    Args:
        weights: the rules for the configuration.
        tensors: names of the tensors of the file.
        source: directory of both, for the message.

    Raises:
        VerificationError: it does; to list all of them would take long.
    """
    most = max([len(weights.rules), *weights.counts.values()])
    if most > max(1000, len(tensors)):
        place = f"{source}: " if source else ""
        raise VerificationError(
            f"{place}the configuration counts {most:,} layers, and the file has {len(tensors)} "
            "tensors",
            "they belong to different checkpoints",
        )


class _Matcher:
    """The work in progress: what each name of the file turned out to be."""

    def __init__(
        self,
        weights: WeightMap,
        tensors: Mapping[str, TensorInfo],
        ignored: Mapping[str, str],
        init: Collection[str],
    ) -> None:
        self.weights, self.tensors, self.ignored, self.init = weights, tensors, ignored, init
        self.entries = weights.entries()
        self.aliases, self.dropped = weights.aliases(), weights.dropped()
        every = [*(s for e in self.entries for s in e.sources), *self.aliases, *self.dropped]
        trunk = {
            name.removeprefix(weights.prefix) for name in every if name.startswith(weights.prefix)
        }
        self.prefix = find_prefix(weights, tensors, trunk)
        self.canonical = canonical_names(weights, tensors, trunk, self.prefix)
        self.file_name: dict[str, str] = {}
        self.twice: list[str] = []
        for name, known in self.canonical.items():
            if known in self.file_name:
                self.twice.append(f"{name} and {self.file_name[known]} (both are {known})")
            self.file_name.setdefault(known, name)

    def close(self, declared_optional: Collection[str]) -> MappingReport:
        moves, fresh, missing, misshaped = [], [], [], list(self.twice)
        self._adopt_owners()
        absent = self._absent() - set(declared_optional)
        for entry in self.entries:
            if entry.optional in absent:
                continue
            lacking = [s for s in entry.sources if s not in self.file_name]
            if len(lacking) == len(entry.sources) and entry.target in self.init:
                fresh.append(entry)
            elif lacking:
                missing += lacking
            else:
                names = tuple(self.file_name[s] for s in entry.sources)
                misshaped += self._misfits(entry, names)
                moves.append(TensorCopy(entry, names, self.tensors[names[0]].dtype))
        drops, ties, unexpected = self._leftovers()
        optional = {entry.optional for entry in self.entries} - {""}
        return MappingReport(
            moves=tuple(moves),
            drops=drops,
            ties=ties,
            prefix=self.prefix,
            renamed={
                n: self.weights.current(n) for n in self.tensors if n != self.weights.current(n)
            },
            fresh=tuple(fresh),
            absent=tuple(sorted(absent)),
            present=tuple(sorted(optional - absent)),
            unexpected=tuple(unexpected),
            missing=tuple(missing),
            shape_mismatches=tuple(misshaped),
        )

    def _adopt_owners(self) -> None:
        """Where a file stores a tied tensor under its alias alone, the alias is the owner."""
        for alias, owner in self.aliases.items():
            if owner not in self.file_name and alias in self.file_name:
                self.file_name[owner] = self.file_name[alias]

    def _absent(self) -> set[str]:
        seen: dict[str, bool] = {}
        for entry in self.entries:
            here = any(s in self.file_name for s in entry.sources)
            seen[entry.optional] = seen.get(entry.optional, False) or here
        return {name for name, here in seen.items() if name and not here}

    def _misfits(self, entry: TensorMapping, names: Sequence[str]) -> list[str]:
        lines = []
        for name, shape in zip(names, entry.source_shapes, strict=True):
            if self.tensors[name].shape != shape:
                lines.append(f"{name} {_dims(self.tensors[name].shape)}, not {_dims(shape)}")
        if len({self.tensors[name].dtype for name in names}) > 1:
            lines.append(f"{', '.join(names)}: of several dtypes")
        return lines

    def _leftovers(self) -> tuple[dict[str, Ignore], dict[str, str], list[str]]:
        drops: dict[str, Ignore] = {}
        ties: dict[str, str] = {}
        unexpected = []
        # a source that is there and lacks its counterpart is not unexpected, nor is a name's double
        read = {self.file_name.get(source) for entry in self.entries for source in entry.sources}
        for name, known in self.canonical.items():
            if name in read or self.file_name[known] != name:
                continue
            if known in self.aliases and self.aliases[known] in self.file_name:
                ties[name] = self.file_name[self.aliases[known]]
            elif known in self.dropped:
                drops[name] = self.dropped[known]
            elif known in self.ignored:
                drops[name] = Ignore(known, self.ignored[known])
            else:
                unexpected.append(name)
        return drops, ties, unexpected


def _some(items: Sequence[str], what: str) -> str:
    if not items:
        return ""
    more = f" and {len(items) - SHOWN} more" if len(items) > SHOWN else ""
    return f"{len(items)} {what} ({', '.join(items[:SHOWN])}{more})"


def _dims(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"
