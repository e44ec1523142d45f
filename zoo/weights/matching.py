"""Matching of the tensors of a file with the rules of a family."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from zoo.errors import VerificationError, first_names
from zoo.io.tensors.formats import DTYPE_NAMES, FLOATING, TensorInfo, widest_dtype
from zoo.weights.prefix import canonical_names, find_prefix
from zoo.weights.rules import Constant, Ignore, TensorMapping, WeightMap

QUANTIZED = "convert the model from before it was quantized, or store these tensors as float32"


@dataclass(frozen=True)
class TensorCopy:
    """A tensor of the model that is read from the file."""

    entry: TensorMapping  # its rule
    names: tuple[str, ...]  # names of ``entry.sources`` in the file, in order
    dtypes: tuple[str, ...]  # safetensors code of each in the file

    @property
    def dtype(self) -> str:
        """Code of the smallest dtype that holds the values of all exactly."""
        return widest_dtype(self.dtypes)


@dataclass(frozen=True)
class MappingReport:
    """Result of matching the tensors of a file with a model's."""

    copies: tuple[TensorCopy, ...]
    # name in the file -> the rule that ignores it
    drops: Mapping[str, Ignore] = field(default_factory=dict)
    # name of an alias in the file -> name of its owner; their values must be equal
    ties: Mapping[str, str] = field(default_factory=dict)
    # name in the file -> the constant, whose values must be equal
    constants: Mapping[str, Constant] = field(default_factory=dict)
    # name of a dropped copy in the file -> name of the tensor that is read instead
    unused: Mapping[str, str] = field(default_factory=dict)
    # name of an alias in the file -> Hub name of its owner, which the file lacks and which is read
    # from the alias
    adopted: Mapping[str, str] = field(default_factory=dict)
    prefix: str = ""  # prefix of the backbone's tensors in the file
    # legacy name in the file -> current name
    renamed: Mapping[str, str] = field(default_factory=dict)
    # tensors of the model that are initialized, because the user allowed it
    initialized: tuple[TensorMapping, ...] = ()
    absent: tuple[str, ...] = ()  # optional parts that the file lacks
    present: tuple[str, ...] = ()  # optional parts that the file has
    unexpected: tuple[str, ...] = ()  # names in the file that match no rule
    missing: tuple[str, ...] = ()  # Hub names that the file lacks
    # a line for each tensor whose shape contradicts the rules
    shape_mismatches: tuple[str, ...] = ()
    # a line for each tensor of the model that the file stores as integers
    not_floating: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """``True`` if every tensor is accounted for."""
        return not self.open_items

    @property
    def open_items(self) -> int:
        """Number of tensors that are not accounted for."""
        problems = self.unexpected, self.missing, self.shape_mismatches, self.not_floating
        return sum(map(len, problems))

    def raise_if_incomplete(
        self, location: str, hint: str = "", causes: Sequence[str] = ()
    ) -> None:
        """Raise an error unless every tensor is accounted for."""
        if self.complete:
            return
        found = {
            "of a different shape": self.shape_mismatches,
            "missing from the file": self.missing,
            "in the file that no rule knows": self.unexpected,
            "that should hold floating-point numbers": self.not_floating,
        }
        problems = [
            f"{len(names)} {problem} ({first_names(names)})"
            for problem, names in found.items()
            if names
        ]
        if self.not_floating:
            hint = QUANTIZED
        raise VerificationError(
            f"{location}: {''.join(f'{cause}; ' for cause in causes)}the tensors do not "
            f"match the rules: {'; '.join(problems)}",
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
    """Match the tensors of a file with rules."""
    # It only uses names, dtypes and shapes. Every tensor of the file and every tensor of the model
    # has to be accounted for; else the report is incomplete, which stops a conversion.
    check_counts(weights, tensors)
    return _Matcher(weights, tensors, ignored or {}, init).close(declared_optional)


def check_counts(weights: WeightMap, tensors: Collection[str], source: str = "") -> None:
    """Check that a configuration does not have far more layers than a file has tensors."""
    most = max([len(weights.rules), *weights.counts.values()])
    if most > max(1000, len(tensors)):
        place = f"{source}: " if source else ""
        raise VerificationError(
            f"{place}the configuration counts {most:,} layers, and the file has {len(tensors)} "
            "tensors",
            "they belong to different checkpoints",
        )


class _Matcher:
    """The state of matching one file: canonical names, and the file's name of each."""

    def __init__(
        self,
        weights: WeightMap,
        tensors: Mapping[str, TensorInfo],
        ignored: Mapping[str, str],
        init: Collection[str],
    ) -> None:
        self.weights = weights
        self.tensors = tensors
        self.ignored = ignored
        self.init = init
        self.entries = weights.entries()
        self.aliases = weights.aliases()
        self.dropped = weights.dropped()
        self.constants = weights.constant_tensors()
        self.unused = {alias for names in weights.copies().values() for alias in names}
        sources = (source for entry in self.entries for source in entry.sources)
        backbone = {
            name.removeprefix(weights.prefix)
            for name in (*sources, *self.aliases, *self.dropped, *self.constants)
            if name.startswith(weights.prefix)
        }
        self.prefix = find_prefix(weights, tensors, backbone)
        self.canonical = canonical_names(weights, tensors, backbone, self.prefix)
        self.file_name: dict[str, str] = {}
        self.twice: list[str] = []
        for name, known in self.canonical.items():
            if known in self.file_name:
                self.twice.append(f"{name} and {self.file_name[known]} (both are {known})")
            self.file_name.setdefault(known, name)

    def close(self, declared_optional: Collection[str]) -> MappingReport:
        copies = []
        initialized = []
        missing = []
        misshaped = list(self.twice)
        integers: list[str] = []
        adopted = self._adopt_owners()
        in_file: dict[str, bool] = {}  # optional part -> whether it has a tensor in the file
        for entry in self.entries:
            stored = any(s in self.file_name for s in entry.sources)
            in_file[entry.optional] = in_file.get(entry.optional, False) or stored
        absent = {part for part, stored in in_file.items() if part and not stored}
        absent -= set(declared_optional)
        for entry in self.entries:
            if entry.optional in absent:
                continue
            lacking = [s for s in entry.sources if s not in self.file_name]
            if len(lacking) == len(entry.sources) and entry.target in self.init:
                initialized.append(entry)
            elif lacking:
                missing += lacking
            else:
                names = tuple(self.file_name[s] for s in entry.sources)
                for name, shape in zip(names, entry.source_shapes, strict=True):
                    misshaped += self._other_shape(name, shape)
                codes = tuple(self.tensors[name].dtype for name in names)
                integers += [
                    f"{name} is {DTYPE_NAMES[code]}"
                    for name, code in zip(names, codes, strict=True)
                    if code not in FLOATING
                ]
                copies.append(TensorCopy(entry, names, codes))
        constants = {
            self.file_name[known]: constant
            for known, constant in self.constants.items()
            if known in self.file_name
        }
        for name, constant in constants.items():
            misshaped += self._other_shape(name, constant.shape)
        drops, ties, unused, unexpected = self._leftovers(constants)
        optional = {entry.optional for entry in self.entries} - {""}
        return MappingReport(
            copies=tuple(copies),
            drops=drops,
            ties=ties,
            constants=constants,
            unused=unused,
            adopted=adopted,
            prefix=self.prefix,
            renamed={
                n: self.weights.current(n) for n in self.tensors if n != self.weights.current(n)
            },
            initialized=tuple(initialized),
            absent=tuple(sorted(absent)),
            present=tuple(sorted(optional - absent)),
            unexpected=tuple(unexpected),
            missing=tuple(missing),
            shape_mismatches=tuple(misshaped),
            not_floating=tuple(integers),
        )

    def _adopt_owners(self) -> dict[str, str]:
        """Read a tensor from its alias, or from its fallback, where the file stores only that."""
        adopted: dict[str, str] = {}
        for entry in self.entries:
            source = entry.sources[0]
            stored = self.file_name.get(entry.fallback)
            if stored is not None and source not in self.file_name:
                self.file_name[source] = stored
                adopted.setdefault(stored, source)
        for alias, owner in self.aliases.items():
            if owner not in self.file_name and alias in self.file_name:
                self.file_name[owner] = self.file_name[alias]
                adopted[self.file_name[alias]] = owner
        return adopted

    def _other_shape(self, name: str, shape: Sequence[int]) -> list[str]:
        actual = self.tensors[name].shape
        return [] if actual == shape else [f"{name} {_dims(actual)}, not {_dims(shape)}"]

    def _leftovers(
        self, constants: Collection[str]
    ) -> tuple[dict[str, Ignore], dict[str, str], dict[str, str], list[str]]:
        """Return the drops, ties, unused copies and unexpected names; see ``MappingReport``."""
        drops: dict[str, Ignore] = {}
        ties: dict[str, str] = {}
        unused: dict[str, str] = {}
        unexpected = []
        # Not unexpected are a source whose entry lacks another source, which is missing, and a
        # second name of one tensor, which is a shape mismatch.
        read = {self.file_name.get(source) for entry in self.entries for source in entry.sources}
        for name, known in self.canonical.items():
            if name in read or name in constants or self.file_name[known] != name:
                continue
            owner = self.file_name.get(self.aliases.get(known, ""))
            if owner and known in self.unused:
                drops[name] = Ignore(known, f"the model uses {owner} instead")
                unused[name] = owner
            elif owner:
                ties[name] = owner
            elif known in self.dropped:
                drops[name] = self.dropped[known]
            elif known in self.ignored:
                drops[name] = Ignore(known, self.ignored[known])
            else:
                unexpected.append(name)
        return drops, ties, unused, unexpected


def _dims(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"
