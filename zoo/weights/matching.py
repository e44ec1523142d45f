"""Matching of the tensors of a file with the rules of a family."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from zoo.errors import VerificationError, first_names
from zoo.io.tensors.formats import DTYPE_NAMES, FLOATING, TensorInfo, widest_dtype
from zoo.weights.rules import Constant, Ignore, TensorMapping, WeightMap


def find_prefix(weights: WeightMap, names: Iterable[str], backbone: set[str]) -> str:
    """Return the prefix of the backbone's tensors in a file."""
    votes: Counter[str] = Counter()
    for name in names:
        present = weights.current(name)
        cuts = [0, *(k + 1 for k, c in enumerate(present) if c == ".")]
        votes.update(present[:cut] for cut in cuts if present[cut:] in backbone)
    ranked = votes.most_common(2)
    if len(ranked) == 2 and ranked[0][1] == ranked[1][1]:
        prefixes = sorted(p for p, n in votes.items() if n == ranked[0][1])
        raise VerificationError(
            f"the file holds {len(prefixes)} backbones of this family, under {', '.join(prefixes)}",
            "split it: which one to convert is ambiguous",
        )
    return ranked[0][0] if ranked else weights.prefix


def canonical_names(
    weights: WeightMap, names: Iterable[str], backbone: set[str], prefix: str
) -> dict[str, str]:
    """Map each name of a file to the name that the rules use, in the order of ``names``."""
    outer = prefix.removesuffix(weights.prefix)  # of a wrapper, such as "module."
    canonical = {}
    for name in names:
        present = weights.current(name)
        rest = present.removeprefix(prefix)
        if present.startswith(prefix) and rest in backbone:
            canonical[name] = weights.prefix + rest
        else:
            canonical[name] = present.removeprefix(outer)
    return canonical


QUANTIZED_HINT = "convert the model from before it was quantized, or store these tensors as float32"


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
        return (
            len(self.unexpected)
            + len(self.missing)
            + len(self.shape_mismatches)
            + len(self.not_floating)
        )

    def raise_if_incomplete(
        self, location: str, hint: str = "", causes: Sequence[str] = ()
    ) -> None:
        """Raise an error unless every tensor is accounted for."""
        if self.complete:
            return
        tensors_by_problem = {
            "of a different shape": self.shape_mismatches,
            "missing from the file": self.missing,
            "in the file that no rule knows": self.unexpected,
            "that should hold floating-point numbers": self.not_floating,
        }
        problems = []
        for problem, names in tensors_by_problem.items():
            if names:
                problems.append(f"{len(names)} {problem} ({first_names(names)})")
        if self.not_floating:
            hint = QUANTIZED_HINT
        mismatch = f"the tensors do not match the rules: {'; '.join(problems)}"
        raise VerificationError(
            f"{location}: {'; '.join([*causes, mismatch])}",
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
    """Match the tensors of a file with rules.

    Only names, dtypes and shapes are compared. Every tensor of the file and every tensor of the
    model has to be accounted for; else the report is incomplete, which stops a conversion.
    """
    check_counts(weights, tensors)
    return _Matcher(weights, tensors, ignored or {}, init).close(declared_optional)


def check_counts(weights: WeightMap, tensors: Collection[str], source: str = "") -> None:
    """Check that a configuration does not have far more layers than a file has tensors."""
    largest_count = max([len(weights.rules), *weights.counts.values()])
    if largest_count > max(1000, len(tensors)):
        location = f"{source}: " if source else ""
        raise VerificationError(
            f"{location}the configuration counts {largest_count:,} layers, and the file has "
            f"{len(tensors)} tensors",
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
        self.unused = set[str]()
        for names in weights.copies().values():
            self.unused.update(names)
        rule_names = list[str]()
        for entry in self.entries:
            rule_names += entry.sources
        rule_names += [*self.aliases, *self.dropped, *self.constants]
        backbone = set()
        for name in rule_names:
            if name.startswith(weights.prefix):
                backbone.add(name.removeprefix(weights.prefix))
        self.prefix = find_prefix(weights, tensors, backbone)
        self.canonical = canonical_names(weights, tensors, backbone, self.prefix)
        self.file_name: dict[str, str] = {}
        self.duplicates: list[str] = []
        for name, hub_name in self.canonical.items():
            if hub_name in self.file_name:
                first_name = self.file_name[hub_name]
                self.duplicates.append(f"{name} and {first_name} (both are {hub_name})")
            self.file_name.setdefault(hub_name, name)

    def close(self, declared_optional: Collection[str]) -> MappingReport:
        copies = []
        initialized = []
        missing = []
        misshaped = list(self.duplicates)
        integers: list[str] = []
        adopted = self._adopt_owners()
        optional_parts, absent = self._optional_parts(declared_optional)
        for entry in self.entries:
            if entry.optional in absent:
                continue
            missing_sources = [name for name in entry.sources if name not in self.file_name]
            if len(missing_sources) == len(entry.sources) and entry.target in self.init:
                initialized.append(entry)
                continue
            if missing_sources:
                missing += missing_sources
                continue
            names = tuple(self.file_name[source] for source in entry.sources)
            codes = tuple(self.tensors[name].dtype for name in names)
            for name, shape in zip(names, entry.source_shapes, strict=True):
                misshaped += self._other_shape(name, shape)
            integers += _integer_tensors(names, codes)
            copies.append(TensorCopy(entry, names, codes))
        constants = {}
        for hub_name, constant in self.constants.items():
            if hub_name in self.file_name:
                constants[self.file_name[hub_name]] = constant
        for name, constant in constants.items():
            misshaped += self._other_shape(name, constant.shape)
        drops, ties, unused, unexpected = self._leftovers(constants)
        return MappingReport(
            copies=tuple(copies),
            drops=drops,
            ties=ties,
            constants=constants,
            unused=unused,
            adopted=adopted,
            prefix=self.prefix,
            renamed=self._renamed(),
            initialized=tuple(initialized),
            absent=tuple(sorted(absent)),
            present=tuple(sorted(optional_parts - absent)),
            unexpected=tuple(unexpected),
            missing=tuple(missing),
            shape_mismatches=tuple(misshaped),
            not_floating=tuple(integers),
        )

    def _renamed(self) -> dict[str, str]:
        """Return legacy name in the file -> current name."""
        renamed = {}
        for name in self.tensors:
            current_name = self.weights.current(name)
            if current_name != name:
                renamed[name] = current_name
        return renamed

    def _optional_parts(self, declared_optional: Collection[str]) -> tuple[set[str], set[str]]:
        """Return the optional parts of the model, and those that the file lacks."""
        parts = {entry.optional for entry in self.entries if entry.optional}
        absent = parts - set(declared_optional)
        for entry in self.entries:
            if any(source in self.file_name for source in entry.sources):
                absent.discard(entry.optional)
        return parts, absent

    def _adopt_owners(self) -> dict[str, str]:
        """Read a tensor from its alias, or from its fallback, where the file stores only that."""
        adopted: dict[str, str] = {}
        for entry in self.entries:
            source = entry.sources[0]
            fallback_name = self.file_name.get(entry.fallback)
            if fallback_name is not None and source not in self.file_name:
                self.file_name[source] = fallback_name
                adopted.setdefault(fallback_name, source)
        for alias, owner in self.aliases.items():
            if owner not in self.file_name and alias in self.file_name:
                self.file_name[owner] = self.file_name[alias]
                adopted[self.file_name[alias]] = owner
        return adopted

    def _other_shape(self, name: str, shape: Sequence[int]) -> list[str]:
        actual_shape = self.tensors[name].shape
        if actual_shape == shape:
            return []
        return [f"{name} {_dims(actual_shape)}, not {_dims(shape)}"]

    def _leftovers(
        self, constants: Collection[str]
    ) -> tuple[dict[str, Ignore], dict[str, str], dict[str, str], list[str]]:
        """Return the drops, ties, unused copies and unexpected names; see ``MappingReport``."""
        drops: dict[str, Ignore] = {}
        ties: dict[str, str] = {}
        unused: dict[str, str] = {}
        unexpected = []
        # Two names are not unexpected: a source whose entry lacks another source, which is
        # reported as missing, and a second name of one tensor, which is a shape mismatch.
        source_names = set[str | None]()
        for entry in self.entries:
            source_names.update(self.file_name.get(source) for source in entry.sources)
        for name, hub_name in self.canonical.items():
            if name in source_names or name in constants or self.file_name[hub_name] != name:
                continue
            owner = self.file_name.get(self.aliases.get(hub_name, ""))
            if owner and hub_name in self.unused:
                drops[name] = Ignore(hub_name, f"the model uses {owner} instead")
                unused[name] = owner
            elif owner:
                ties[name] = owner
            elif hub_name in self.dropped:
                drops[name] = self.dropped[hub_name]
            elif hub_name in self.ignored:
                drops[name] = Ignore(hub_name, self.ignored[hub_name])
            else:
                unexpected.append(name)
        return drops, ties, unused, unexpected


def _integer_tensors(names: Sequence[str], codes: Sequence[str]) -> list[str]:
    """Return a line for each tensor that the file stores as integers."""
    lines = []
    for name, code in zip(names, codes, strict=True):
        if code not in FLOATING:
            lines.append(f"{name} is {DTYPE_NAMES[code]}")
    return lines


def _dims(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"
