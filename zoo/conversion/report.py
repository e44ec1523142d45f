"""Report of a conversion: counts of tensors, as text, JSON and manifest entries."""

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from zoo.conversion.infer_head import ConversionPlan
from zoo.conversion.open import OpenCheckpoint
from zoo.conversion.unread_files import find_unread_files, unread_heads
from zoo.io.digests.files import FileDigest
from zoo.io.tensors.formats import DTYPE_NAMES, TensorReader, widest_dtype
from zoo.weights import MappingReport

if TYPE_CHECKING:
    from zoo.conversion.writers import CheckpointWriter

LISTED = 8


class Cast(NamedTuple):
    """Change of the dtype of a tensor."""

    old: str  # safetensors codes
    new: str
    mixed: bool  # it shares one of our tensors with tensors of a different dtype

    @property
    def codes(self) -> tuple[str, str]:
        """Both codes."""
        return self.old, self.new

    def __str__(self) -> str:
        """Return both dtypes by name."""
        return f"{DTYPE_NAMES[self.old]} to {DTYPE_NAMES[self.new]}"


@dataclass(frozen=True)
class ConversionReport:
    """Result of a conversion, or of its dry run."""

    reference: str
    family: str
    head: str
    format: str
    mapping: MappingReport
    parameters: int
    hidden_size: int
    dtypes: Mapping[str, int]  # dtype -> number of tensors written
    main_dtype: str  # safetensors code of the dtype with the most data
    quantized: tuple[str, ...] = ()  # types of the source's tensors, which float32 holds exactly
    rounded: str | None = None  # dtype that tensors were rounded to, or ``None``
    # tensor of the source -> its dtype and the one it is written in, where they differ
    casts: "Mapping[str, Cast]" = field(default_factory=dict)
    # tied or unused copy -> whether it equals the tensor that is read; ``None`` in a dry run,
    # which compares no values
    equal_copies: Mapping[str, bool] | None = None
    unknown: tuple[str, ...] = ()  # configuration keys that the family does not declare
    licence: str | None = None  # as the registry states
    tokenizer: bool = False
    path: Path | None = None
    sources: Mapping[str, FileDigest] = field(default_factory=dict)
    files: Mapping[str, FileDigest] = field(default_factory=dict)
    # folder of a module of a sentence encoder -> its tensors, which are copied
    modules: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    weight_files: tuple[str, ...] = ()  # files with the tensors of the source
    # file with weights or labels that is not read -> the reason
    unread_files: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        opened: OpenCheckpoint,
        plan: ConversionPlan,
        layout: "CheckpointWriter",
        tokenizer: bool,
        modules: Mapping[str, TensorReader],
    ) -> Self:
        """Return the report of a plan, written in a layout."""
        copies = plan.mapping.copies
        codes = Counter(code for copy in copies for code in layout.dtypes(copy))
        main = codes.most_common(1)[0][0] if codes else "F32"
        names = Counter({DTYPE_NAMES[code]: n for code, n in codes.items()})
        if initialized := len(plan.mapping.initialized):
            names[DTYPE_NAMES[layout.dtype or main]] += initialized
        changes = dict(_changes(opened, plan, layout))
        rounds = layout.dtype and any(widest_dtype(c.codes) != c.new for c in changes.values())
        manifest = opened.checkpoint.manifest if opened.checkpoint else None
        row = opened.source.row
        weight_files = [str(path) for path in opened.reader.files]
        of_modules = [str(path) for reader in modules.values() for path in reader.files]
        directory = f"{opened.source.directory}/"
        weight_files = [path.removeprefix(directory) for path in weight_files]
        read = [*opened.files_read(), *weight_files]
        read += [path.removeprefix(directory) for path in of_modules]
        written = [*(copy.entry for copy in copies), *plan.mapping.initialized]
        return cls(
            reference=opened.source.reference,
            family=opened.family.name,
            head=plan.head,
            format=opened.format,
            quantized=opened.quantized,
            mapping=plan.mapping,
            parameters=sum(math.prod(entry.shape) for entry in written)
            + sum(
                math.prod(i.shape) for reader in modules.values() for i in reader.tensors.values()
            ),
            hidden_size=getattr(plan.config, "hidden_size", 0),
            dtypes=dict(names),
            main_dtype=main,
            rounded=DTYPE_NAMES[layout.dtype] if layout.dtype and rounds else None,
            casts=changes,
            unknown=opened.unknown,
            licence=manifest.licence if manifest else (row.licence if row else None),
            tokenizer=tokenizer,
            weight_files=tuple(weight_files),
            unread_files=find_unread_files(opened.source.all_names(), read),
            modules={folder: tuple(sorted(reader.tensors)) for folder, reader in modules.items()},
        )

    def finished(
        self, path: Path, sources: Mapping[str, FileDigest], files: Mapping[str, FileDigest]
    ) -> Self:
        """Return the report with the files that were read and written."""
        return replace(self, path=path, sources=sources, files=files)

    @property
    def replaced_heads(self) -> list[str]:
        """Files with a trained head that is not read, while the result has a new one."""
        return unread_heads(self.unread_files) if self.mapping.initialized else []

    @property
    def mapped(self) -> int:
        """Number of tensors of the source that are read."""
        return sum(len(copy.names) for copy in self.mapping.copies)

    @property
    def source_tensors(self) -> int:
        """Number of tensors of the source."""
        others = self.mapping.drops, self.mapping.ties, self.mapping.constants
        return self.mapped + sum(map(len, others))

    @property
    def round_trip(self) -> str:
        """``exact``, ``partial`` or ``rounded``; see ``zoo.checkpoint.Manifest``."""
        if self.rounded:
            return "rounded"
        return "exact" if self.mapped == self.source_tensors else "partial"

    def dropped(self) -> dict[str, str]:
        """Return name of a tensor that is left out -> the reason."""
        reasons = {name: drop.reason for name, drop in self.mapping.drops.items()}
        for name, equal in (self.equal_copies or {}).items():
            if name in reasons:
                reasons[name] += f", with {'equal' if equal else 'different'} values"
        return reasons

    def mapping_record(self) -> dict[str, Any]:
        """Return counts and reasons, for the manifest and for ``--json``."""
        mapping = self.mapping
        return {
            "source_tensors": self.source_tensors,
            "mapped": self.mapped,
            "tensors": len(mapping.copies) + len(mapping.initialized),
            "dropped": self.dropped(),
            "tied": dict(mapping.ties),
            "constants": {name: constant.reason for name, constant in mapping.constants.items()},
            # otherwise nothing is written
            "tied_equal": None if self.equal_copies is None else True,
            "aliases": dict(mapping.adopted),
            "rebuilt": self.rebuilt() if self.equal_copies is not None else None,
            "cast": dict(Counter(map(str, self.casts.values()))),
            "prefix": mapping.prefix,
            "renamed": dict(mapping.renamed),
            "initialised": [entry.target for entry in mapping.initialized],
            "replaced_heads": self.replaced_heads,
            "absent": list(mapping.absent),
            **(
                {"modules": {k: list(names) for k, names in self.modules.items()}}
                if self.modules
                else {}
            ),
            "unknown_config_keys": list(self.unknown),
            "unread_files": dict(self.unread_files),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, for ``--json``."""
        return {
            "reference": self.reference,
            "family": self.family,
            "head": self.head,
            "format": self.format,
            "quantized": list(self.quantized),
            "parameters": self.parameters,
            "dtypes": dict(self.dtypes),
            "tokenizer": self.tokenizer,
            "account": self.mapping_record(),
            "round_trip": self.round_trip if self.path else None,
            "path": str(self.path) if self.path else None,
        }

    def lines(self) -> Iterator[str]:
        """Yield the lines of the report for a terminal."""
        mapping = self.mapping
        dtypes = ", ".join(f"{n} {name}" for name, n in self.dtypes.items())
        types = f" in {', '.join(self.quantized)}" if self.quantized else ""
        form = f"{self.format}{types}"
        yield f"{self.reference} is {self.family} with head {self.head}, read from {form}"
        yield f"  parameters   {self.parameters:,}"
        yield f"  mapped       {self.mapped} tensors to {len(mapping.copies)} ({dtypes})"
        yield from _listed("modules", {k: ", ".join(n) for k, n in self.modules.items()}, ": ")
        yield f"  prefix       {mapping.prefix or 'none'}"
        if counts := Counter(map(str, self.casts.values())):
            how = "rounded" if self.rounded else "without loss"
            changes = ", ".join(f"{n} from {change}" for change, n in counts.items())
            yield f"  cast         {changes}, {how}"
        mixed = {name: str(cast) for name, cast in self.casts.items() if cast.mixed}
        yield from _listed("mixed dtypes", mixed, ": ")
        yield from _listed("dropped", self.dropped(), ": ")
        equal = "" if self.equal_copies is None else ", equal"
        yield from _listed("tied", {a: f"{o}{equal}" for a, o in mapping.ties.items()}, " = ")
        yield from _listed("alias", mapping.adopted, " read as ")
        computed = {name: constant.reason for name, constant in mapping.constants.items()}
        yield from _listed("constants", computed, ": ")
        if mapping.renamed:
            old, new = next(iter(mapping.renamed.items()))
            yield f"  old names    {len(mapping.renamed)}, such as {old} for {new}"
        origin = "new random weights"
        if self.replaced_heads:
            origin += f"; those of {', '.join(self.replaced_heads)} are not read"
        origins = {entry.target: origin for entry in mapping.initialized}
        yield from _listed("initialised", origins, ": ")
        yield from _listed("absent", {name: "the file has none" for name in mapping.absent}, ": ")
        files = ", ".join(self.weight_files[:2])
        if len(self.weight_files) > 2:
            files = f"{len(self.weight_files)} files"
        yield f"  left over    none: every tensor of {files} is accounted for"
        yield from _listed("not read", self.unread_files, ": ")
        reason = "not known to the family, carried along unchanged"
        yield from _listed("config keys", dict.fromkeys(self.unknown, reason), ": ")
        if not self.tokenizer:
            yield "  tokenizer    none: text tasks need one, --tokenizer REF adds it"
        if self.path:
            yield f"  round trip   {self.rebuilt()}"

    def rebuilt(self) -> str:
        """Return which tensors of the source were rebuilt from the result, for the reader."""
        mapping = self.mapping
        left = {"dropped": mapping.drops, "tied": mapping.ties, "constant": mapping.constants}
        others = ", ".join(f"{len(names)} {word}" for word, names in left.items() if names)
        count = f"{self.mapped} of" if others else "all"
        how = f", rounded to {self.rounded}" if self.rounded else " bit for bit"
        line = f"{count} {self.source_tensors} tensors of the source were rebuilt{how}"
        return f"{line}; not rebuilt: {others}" if others else line


def _changes(
    opened: OpenCheckpoint, plan: ConversionPlan, layout: "CheckpointWriter"
) -> Iterator[tuple[str, Cast]]:
    """Yield the name of each tensor of the source whose dtype changes, and the change."""
    # If one of our tensors is several on the Hub, and these are written, their names are yielded
    for copy in plan.mapping.copies:
        written = layout.dtypes(copy)
        names = copy.names
        old = copy.dtypes
        if opened.checkpoint and len(written) > 1:
            names = plan.entries[copy.entry.target].sources
            old = (copy.dtype,) * len(names)
        mixed = len({*copy.dtypes}) > 1 or len({*written}) > 1
        for name, code, new in zip(names, old, itertools.cycle(written), strict=False):
            if code != new:
                yield name, Cast(code, new, mixed)


def _listed(title: str, items: Mapping[str, str], sign: str) -> Iterator[str]:
    if items:
        yield f"  {title:<12} {len(items)}"
    for name, why in list(items.items())[:LISTED]:
        yield f"               {name}{sign}{why}"
    if len(items) > LISTED:
        yield f"               and {len(items) - LISTED} more"
