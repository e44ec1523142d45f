"""Adapters of an exported graph, whose tensors are inputs of it."""

from typing import Any

import msgspec

from zoo.checkpoint import ADAPTER, AdapterRecord, BaseRecord, Checkpoint
from zoo.errors import UsageError, VerificationError
from zoo.io.tensors.safetensors import SafetensorsReader

# settings of training, which do not change what a trained adapter computes
OF_TRAINING = ("dropout", "init", "target_modules")


class AdapterInputs(msgspec.Struct, frozen=True):
    """The inputs of a graph that hold an adapter, in the record of an export."""

    settings: dict[str, Any]  # name of the method, and its settings
    base: BaseRecord
    head: str
    tensors: dict[str, list[int]]  # name of an input -> its shape
    # whether the export has the tokenizer of an adapter, not the one of the base
    has_own_tokenizer: bool = False

    @classmethod
    def of(cls, adapter: Checkpoint, record: AdapterRecord) -> "AdapterInputs":
        """Return those that an adapter fits."""
        with SafetensorsReader([adapter.path / ADAPTER]) as reader:
            shapes = {name: list(info.shape) for name, info in sorted(reader.tensors.items())}
        has_own_tokenizer = adapter.tokenizer_file.is_file()
        return cls(record.settings, record.base, adapter.head_name, shapes, has_own_tokenizer)

    def difference(self, other: "AdapterInputs") -> str | None:
        """Return in what an adapter differs from the one of a graph; ``None`` in nothing."""
        if self.base.weights != other.base.weights:
            return f"it changes {other.base.reference}, not {self.base.reference}"
        if self.head != other.head:
            return f"it has the head {other.head}, not {self.head}"
        for name in dict.fromkeys((*self.settings, *other.settings)):
            mine = self.settings.get(name)
            theirs = other.settings.get(name)
            if mine != theirs and name not in OF_TRAINING:
                return f"its {name} is {theirs}, not {mine}"
        for name in dict.fromkeys((*self.tensors, *other.tensors)):
            before = self.tensors.get(name)
            after = other.tensors.get(name)
            if before is None or after is None:
                return f"{'it' if after is None else 'the graph'} has no {name}"
            if before != after:
                return f"its {name} is of shape {tuple(after)}, not {tuple(before)}"
        if self.has_own_tokenizer and not other.has_own_tokenizer:
            return "it reads texts with its base's tokenizer, and the graph has another one"
        return None


class _Record(msgspec.Struct, frozen=True):
    """The field of the record of an export."""

    adapter_inputs: AdapterInputs | None = None


def inputs_of(export: Checkpoint) -> AdapterInputs | None:
    """Return the inputs of an exported graph that hold an adapter, or ``None``."""
    return export.read_part("export", _Record).adapter_inputs


def require_fit(adapter: Checkpoint, record: AdapterRecord, export: Checkpoint) -> None:
    """Check that an exported graph takes an adapter."""
    taken = inputs_of(export)
    if taken is None:
        raise UsageError(
            f"{export.path} is an exported graph, whose weights an adapter cannot change",
            f"export {record.base.reference} with --adapter {adapter.path}, and --adapter-inputs "
            "for a graph that takes several",
        )
    difference = taken.difference(AdapterInputs.of(adapter, record))
    if difference is not None:
        raise VerificationError(
            f"{export.path} does not take the adapter {adapter.path}: {difference}",
            f"export {record.base.reference} with --adapter {adapter.path}",
        )
