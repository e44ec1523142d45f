"""Writers of the two layouts of a checkpoint directory: the zoo's and the Hub's."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from zoo.checkpoint import (
    CONFIG,
    FORMAT_VERSION,
    MANIFEST,
    TOKENIZER,
    Manifest,
    ModelFile,
    SourceRecord,
    encode_manifest,
)
from zoo.checkpoint.records import growth_records
from zoo.conversion.checks import constant_to_write
from zoo.conversion.dtypes import output_dtype
from zoo.conversion.hub_files import hub_side_files
from zoo.conversion.infer_head import ConversionPlan
from zoo.conversion.model_card import MODEL_CARD, model_card
from zoo.conversion.open import OpenCheckpoint
from zoo.conversion.report import ConversionReport
from zoo.conversion.safetensors_writer import Create, write_weights
from zoo.conversion.tokenizer import SourceTokenizer
from zoo.families.base import GENERATING
from zoo.io.digests.self_digest import NO_DIGEST, add_digest
from zoo.io.json import encode_json
from zoo.io.output.overwrite import HUB_RECORD, HubRecord
from zoo.io.progress import Advance
from zoo.io.tensors.formats import (
    DTYPE_NAMES,
    FLOATING,
    Format,
    TensorReader,
    TensorToWrite,
    widest_dtype,
)
from zoo.io.tensors.safetensors import SafetensorsReader
from zoo.overrides import override
from zoo.plugins import format_named
from zoo.sentence_models.cross_encoder_files import hub_pair_files, with_activation
from zoo.sentence_models.retrieval_heads import head_folders
from zoo.tokenizers.info import TokenizerInfo
from zoo.version import __version__
from zoo.weights import TensorCopy, TensorMapping, WeightMap

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic[Any]]  # A ``FileArray`` is passed as one; see ``lazy_arrays``.


DTYPE_CODES = {DTYPE_NAMES[code]: code for code in FLOATING}


@dataclass(frozen=True)
class LayoutWriter(ABC):
    """Base class of writers: tensor names, tensors and side files of a layout."""

    opened: OpenCheckpoint
    plan: ConversionPlan
    tokenizer: SourceTokenizer | None
    dtype: str | None  # The safetensors code that the user asked for, or ``None``.
    metadata: ClassVar[Mapping[str, str]]

    @property
    def head_files(self) -> Mapping[str, str]:
        """Folder of a module -> file that the layout has in place of it; by default none."""
        return {}

    @property
    def generates(self) -> bool:
        """Whether the head generates text."""
        return bool(GENERATING.intersection(self.opened.family.heads()[self.plan.head].tasks))

    @abstractmethod
    def names(self, entry: TensorMapping) -> list[tuple[str, tuple[int, ...]]]:
        """Return the name and the shape of each tensor that is written for a rule."""

    def dtypes(self, copy: TensorCopy) -> list[str]:
        """Return the safetensors code of each tensor that is written for a rule."""
        entry = self.plan.entries[copy.entry.target]
        return [output_dtype(copy.dtype, self.dtype)] * len(self.names(entry))

    def written_codes(self) -> dict[str, list[str]]:
        """Return name of a tensor of ours -> the codes of the tensors that are written for it."""
        codes = {}
        for copy in self.plan.mapping.copies:
            codes[copy.entry.target] = self.dtypes(copy)
        return codes

    @abstractmethod
    def chunks(self, entry: TensorMapping, names: Sequence[str], which: int) -> "Sequence[Array]":
        """Return the chunks of the ``which``-th tensor of a rule, read from ``names``."""

    @abstractmethod
    def split(self, entry: TensorMapping, tensor: "Array") -> "Sequence[Array]":
        """Return all tensors of a rule, computed from a tensor in the zoo's layout."""

    def constants(self, dtype: str) -> list[TensorToWrite]:
        """Return the tensors to write that follow from the configuration; by default none."""
        return []

    @abstractmethod
    def rebuild_hub(self, entry: TensorMapping, written: "Sequence[Array]") -> "Sequence[Array]":
        """Rebuild the Hub's tensors from the written ones."""

    @abstractmethod
    def write_side_files(self, staging: Path, report: ConversionReport) -> list[Path]:
        """Write all files except weights and manifest; return their paths."""

    def write_tensors(
        self, staging: Path, outputs: Sequence[TensorToWrite], advance: Advance, create: Create
    ) -> list[Path]:
        """Write the tensors with files that ``create`` opens; return the paths of the files."""
        return write_weights(staging, outputs, advance, metadata=self.metadata, create=create)

    def open_tensors(self, files: Sequence[Path]) -> TensorReader:
        """Open the files of ``write_tensors``."""
        return SafetensorsReader([path for path in files if path.suffix == ".safetensors"])

    def write_manifest(self, staging: Path, report: ConversionReport) -> None:  # noqa: B027 (optional)
        """Write the manifest, if the layout has one."""


class ZooWriter(LayoutWriter):
    """Writer of the zoo's layout."""

    metadata: ClassVar[Mapping[str, str]] = {"format": "zoo"}

    @override
    def names(self, entry: TensorMapping) -> list[tuple[str, tuple[int, ...]]]:
        return [(entry.target, entry.shape)]

    @override
    def chunks(self, entry: TensorMapping, names: Sequence[str], which: int) -> "Sequence[Array]":
        return self.opened.zoo_tensor(entry, names)

    @override
    def split(self, entry: TensorMapping, tensor: "Array") -> "Sequence[Array]":
        return (tensor,)

    @override
    def rebuild_hub(self, entry: TensorMapping, written: "Sequence[Array]") -> "Sequence[Array]":
        return entry.op.to_hub(written[0])

    @override
    def write_side_files(self, staging: Path, report: ConversionReport) -> list[Path]:
        tokenizer_info: TokenizerInfo | None = None
        if self.tokenizer is not None:
            tokenizer_info = self.tokenizer.info
        generation: dict[str, Any] = {}
        if self.generates:
            generation = dict(self.opened.generation)
        model = ModelFile(
            zoo=FORMAT_VERSION,
            family=self.opened.family.name,
            head=self.plan.head,
            config=msgspec.to_builtins(self.plan.config),
            tokenizer=tokenizer_info,
            pooling=self.opened.pooling,
            score_activation=self.plan.score_activation,
            pairs=self.plan.pairs,
            generation=generation,
            **self.plan.fields_of_task,
        )
        files = {CONFIG: encode_json(model)}
        if self.tokenizer:
            files[TOKENIZER] = self.tokenizer.json
        return _write(staging, files)

    @override
    def write_manifest(self, staging: Path, report: ConversionReport) -> None:
        manifest = Manifest(
            zoo=FORMAT_VERSION,
            created_by={"plm-zoo": __version__, **_plugin_version(self.opened.family.name)},
            licence=report.licence,
            languages=list(report.languages),
            tags=list(report.tags),
            source=self._source_record(report),
            files=dict(report.files),
            dtypes=dict(report.dtypes),
            ties=self.opened.family.weights(self.plan.config, self.plan.head).aliases(),
            source_dtypes=self._source_dtypes(),
            account={**self._earlier_account(), **report.mapping_record()},
            round_trip=report.round_trip,
        )
        (staging / MANIFEST).write_bytes(encode_manifest(manifest))

    def _earlier_account(self) -> dict[str, Any]:
        """Return what the source's manifest says of positions that were added to the model."""
        if self.opened.checkpoint is None:
            return {}
        return growth_records(self.opened.checkpoint.manifest.account)

    def _source_record(self, report: ConversionReport) -> SourceRecord:
        """Return where the weights came from first, before any earlier conversion."""
        extra_config = dict(self.opened.extra or {})
        checkpoint = self.opened.checkpoint
        if checkpoint is not None and checkpoint.manifest.source is not None:
            first_source = checkpoint.manifest.source
            return SourceRecord(
                reference=first_source.reference,
                repo=first_source.repo,
                revision=first_source.revision,
                format=first_source.format,
                files=dict(first_source.files),
                extra_config=extra_config,
            )
        source = self.opened.source
        return SourceRecord(
            reference=source.reference,
            repo=source.repo,
            revision=source.revision,
            format=self.opened.format,
            files=dict(report.sources),
            extra_config=extra_config,
        )

    def _source_dtypes(self) -> dict[str, str]:
        """Return Hub name -> dtype, for tensors that share one of ours with different dtypes."""
        dtypes = dict[str, str]()
        checkpoint = self.opened.checkpoint
        if checkpoint is not None:
            if self.dtype:
                return dtypes
            names = set[str]()
            for entry in self.plan.entries.values():
                names.update(entry.sources)
            for name, dtype in checkpoint.manifest.source_dtypes.items():
                if name in names:
                    dtypes[name] = dtype
            return dtypes
        for copy in self.plan.mapping.copies:
            if len(set(copy.dtypes)) > 1:
                for source, code in zip(copy.entry.sources, copy.dtypes, strict=True):
                    dtypes[source] = DTYPE_NAMES[code]
        return dtypes


class HubWriter(LayoutWriter):
    """Writer of the Hub's layout, which ``from_pretrained`` loads without missing keys."""

    metadata: ClassVar[Mapping[str, str]] = {"format": "pt"}

    @property
    @override
    def head_files(self) -> Mapping[str, str]:
        folders = head_folders(self.opened.pooling)
        return {folder: file for file, folder in folders.items()}

    @override
    def write_tensors(
        self, staging: Path, outputs: Sequence[TensorToWrite], advance: Advance, create: Create
    ) -> list[Path]:
        if self._format is None:
            return super().write_tensors(staging, outputs, advance, create)
        return self._format.write(staging, outputs, advance)

    @override
    def open_tensors(self, files: Sequence[Path]) -> TensorReader:
        if self._format is None:
            return super().open_tensors(files)
        return self._format.open(files[0].parent, [path.name for path in files])

    @cached_property
    def _format(self) -> Format | None:
        """Format to write, or ``None`` for safetensors."""
        name = self.opened.family.weight_format
        if name == "safetensors":
            return None
        return format_named(name)

    @override
    def names(self, entry: TensorMapping) -> list[tuple[str, tuple[int, ...]]]:
        shapes = dict(zip(entry.sources, entry.source_shapes, strict=True))
        names = list[tuple[str, tuple[int, ...]]]()
        for source, name in self._names(entry):
            names.append((self._weights.written(name), shapes[source]))
        return names

    @override
    def dtypes(self, copy: TensorCopy) -> list[str]:
        if self.dtype is not None:
            return super().dtypes(copy)
        entry = self.plan.entries[copy.entry.target]
        checkpoint = self.opened.checkpoint
        if checkpoint is None:
            codes = dict(zip(entry.sources, copy.dtypes, strict=True))
        else:
            codes = {}
            for source in entry.sources:
                dtype = checkpoint.manifest.source_dtypes.get(source, "")
                code = DTYPE_CODES.get(dtype, copy.dtype)
                # A dtype that --dtype rounded away is not restored.
                if widest_dtype((code, copy.dtype)) != copy.dtype:
                    code = copy.dtype
                codes[source] = code
        return [codes[source] for source, _ in self._names(entry)]

    @override
    def chunks(self, entry: TensorMapping, names: Sequence[str], which: int) -> "Sequence[Array]":
        return (self._each(entry, self.opened.hub_tensors(entry, names))[which],)

    @override
    def split(self, entry: TensorMapping, tensor: "Array") -> "Sequence[Array]":
        return self._each(entry, entry.op.to_hub(tensor))

    @override
    def constants(self, dtype: str) -> list[TensorToWrite]:
        tensors = list[TensorToWrite]()
        for name, constant in self._weights.constant_tensors().items():
            if constant.written:
                tensors.append(constant_to_write(self._weights.written(name), constant, dtype))
        return tensors

    @override
    def rebuild_hub(self, entry: TensorMapping, written: "Sequence[Array]") -> "Sequence[Array]":
        return written[: len(entry.sources)]

    @cached_property
    def _weights(self) -> WeightMap:
        return self.opened.family.weights(self.plan.config, self.plan.head)

    def _names(self, entry: TensorMapping) -> list[tuple[str, str]]:
        """Return (source, name) of each tensor to write: the sources, then their tied copies."""
        copies = self._weights.copies()
        names = [(source, source) for source in entry.sources]
        for source in entry.sources:
            for copy in copies.get(source, ()):
                names.append((source, copy))
        return names

    def _each(self, entry: TensorMapping, parts: "Sequence[Array]") -> "list[Array]":
        part_of_source = dict(zip(entry.sources, parts, strict=True))
        return [part_of_source[source] for source, _ in self._names(entry)]

    @override
    def write_side_files(self, staging: Path, report: ConversionReport) -> list[Path]:
        family = self.opened.family
        config = self.plan.config
        head = self.plan.head
        architecture = None
        if family.config_files[0] == CONFIG:
            architecture = family.architecture(config, head)
        files = hub_side_files(
            family,
            config,
            head,
            dtype=DTYPE_NAMES[report.main_dtype],
            architecture=architecture,
            extra=with_activation(self.opened.extra, self.plan.score_activation),
            tokenizer=self.tokenizer,
            pooling=self.opened.pooling,
            generation=self.opened.generation,
        )
        if self.plan.pairs is not None:
            files |= hub_pair_files(
                self.plan.pairs,
                self.plan.score_activation,
                labels=len(config.labels),
                extra=self.opened.extra,
            )
        mask_token = None
        if self.tokenizer is not None:
            mask_token = self.tokenizer.info.special.get("mask")
        files[MODEL_CARD] = model_card(self.opened, self.plan, report, mask_token)
        return _write(staging, files)

    @override
    def write_manifest(self, staging: Path, report: ConversionReport) -> None:
        """Write ``.zoo.json``, by which ``--force`` recognizes the directory."""
        created_by = {"plm-zoo": __version__, **_plugin_version(self.opened.family.name)}
        record = HubRecord(
            zoo=FORMAT_VERSION, created_by=created_by, files=dict(report.files), digest=NO_DIGEST
        )
        (staging / HUB_RECORD).write_bytes(add_digest(encode_json(record)))


LAYOUTS: Mapping[str, type[LayoutWriter]] = {"zoo": ZooWriter, "hub": HubWriter}


def _write(staging: Path, files: Mapping[str, bytes]) -> list[Path]:
    for name, data in files.items():
        (staging / name).parent.mkdir(parents=True, exist_ok=True)
        (staging / name).write_bytes(data)
    return [staging / name for name in files]


def _plugin_version(family: str) -> dict[str, str]:
    from zoo.plugins import installed

    plugin = installed().get(family)
    if plugin is None:
        return {}
    return {plugin.distribution: plugin.version}
