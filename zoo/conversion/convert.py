"""Conversion of a checkpoint: open, plan, write, verify the round trip, publish."""

import itertools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from zoo.conversion.checks.constants import check_constant
from zoo.conversion.checks.readback import check_readable
from zoo.conversion.checks.round_trip import require_bitwise_equal
from zoo.conversion.checks.unchanged import FileStates
from zoo.conversion.dtypes import cast, cast_pieces, equal_values, parse_dtype
from zoo.conversion.infer_head import (
    ConversionPlan,
    plan_conversion,
    require_computable,
    require_hub_outputs,
    require_label_outputs,
    with_labels,
)
from zoo.conversion.model_tensors import check_rules_of_plugin
from zoo.conversion.open import OpenCheckpoint, lazy_arrays, open_source
from zoo.conversion.report import ConversionReport
from zoo.conversion.sentence_modules import check_modules, open_modules, write_modules
from zoo.conversion.tokenizer import read_source_tokenizer
from zoo.conversion.writers import LAYOUTS, CheckpointWriter
from zoo.errors import SourceError, UsageError, VerificationError
from zoo.families.config import Config
from zoo.hub.source import CheckpointDir
from zoo.hub.upload.plan import card_licence
from zoo.io.digests.background import BackgroundHasher
from zoo.io.digests.files import FileDigest
from zoo.io.output.atomic import atomic_directory
from zoo.io.output.overwrite import check_target
from zoo.io.progress import progress
from zoo.io.tensors.formats import DTYPE_NAMES, TensorInfo, TensorReader, TensorToWrite
from zoo.weights import TensorCopy, TensorMapping

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.io.tensors.file_array import FileArray

    NumpyArray = NDArray[np.generic[Any]]
    Array = NumpyArray | FileArray

LOG = logging.getLogger("zoo")


def convert(
    source: CheckpointDir,
    path: Path | None,  # ``None`` only with ``dry_run``
    *,
    to: Literal["zoo", "hub"] = "zoo",
    head: str | None = None,  # by default the one whose rules match all tensors
    dtype: str | None = None,  # of floating-point weights; by default unchanged
    init_head: bool = False,  # give a head that the source lacks random weights
    labels: Sequence[str] | None = None,  # names of the outputs of the new head
    allow_pickle: bool = False,  # read PyTorch's pickle files; no code in them is executed
    ignore_crc: bool = False,
    tokenizer: CheckpointDir | None = None,  # directory of the tokenizer; by default ``source``
    force: bool = False,
    licence: str | None = None,  # by default as the source states it
    dry_run: bool = False,  # match by the headers of the files, and write nothing
    starting: Callable[[], object] | None = None,  # called before weights are read
) -> ConversionReport:
    """Convert a checkpoint, verify the round trip, and publish the result."""
    code = parse_dtype(dtype)
    sources = [read.directory for read in (source, tokenizer) if read is not None]
    if path is not None and not dry_run:
        check_target(path, force=force, sources=sources)
    states = FileStates(sources)
    opened = open_source(source, allow_pickle=allow_pickle, ignore_crc=ignore_crc)
    opened = replace(opened, config=with_labels(opened.config, labels))
    with opened.reader:
        plan = plan_conversion(opened, head, init=init_head)
        if labels is not None:
            require_label_outputs(plan)
        if to == "hub":
            require_hub_outputs(plan)
        opened = plan.opened
        check_rules_of_plugin(opened.family, plan.config, plan.head)
        plan.score_activation  # noqa: B018 (one that is not implemented is refused at once)
        text = read_source_tokenizer(opened, tokenizer, plan.config)
        readable = text is not None or opened.family.text_tokenizer(plan.config) is not None
        require_computable(plan, code)
        check_modules(plan)
        modules = open_modules(opened, allow_pickle=allow_pickle)
        layout = LAYOUTS[to](opened, plan, text, code)
        report = ConversionReport.of(opened, plan, layout, readable, modules)
        report = replace(report, licence=licence or report.licence or source_licence(source))
        for name in report.replaced_heads:
            LOG.warning(
                "warning: %s: the weights of the head %s are random: the trained head in %s is not "
                "read",
                source.reference,
                plan.head,
                name,
            )
        if dry_run:
            return report
        if path is None:
            raise UsageError("an output directory is needed", "give -o")
        if starting is not None:
            starting()
        report = replace(report, equal_copies=check_values(opened, plan))
        with atomic_directory(path, force=force, sources=sources) as staging:
            report = _Conversion(opened, plan, layout, report, modules).write(staging, path)
            check_readable(staging, path, plan, text)
            paths = [opened.source.directory / name for name in opened.files_read()]
            if tokenizer is not None:
                paths += [tokenizer.directory / name for name in tokenizer.files.names_read]
            of_modules = [file for reader in modules.values() for file in reader.files]
            states.check([*paths, *opened.reader.files, *of_modules])
            return report


def source_licence(source: CheckpointDir) -> str | None:
    """Return the licence that the model card of a source states, if it has one that can be read."""
    try:
        return card_licence(source.directory)
    except (UsageError, VerificationError, SourceError):
        return None


def check_values(opened: OpenCheckpoint, plan: ConversionPlan) -> dict[str, bool]:
    """Check that tied tensors are equal, and the values of constants and of dropped buffers."""
    reader = opened.reader
    mapping = plan.mapping
    codes = {name: info.dtype for name, info in reader.tensors.items()}
    equal = {
        copy: equal_values(reader.lazy(copy), codes[copy], reader.lazy(owner), codes[owner])
        for copy, owner in {**mapping.ties, **mapping.unused}.items()
    }
    for alias, owner in mapping.ties.items():
        if not equal[alias]:
            names = [alias, owner]
            if codes[alias] != codes[owner]:
                names = [f"{name} ({DTYPE_NAMES[codes[name]]})" for name in names]
            raise VerificationError(
                f"{opened.source.directory}: {' and '.join(names)} differ, but the configuration "
                "ties them",
                _tie_hint(opened, plan, alias),
            )
    for name, constant in mapping.constants.items():
        check_constant(reader, name, constant, str(opened.source.directory))
    for name, drop in mapping.drops.items():
        if drop.value_check is not None and not drop.value_check(reader.read(name)):
            raise VerificationError(
                f"{opened.source.directory}: {name} is left out as {drop.reason}, but holds "
                "different values",
                "nothing was written",
            )
    return equal


def _tie_hint(opened: OpenCheckpoint, plan: ConversionPlan, alias: str) -> str:
    """Return the remedy for tied tensors that differ: no tie, where the family supports that."""
    family = opened.family
    untied = {**family.to_hub(plan.config), "tie_word_embeddings": False}
    try:
        weights = family.weights(family.from_hub(untied).config, plan.head)
    except VerificationError:
        tied = True
    else:
        tied = alias in weights.aliases()
    if tied:
        return "the model has one tensor for both; --head none converts it without its head"
    return "set tie_word_embeddings to false in config.json if they are not"


@dataclass(frozen=True)
class _Conversion:
    opened: OpenCheckpoint
    plan: ConversionPlan
    layout: CheckpointWriter
    report: ConversionReport
    modules: Mapping[str, TensorReader]  # folder of a module -> its weights

    def write(self, staging: Path, published: Path) -> ConversionReport:
        digests = BackgroundHasher()
        try:
            directory = self.opened.source.directory
            names = self.opened.files_read()
            sources = [*(directory / name for name in names), *self.opened.reader.files]
            sources += [file for reader in self.modules.values() for file in reader.files]
            for path in sources:
                digests.start(path)
            mapping = self.plan.mapping
            outputs = [out for copy in mapping.copies for out in self._copied(copy)]
            outputs += [out for entry in mapping.initialized for out in self._initialized(entry)]
            outputs += self.layout.constants(self.report.main_dtype)
            total = sum(out.info.nbytes for out in outputs)
            with progress("writing", total, bytes_=True) as advance:
                weights = self.layout.write_tensors(staging, outputs, advance, digests.create)
            kept = write_modules(
                self.modules,
                staging,
                self.layout.dtype,
                metadata=self.layout.metadata,
                create=digests.create,
            )
            files = [*weights, *kept, *self.layout.write_side_files(staging, self.report)]
            for path in files:
                digests.start(path)
                digests.sync(path)
            self._check_round_trip(weights)
            read = self._with_sha256(digests.of(sources, self.opened.source.directory))
            report = self.report.finished(published, read, digests.of(files, staging))
            digests.wait_for_disk()
        finally:
            digests.close()
        self.layout.write_manifest(staging, report)
        return report

    def _with_sha256(self, sources: dict[str, FileDigest]) -> dict[str, FileDigest]:
        """Compare digests with the download's, and add the SHA-256 of the Hub."""
        for name, expected in self.opened.source.digests.items():
            if name not in sources:
                continue
            if expected.blake3 != sources[name].blake3:
                kind = "downloaded" if self.opened.source.repo else "looked up"
                raise VerificationError(
                    f"{self.opened.source.directory / name} is not what was {kind}",
                    "fetch it again" if self.opened.source.repo else "try again",
                )
            sources[name].sha256 = expected.sha256
        return sources

    def _copied(self, copy: TensorCopy) -> list[TensorToWrite]:
        entry = self.plan.entries[copy.entry.target]

        def pieces(which: int, code: str) -> "Iterator[Array]":
            for part in self.layout.chunks(entry, copy.names, which):
                yield from cast_pieces(part, copy.dtype, code, entry.target)

        tensors = zip(self.layout.names(entry), self.layout.dtypes(copy), strict=True)
        return [
            TensorToWrite(name, TensorInfo(code, shape), partial(pieces, k, code))
            for k, ((name, shape), code) in enumerate(tensors)
        ]

    def _initialized(self, entry: TensorMapping) -> list[TensorToWrite]:
        code = self.layout.dtype or self.report.main_dtype
        array = cast(init_tensor(entry, self.plan.config), "F32", code, entry.target)
        parts = zip(self.layout.names(entry), self.layout.split(entry, array), strict=True)
        return [
            TensorToWrite(name, TensorInfo(code, shape), partial(list, (part,)))
            for (name, shape), part in parts
        ]

    def _check_round_trip(self, files: Sequence[Path]) -> None:
        """Rebuild the tensors of the source from the written files, and compare bit by bit."""
        # Of two dtypes, the comparison is in the source's, or in the dtype that the user asked for
        copies = self.plan.mapping.copies
        checking = progress("checking", len(copies), unit="tensors")
        with self.layout.open_tensors(files) as written, checking as advance:
            for copy in copies:
                entry = self.plan.entries[copy.entry.target]
                names = [name for name, _ in self.layout.names(entry)]
                rebuilt = self.layout.rebuild_hub(entry, lazy_arrays(written, names))
                original, codes = self.opened.stored_tensors(entry, copy)
                parts = zip(rebuilt, original, codes, strict=True)
                stored = itertools.cycle(self.layout.dtypes(copy))  # one of ours may be several
                for (part, source, code), new in zip(parts, stored, strict=False):
                    pair = (source, part)
                    old, into = new, code
                    if self.layout.dtype:
                        pair = (part, source)
                        old, into = code, new
                    change = partial(cast, stored=old, target=into, name=entry.target)
                    require_bitwise_equal(entry.target, *pair, None if old == into else change)
                advance(1)


def init_tensor(entry: TensorMapping, config: Config, seed: int = 0) -> "NDArray[np.float32]":
    """Return the initial value of a parameter."""
    # Weights are normal with the standard deviation ``initializer_range`` of the configuration,
    # biases 0, and scales of norms 1. The values depend only on the seed and the parameter name
    import numpy as np
    from blake3 import blake3

    if entry.target.endswith(".bias"):
        return np.zeros(entry.shape, np.float32)
    if len(entry.shape) == 1:
        return np.ones(entry.shape, np.float32)
    key = int.from_bytes(blake3(f"{seed}\0{entry.target}".encode()).digest(8))
    deviation = getattr(config, "initializer_range", 0.02)
    generator = np.random.Generator(np.random.Philox(key))
    return (generator.standard_normal(entry.shape) * deviation).astype(np.float32)
