"""Adapters on disk, and a model with adapters as one checkpoint."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from zoo.adapted_models.base import AdapterMethod
from zoo.adapted_models.exported import require_fit
from zoo.adapted_models.registry import parse_adapter
from zoo.adapted_models.virtual_tokens import VirtualTokens
from zoo.checkpoint import (
    ADAPTER,
    MANIFEST,
    AdapterRecord,
    Checkpoint,
    is_checkpoint,
    load_checkpoint,
    weights_digest,
)
from zoo.checkpoint.digests import check_digests
from zoo.errors import SourceError, UsageError, VerificationError, first_names
from zoo.io.tensors.finite import require_finite
from zoo.io.tensors.formats import FLOAT_DTYPES
from zoo.overrides import override
from zoo.sentence_models.module_weights import module_weight_files

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from zoo.families.onnx import OnnxSpec


FOREIGN_CONFIG = "adapter_config.json"  # peft and AdapterHub's library write it.
MAX_FOLDERS_SHOWN = 5


@dataclass(frozen=True)
class AdaptedCheckpoint(Checkpoint):
    """A model with adapters: configuration and head are the last adapter's."""

    base: Checkpoint  # the model that they change
    adapters: tuple[Checkpoint, ...]  # the adapters, in the order in which they are applied

    @classmethod
    def from_adapters(cls, base: Checkpoint, adapters: Sequence[Checkpoint]) -> Self:
        """Return a model with adapters."""
        if base.is_export and len(adapters) > 1:
            raise UsageError(f"{base.path} is a graph for one adapter at a time", "give one")
        for number, adapter in enumerate(adapters):
            require_base(adapter, base)
            if any(adapter.path.samefile(other.path) for other in adapters[:number]):
                raise UsageError(
                    f"{adapter.path} is given twice, and would change the model twice",
                    "give each --adapter once",
                )
        last = adapters[-1]
        with_tokenizer = [adapter for adapter in adapters if has_own_tokenizer(adapter)]
        tokenizers = {adapter.tokenizer_file.read_bytes() for adapter in with_tokenizer}
        if len(tokenizers) > 1:
            raise UsageError(
                f"{with_tokenizer[0].path} and {with_tokenizer[1].path} have different tokenizers",
                "give one of them",
            )
        if with_tokenizer and with_tokenizer[-1] is not last:
            adapter = with_tokenizer[-1]
            raise UsageError(
                f"{adapter.path} has a tokenizer of its own, and {last.path} was trained with the "
                "base's",
                f"`zoo adapter merge {adapter.name} -o DIR` makes a base for the other adapters",
            )
        return cls(
            last.path, last.model, last.manifest, last.family, last.config, base, tuple(adapters)
        )

    @property
    @override
    def identity(self) -> bytes:
        parts = [part.identity for part in (self.base, *self.adapters)]
        return b"".join([*parts, self._changes])

    @property
    @override
    def file_digests(self) -> bytes:
        parts = [part.file_digests for part in (self.base, *self.adapters)]
        return b"".join([*parts, self._changes])

    @property
    @override
    def tokenizer_file(self) -> Path:
        if has_own_tokenizer(self.adapters[-1]):
            return super().tokenizer_file
        return self.base.tokenizer_file

    @property
    @override
    def onnx_spec(self) -> "OnnxSpec":
        spec = super().onnx_spec
        limits = dict(spec.limits)
        for adapter in self.adapters:
            limits = adapter_method_of(adapter).shortened(limits)
        return replace(spec, limits=limits)

    @property
    @override
    def module_holder(self) -> Checkpoint:
        files = set(module_weight_files(self.model.pooling))
        if files <= self.manifest.files.keys():
            return self.adapters[-1]
        return self.base

    @property
    def can_merge(self) -> bool:
        """Whether the model is one without adapters again."""
        return all(adapter_method_of(adapter).can_merge for adapter in self.adapters)

    @property
    def has_virtual_tokens(self) -> bool:
        """Whether the model reads learned tokens before each text."""
        methods = [adapter_method_of(adapter) for adapter in self.adapters]
        return any(isinstance(method, VirtualTokens) for method in methods)

    @override
    def require_unchanged(self) -> None:
        self.base.require_unchanged()
        for adapter in self.adapters:
            check_digests(adapter.path)


def hint_of_subfolders(path: Path) -> str:
    """Return what to do with a directory whose subfolders are adapters; empty for none.

    The Hub has such repositories, with one folder for each language, layer or training step.
    """
    zoo_folders = {file.parent for file in path.glob(f"*/{ADAPTER}")}
    folders = set(zoo_folders)
    for pattern in (f"*/{FOREIGN_CONFIG}", f"*/*/{FOREIGN_CONFIG}"):
        folders.update(file.parent for file in path.glob(pattern))
    if not folders:
        return ""
    paths = sorted(folders)
    names = first_names([str(folder.relative_to(path)) for folder in paths], MAX_FOLDERS_SHOWN)
    if len(paths) == 1:
        statement = f"its folder {names} is an adapter"
        pronoun = "it"
    else:
        statement = f"its folders {names} are adapters"
        pronoun = "one"
    first_path = paths[0]
    if first_path in zoo_folders:
        return f"{statement}: give {first_path}"
    command = shlex.join(["zoo", "convert", str(first_path), "--base", "REF", "-o", "DIR"])
    return f"{statement}: `{command}` converts {pronoun}"


def load_adapter(path: Path) -> Checkpoint:
    """Read the records of an adapter."""
    if not path.is_dir():
        reason = "a file" if path.is_file() else "not there"
        raise SourceError(f"{path} is not an adapter: it is {reason}", "give its directory")
    if not is_checkpoint(path):
        if (path / FOREIGN_CONFIG).is_file():
            hint = f"`zoo convert {path} -o DIR` converts one of peft"
        else:
            hint = hint_of_subfolders(path) or "give the directory of an adapter"
        raise UsageError(f"{path} is not an adapter: it has no {MANIFEST}", hint)
    adapter = load_checkpoint(path)
    if not adapter.is_adapter:
        raise UsageError(
            f"{path} is a whole model, not an adapter", "use it as REF, without --adapter"
        )
    return adapter


def has_own_tokenizer(adapter: Checkpoint) -> bool:
    """Return whether an adapter was trained with another tokenizer than its base's."""
    return adapter.tokenizer_file.is_file()


def adapter_record(adapter: Checkpoint) -> AdapterRecord:
    """Return the record of an adapter."""
    record = adapter.manifest.adapter
    assert record is not None, "load_adapter checks it"
    return record


def adapter_method_of(adapter: Checkpoint) -> AdapterMethod:
    """Return the method of an adapter, with its settings."""
    try:
        return parse_adapter(adapter_record(adapter).settings)
    except UsageError as error:
        raise VerificationError(f"{adapter.path / MANIFEST}: {error.what}", error.hint) from error


def whole_model_hint(adapter: Checkpoint) -> str:
    """Return how to get a whole model from an adapter."""
    if adapter_method_of(adapter).can_merge:
        return f"`zoo adapter merge {adapter.name} -o DIR` makes a whole model"
    return f"give its base, {adapter_record(adapter).base.reference}"


def adapter_file(adapter: Checkpoint) -> Path:
    """Return the path of an adapter's weights."""
    return adapter.path / ADAPTER


def require_finite_tensors(tensors: "Mapping[str, Tensor | NDArray[Any]]", file: Path) -> None:
    """Check that the tensors of an adapter's file are floating-point numbers, all finite."""
    for name, tensor in tensors.items():
        dtype = str(tensor.dtype).removeprefix("torch.")
        if dtype not in FLOAT_DTYPES:
            raise VerificationError(
                f"{file}: {name} is of the dtype {dtype}, and the tensors of an adapter are "
                f"{', '.join(FLOAT_DTYPES)}",
                "train the adapter again",
            )
    require_finite(tensors, file, "train the adapter again")


def require_base(adapter: Checkpoint, base: Checkpoint) -> None:
    """Check that an adapter was trained for a model."""
    recorded_base = adapter_record(adapter).base
    if base.is_export:
        require_fit(adapter, adapter_record(adapter), base)
        return
    if base.is_adapter:
        raise UsageError(
            f"{base.path} is an adapter itself", f"give its base, and --adapter {base.path}"
        )
    if base.family.name != adapter.family.name:
        raise UsageError(
            f"{adapter.path} is an adapter of a model of {adapter.family.name}, and {base.path} "
            f"is of {base.family.name}",
            f"its base is {recorded_base.reference}",
        )
    if weights_digest(base.manifest.files) != recorded_base.weights:
        raise VerificationError(
            f"{adapter.path} is an adapter of {recorded_base.reference}, and {base.path} has other "
            "weights: their digests differ",
            f"give {recorded_base.reference}, as it was",
        )


def find_adapters(folders: Iterable[Path]) -> list[Path]:
    """Return the directories of adapters in directories and up to three levels below them."""
    adapters: dict[Path, Path] = {}  # The resolved path of each adapter, and its path.
    for folder in folders:
        if not folder.is_dir():
            raise SourceError(f"{folder} is not a directory", "give one that exists")
        for depth in range(4):
            for file in sorted(folder.glob("*/" * depth + ADAPTER)):
                if is_checkpoint(file.parent):
                    adapters.setdefault(file.parent.resolve(), file.parent)
    return list(adapters.values())
