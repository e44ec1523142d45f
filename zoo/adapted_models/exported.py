"""Adapters of an exported graph, whose tensors are inputs of it."""

from typing import Any

import msgspec

from zoo.checkpoint import ADAPTER, AdapterRecord, BaseRecord, Checkpoint
from zoo.errors import UsageError, VerificationError
from zoo.io.tensors.safetensors import SafetensorsReader

# Settings of training, which do not change what a trained adapter computes.
TRAINING_SETTINGS = ("dropout", "init", "target_modules")


class AdapterInputs(msgspec.Struct, frozen=True):
    """The inputs of a graph that hold an adapter, in the record of an export."""

    settings: dict[str, Any]  # name of the method, and its settings
    base: BaseRecord
    head: str
    tensors: dict[str, list[int]]  # name of an input -> its shape
    # whether the export has the tokenizer of an adapter, not the one of the base
    has_own_tokenizer: bool = False

    @classmethod
    def from_adapter(cls, adapter: Checkpoint, record: AdapterRecord) -> "AdapterInputs":
        """Return the inputs that an adapter fits."""
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
            value = self.settings.get(name)
            other_value = other.settings.get(name)
            if value != other_value and name not in TRAINING_SETTINGS:
                return f"its {name} is {other_value}, not {value}"
        for name in dict.fromkeys((*self.tensors, *other.tensors)):
            shape = self.tensors.get(name)
            other_shape = other.tensors.get(name)
            if other_shape is None:
                return f"it has no {name}"
            if shape is None:
                return f"the graph has no {name}"
            if shape != other_shape:
                return f"its {name} is of shape {tuple(other_shape)}, not {tuple(shape)}"
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
    inputs = inputs_of(export)
    if inputs is None:
        raise UsageError(
            f"{export.path} is an exported graph, whose weights an adapter cannot change",
            f"export {record.base.reference} with --adapter {adapter.path}, and --adapter-inputs "
            "for a graph that takes several",
        )
    difference = inputs.difference(AdapterInputs.from_adapter(adapter, record))
    if difference is not None:
        raise VerificationError(
            f"{export.path} does not take the adapter {adapter.path}: {difference}",
            f"export {record.base.reference} with --adapter {adapter.path}",
        )
