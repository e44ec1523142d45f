"""Report of a conversion: counts of tensors, as text, JSON and manifest entries."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

from zoo.conversion.dtypes import align_codes
from zoo.conversion.growth import Growth
from zoo.conversion.infer_head import ConversionPlan
from zoo.conversion.open import OpenCheckpoint
from zoo.conversion.unread_files import find_unread_files, unread_heads
from zoo.families.heads import with_head
from zoo.io.digests.files import FileDigest
from zoo.io.tensors.formats import DTYPE_NAMES, TensorReader, widest_dtype
from zoo.weights import MappingReport

MAX_TENSORS_LISTED = 8


class Cast(NamedTuple):
    """Change of the dtype of a tensor."""

    old: str  # Both are safetensors codes.
    new: str
    is_mixed: bool  # Whether it shares one of our tensors with tensors of a different dtype.

    @property
    def rounds(self) -> bool:
        """Whether the new dtype lacks values of the old one."""
        return widest_dtype((self.old, self.new)) != self.new

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
    dtypes: Mapping[str, int]  # Dtype -> number of tensors written.
    main_dtype: str  # Safetensors code of the dtype with the most tensors.
    quantized: tuple[str, ...] = ()  # Types of the source's tensors, which float32 holds exactly.
    rounded: str | None = None  # Dtype that tensors were rounded to, or ``None``.
    # Tensor of the source -> its dtype and the one it is written in, where they differ.
    casts: "Mapping[str, Cast]" = field(default_factory=dict)
    # Tied or unused copy -> whether it equals the tensor that is read; ``None`` in a dry run,
    # which compares no values.
    equal_copies: Mapping[str, bool] | None = None
    unknown: tuple[str, ...] = ()  # Configuration keys that the family does not declare.
    licence: str | None = None  # The one that the registry or an earlier conversion states.
    languages: tuple[str, ...] = ()  # Those that the registry or an earlier conversion states.
    tags: tuple[str, ...] = ()  # Those that an earlier conversion or the model card states.
    tokenizer: bool = False
    path: Path | None = None
    sources: Mapping[str, FileDigest] = field(default_factory=dict)
    files: Mapping[str, FileDigest] = field(default_factory=dict)
    # Folder of a module of a sentence encoder -> its tensors, which are copied.
    modules: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    weight_files: tuple[str, ...] = ()  # Files with the tensors of the source.
    # File with weights or labels that is not read -> the reason.
    unread_files: Mapping[str, str] = field(default_factory=dict)
    growth: Growth | None = None  # How the model got more positions afterwards.

    @classmethod
    def from_plan(
        cls,
        plan: ConversionPlan,
        written_codes: Mapping[str, Sequence[str]],
        dtype: str | None,
        *,
        modules: Mapping[str, TensorReader],
        tokenizer: bool,
    ) -> Self:
        """Return the report of a plan.

        Args:
            plan: the head, and what becomes of each tensor.
            written_codes: name of a tensor of ours -> safetensors code of each tensor that is
                written for it.
            dtype: the code that the user asked for, or ``None``.
            modules: folder of a module of a sentence encoder -> its tensors.
            tokenizer: whether the result reads texts.
        """
        opened = plan.opened
        copies = plan.mapping.copies
        codes = Counter[str]()
        for copy in copies:
            codes.update(written_codes[copy.entry.target])
        main_code = "F32"
        if codes:
            main_code = codes.most_common(1)[0][0]
        dtypes = Counter[str]()
        for code, number in codes.items():
            dtypes[DTYPE_NAMES[code]] = number
        if plan.mapping.initialized:
            dtypes[DTYPE_NAMES[dtype or main_code]] += len(plan.mapping.initialized)

        casts = dict(_casts(plan, written_codes))
        rounded = None
        if dtype and any(change.rounds for change in casts.values()):
            rounded = DTYPE_NAMES[dtype]

        directory = f"{opened.source.directory}/"
        weight_files = [str(path).removeprefix(directory) for path in opened.reader.files]
        files_read = [*opened.files_read(), *weight_files]
        entries = [*(copy.entry for copy in copies), *plan.mapping.initialized]
        parameters = sum(math.prod(entry.shape) for entry in entries)
        for reader in modules.values():
            files_read += [str(path).removeprefix(directory) for path in reader.files]
            parameters += sum(math.prod(info.shape) for info in reader.tensors.values())

        return cls(
            reference=opened.source.reference,
            family=opened.family.name,
            head=plan.head,
            format=opened.format,
            quantized=opened.quantized,
            mapping=plan.mapping,
            parameters=parameters,
            hidden_size=getattr(plan.config, "hidden_size", 0),
            dtypes=dict(dtypes),
            main_dtype=main_code,
            rounded=rounded,
            casts=casts,
            unknown=opened.unknown,
            licence=_stated_licence(opened),
            languages=_stated_languages(opened),
            tags=_stated_tags(opened),
            tokenizer=tokenizer,
            weight_files=tuple(weight_files),
            unread_files=find_unread_files(opened.source.all_names(), files_read),
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
        if not self.mapping.initialized:
            return []
        return unread_heads(self.unread_files)

    @property
    def mapped(self) -> int:
        """Number of tensors of the source that are read."""
        return sum(len(copy.names) for copy in self.mapping.copies)

    @property
    def source_tensors(self) -> int:
        """Number of tensors of the source."""
        mapping = self.mapping
        return self.mapped + len(mapping.drops) + len(mapping.ties) + len(mapping.constants)

    @property
    def round_trip(self) -> str:
        """``exact``, ``partial`` or ``rounded``; see ``zoo.checkpoint.Manifest``."""
        if self.rounded:
            return "rounded"
        if self.mapped == self.source_tensors:
            return "exact"
        return "partial"

    def dropped(self) -> dict[str, str]:
        """Return name of a tensor that is left out -> the reason."""
        reasons = {name: drop.reason for name, drop in self.mapping.drops.items()}
        for name, is_equal in (self.equal_copies or {}).items():
            if name in reasons:
                comparison = "equal" if is_equal else "different"
                reasons[name] += f", with {comparison} values"
        return reasons

    def mapping_record(self) -> dict[str, Any]:
        """Return counts and reasons, for the manifest and for ``--json``."""
        mapping = self.mapping
        is_dry_run = self.equal_copies is None
        record = {
            "source_tensors": self.source_tensors,
            "mapped": self.mapped,
            "tensors": len(mapping.copies) + len(mapping.initialized),
            "dropped": self.dropped(),
            "tied": dict(mapping.ties),
            "constants": {name: constant.reason for name, constant in mapping.constants.items()},
            # If tied tensors differ, nothing is written.
            "tied_equal": None if is_dry_run else True,
            "aliases": dict(mapping.adopted),
            "rebuilt": None if is_dry_run else self.rebuilt(),
            "cast": dict(Counter(map(str, self.casts.values()))),
            "prefix": mapping.prefix,
            "renamed": dict(mapping.renamed),
            "initialised": [entry.target for entry in mapping.initialized],
            "replaced_heads": self.replaced_heads,
            "absent": list(mapping.absent),
        }
        if self.modules:
            record["modules"] = {folder: list(names) for folder, names in self.modules.items()}
        record["unknown_config_keys"] = list(self.unknown)
        record["unread_files"] = dict(self.unread_files)
        return record

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
            "growth": None if self.growth is None else self.growth.to_dict(),
        }

    def __repr__(self) -> str:
        """Return family, head, size and directory."""
        what = f"{self.family}, head {self.head}, {self.parameters:,} parameters"
        return f"<conversion of {self.reference}: {what}, to {self.path or 'nothing: a dry run'}>"

    def _repr_html_(self) -> str:
        """Return what became of the tensors as a table, for notebooks."""
        from zoo.report.cells import fields_cell

        fields: dict[str, object] = {
            "family": self.family,
            "head": self.head,
            "parameters": self.parameters,
            "tensors": f"{self.mapped} of {self.source_tensors}, read from {self.format}",
        }
        if self.path is not None:
            fields["round trip"] = self.rebuilt()
            fields["path"] = self.path
        return fields_cell(self.reference, fields)

    def lines(self) -> Iterator[str]:
        """Yield the lines of the report for a terminal."""
        mapping = self.mapping
        dtypes = ", ".join(f"{number} {name}" for name, number in self.dtypes.items())
        source_format = self.format
        if self.quantized:
            source_format += f" in {', '.join(self.quantized)}"
        yield f"{self.reference} is {with_head(self.family, self.head)}, read from {source_format}"
        yield f"  parameters   {self.parameters:,}"
        yield f"  mapped       {self.mapped} tensors to {len(mapping.copies)} ({dtypes})"
        modules = {folder: ", ".join(names) for folder, names in self.modules.items()}
        yield from _listed("modules", modules, ": ")
        yield f"  prefix       {mapping.prefix or 'none'}"
        yield from self._cast_lines()
        yield from _listed("dropped", self.dropped(), ": ")
        comparison = "" if self.equal_copies is None else ", equal"
        ties = {alias: f"{owner}{comparison}" for alias, owner in mapping.ties.items()}
        yield from _listed("tied", ties, " = ")
        yield from _listed("alias", mapping.adopted, " read as ")
        constants = {name: constant.reason for name, constant in mapping.constants.items()}
        yield from _listed("constants", constants, ": ")
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
        if self.growth is not None:
            yield from self.growth.lines()

    def _cast_lines(self) -> Iterator[str]:
        """Yield the lines about tensors whose dtype changes."""
        if not self.casts:
            return
        counts = Counter(str(cast) for cast in self.casts.values())
        changes = ", ".join(f"{number} from {change}" for change, number in counts.items())
        loss = "rounded" if self.rounded else "without loss"
        yield f"  cast         {changes}, {loss}"
        mixed_casts = {name: str(cast) for name, cast in self.casts.items() if cast.is_mixed}
        yield from _listed("mixed dtypes", mixed_casts, ": ")

    def rebuilt(self) -> str:
        """Return which tensors of the source were rebuilt from the result, for the reader."""
        mapping = self.mapping
        exceptions = {"dropped": mapping.drops, "tied": mapping.ties, "constant": mapping.constants}
        counts = []
        for word, names in exceptions.items():
            if names:
                counts.append(f"{len(names)} {word}")
        number = f"{self.mapped} of" if counts else "all"
        precision = f", rounded to {self.rounded}" if self.rounded else " bit for bit"
        line = f"{number} {self.source_tensors} tensors of the source were rebuilt{precision}"
        if not counts:
            return line
        return f"{line}; not rebuilt: {', '.join(counts)}"


def _stated_licence(opened: OpenCheckpoint) -> str | None:
    """Return the licence that an earlier conversion or the registry states."""
    if opened.checkpoint is not None:
        return opened.checkpoint.manifest.licence
    if opened.source.row is not None:
        return opened.source.row.licence
    return None


def _stated_languages(opened: OpenCheckpoint) -> tuple[str, ...]:
    """Return the languages that an earlier conversion or the registry states."""
    if opened.checkpoint is not None:
        return tuple(opened.checkpoint.manifest.text_languages)
    if opened.source.row is not None:
        return opened.source.row.languages
    return ()


def _stated_tags(opened: OpenCheckpoint) -> tuple[str, ...]:
    """Return the tags that an earlier conversion states."""
    return () if opened.checkpoint is None else tuple(opened.checkpoint.manifest.tags)


def _casts(
    plan: ConversionPlan, written_codes: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, Cast]]:
    """Yield the name of each tensor of the source whose dtype changes, and the change.

    If one of our tensors is several on the Hub, and these are written, their names are yielded.
    """
    for copy in plan.mapping.copies:
        codes = written_codes[copy.entry.target]
        names = copy.names
        source_codes = copy.dtypes
        if plan.opened.checkpoint and len(codes) > 1:
            names = plan.entries[copy.entry.target].sources
            source_codes = (copy.dtype,) * len(names)
        is_mixed = len(set(copy.dtypes)) > 1 or len(set(codes)) > 1
        new_codes = align_codes(codes, len(names))
        for name, old_code, new_code in zip(names, source_codes, new_codes, strict=True):
            if old_code != new_code:
                yield name, Cast(old_code, new_code, is_mixed)


def _listed(title: str, items: Mapping[str, str], sign: str) -> Iterator[str]:
    """Yield the number of some items, and the first of them."""
    if items:
        yield f"  {title:<12} {len(items)}"
    for name, reason in list(items.items())[:MAX_TENSORS_LISTED]:
        yield f"               {name}{sign}{reason}"
    if len(items) > MAX_TENSORS_LISTED:
        yield f"               and {len(items) - MAX_TENSORS_LISTED} more"
