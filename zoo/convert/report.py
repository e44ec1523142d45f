"""Report of a conversion: counts of tensors, as text, JSON and manifest entries."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from zoo.convert.dtypes import LONG, output_dtype
from zoo.convert.infer_head import ConversionPlan
from zoo.convert.open import OpenCheckpoint
from zoo.io.digests.files import FileDigest
from zoo.weights import MappingReport, TensorMapping

LISTED = 8


@dataclass(frozen=True)
class ConversionReport:
    """Result of a conversion, or of its dry run.

    Attributes:
        reference: model reference of the user.
        family: name of the family.
        head: name of the head.
        format: name of the file format that was read.
        mapping: mapping of tensors.
        parameters: number of parameters of the result.
        hidden_size: hidden size of the backbone.
        dtypes: dtype -> number of tensors written.
        main_dtype: safetensors code of the dtype with the most data.
        rounded: dtype that the tensors were cast to, or ``None``.
        unknown: configuration keys that the family does not declare; they are copied unchanged.
        licence: licence that the registry states.
        tokenizer: ``True`` if there is a tokenizer.
        path: directory that was written, or ``None``.
        sources: file name -> digest, of the files that were read.
        files: file name -> digest, of the files that were written.
    """

    reference: str
    family: str
    head: str
    format: str
    mapping: MappingReport
    parameters: int
    hidden_size: int
    dtypes: Mapping[str, int]
    main_dtype: str
    rounded: str | None = None
    unknown: tuple[str, ...] = ()
    licence: str | None = None
    tokenizer: bool = False
    path: Path | None = None
    sources: Mapping[str, FileDigest] = field(default_factory=dict)
    files: Mapping[str, FileDigest] = field(default_factory=dict)

    @classmethod
    def of(
        cls, opened: OpenCheckpoint, plan: ConversionPlan, dtype: str | None, tokenizer: bool
    ) -> Self:
        """Return the report of a plan."""
        codes = Counter(output_dtype(move.dtype, dtype) for move in plan.account.moves)
        changed = any(output_dtype(move.dtype, dtype) != move.dtype for move in plan.account.moves)
        main = codes.most_common(1)[0][0] if codes else "F32"
        initialized = len(plan.account.initialized)
        names = Counter({LONG.get(code, code): n for code, n in codes.items()})
        if initialized:
            names[LONG.get(dtype or main, main)] += initialized
        manifest = opened.checkpoint.manifest if opened.checkpoint else None
        row = opened.source.row
        return cls(
            reference=opened.source.reference,
            family=opened.family.name,
            head=plan.head,
            format=opened.format,
            mapping=plan.account,
            parameters=sum(math.prod(e.shape) for e in _written(plan)),
            hidden_size=getattr(plan.config, "hidden_size", 0),
            dtypes=dict(names),
            main_dtype=main,
            rounded=LONG[dtype] if dtype and changed else None,
            unknown=opened.unknown,
            licence=manifest.licence if manifest else (row.licence if row else None),
            tokenizer=tokenizer,
        )

    def finished(
        self, path: Path, sources: Mapping[str, FileDigest], files: Mapping[str, FileDigest]
    ) -> Self:
        """Return the report with the files that were read and written."""
        return replace(self, path=path, sources=sources, files=files)

    def account(self) -> dict[str, Any]:
        """Return counts and reasons, for the manifest and for ``--json``."""
        mapping = self.mapping
        return {
            "mapped": sum(len(move.names) for move in mapping.moves),
            "tensors": len(mapping.moves) + len(mapping.initialized),
            "dropped": {name: drop.reason for name, drop in mapping.drops.items()},
            "tied": dict(mapping.ties),
            "constants": {name: constant.reason for name, constant in mapping.constants.items()},
            "prefix": mapping.prefix,
            "renamed": dict(mapping.renamed),
            "initialised": [entry.target for entry in mapping.initialized],
            "absent": list(mapping.absent),
            "unknown_config_keys": list(self.unknown),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, for ``--json``."""
        return {
            "reference": self.reference,
            "family": self.family,
            "head": self.head,
            "format": self.format,
            "parameters": self.parameters,
            "dtypes": dict(self.dtypes),
            "tokenizer": self.tokenizer,
            "account": self.account(),
            "round_trip": "exact" if self.path else None,
            "path": str(self.path) if self.path else None,
        }

    def lines(self) -> Iterator[str]:
        """Yield the lines of the report for a terminal."""
        mapping = self.mapping
        dtypes = ", ".join(f"{n} {name}" for name, n in self.dtypes.items())
        yield f"{self.reference} is {self.family} with head {self.head}, read from {self.format}"
        yield f"  parameters   {self.parameters:,}"
        mapped = sum(len(move.names) for move in mapping.moves)
        yield f"  mapped       {mapped} tensors to {len(mapping.moves)} ({dtypes})"
        yield f"  prefix       {mapping.prefix or 'none'}"
        yield from _listed("dropped", {n: d.reason for n, d in mapping.drops.items()}, ": ")
        yield from _listed("tied", mapping.ties, " = ")
        computed = {name: constant.reason for name, constant in mapping.constants.items()}
        yield from _listed("constants", computed, ": ")
        yield from self._renamed()
        yield from _listed("initialised", {e.target: "" for e in mapping.initialized}, "")
        yield from _listed("absent", {name: "the file has none" for name in mapping.absent}, ": ")
        yield "  left over    none: every tensor is accounted for"
        reason = "not known to the family, carried along unchanged"
        yield from _listed("config keys", dict.fromkeys(self.unknown, reason), ": ")
        if not self.tokenizer:
            yield "  tokenizer    none: text tasks need one, --tokenizer REF adds it"
        if self.path:
            form = f", in {self.rounded}," if self.rounded else ""
            yield f"  round trip   exact: the source{form} was rebuilt bit for bit"

    def _renamed(self) -> Iterator[str]:
        count = len(self.mapping.renamed)
        if count:
            old, new = next(iter(self.mapping.renamed.items()))
            yield f"  old names    {count}, such as {old} for {new}"


def _written(plan: ConversionPlan) -> list[TensorMapping]:
    return [*(move.entry for move in plan.account.moves), *plan.account.initialized]


def _listed(title: str, items: Mapping[str, str], sign: str) -> Iterator[str]:
    if items:
        yield f"  {title:<12} {len(items)}"
    for name, why in list(items.items())[:LISTED]:
        yield f"               {name}{sign}{why}"
    if len(items) > LISTED:
        yield f"               and {len(items) - LISTED} more"
