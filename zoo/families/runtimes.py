"""What families declare for the formats of other runtimes: names of tensors, and settings.

A family's module ``runtimes`` has a function for each export target that holds it, with the name
of the target: ``gguf(config, head)`` returns a ``RuntimeModel``, or the reason why the format
cannot hold the model. ``from_gguf(header)`` is the way back: the keys of a Hub configuration, or
``None`` for a model of another family.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from zoo.errors import VerificationError
from zoo.io.limits import MAX_CONFIG_LABELS
from zoo.io.sizes import check_size
from zoo.overrides import override
from zoo.weights import Concat, Op, Rule, WeightMap
from zoo.weights.ops import SAME, Shape

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.io.tensors.formats import TensorReader

    Array = NDArray[np.generic[Any]]

QKV = Concat(3)
# Keys of a header, as GGUF names them.
ARCHITECTURE = "general.architecture"
TOKENIZER_KIND = "tokenizer.ggml.model"
Names = Mapping[str | tuple[str, ...], str | tuple[str, Op]]


@dataclass(frozen=True)
class RuntimeModel:
    """A model as the format of a runtime describes it.

    Attributes:
        architecture: name of the architecture in the format.
        settings: its settings, by the format's names.
        weights: rules from the format's tensor names to ours.
        copies: tensor of the format -> tensor of ours that it has the values of, for tied weights
            that the format stores twice.
        constants: tensor of the format -> function that returns its values, float32, for tables
            that follow from the configuration and that we do not store, such as sinusoidal
            positions.
        tokenizer: keys of how the family splits texts into words, in formats that describe one.
        read_only: why files of this model are read and not written, because the runtime computes
            something else; empty if they are written.
    """

    architecture: str
    settings: Mapping[str, Any]
    weights: WeightMap
    copies: Mapping[str, str] = field(default_factory=dict)
    constants: "Mapping[str, Callable[[], NDArray[np.float32]]]" = field(default_factory=dict)
    tokenizer: Mapping[str, str] = field(default_factory=dict)
    read_only: str = ""


@dataclass(frozen=True)
class RuntimeHeader:
    """What a file in the format of a runtime says of its model.

    Attributes:
        architecture: name of the architecture in the format.
        tokenizer: kind of tokenizer in the format; empty for none.
        metadata: key -> value, of all keys of the file.
        shapes: name -> shape of the tensors.
        location: the file, for messages.
    """

    architecture: str
    tokenizer: str
    metadata: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]
    location: str

    @classmethod
    def from_reader(cls, reader: "TensorReader") -> Self:
        """Return the header of an open file.

        Raises:
            VerificationError: the name of the architecture or of the tokenizer is not a text.
        """
        location = str(reader.files[0])
        names = []
        for key in (ARCHITECTURE, TOKENIZER_KIND):
            value = reader.metadata.get(key, "")
            if not isinstance(value, str):
                raise VerificationError(f"{location}: {key} = {value!r:.100} is not a name")
            names.append(value)
        return cls(
            architecture=names[0],
            tokenizer=names[1],
            metadata=reader.metadata,
            shapes={name: info.shape for name, info in reader.tensors.items()},
            location=location,
        )

    def common_keys(self) -> dict[str, Any]:
        """Return the Hub's keys of the sizes that every model has, by their most common names.

        Raises:
            VerificationError: the file lacks one of them.
        """
        return {
            "vocab_size": self.rows("token_embd.weight"),
            "hidden_size": self.count("embedding_length"),
            "num_hidden_layers": self.count("block_count"),
            "num_attention_heads": self.count("attention.head_count"),
            "intermediate_size": self.count("feed_forward_length"),
            "max_position_embeddings": self.count("context_length"),
        }

    def rows(self, tensor: str) -> int:
        """Return the number of rows of a tensor.

        Raises:
            VerificationError: the file has no such matrix.
        """
        shape = self.shapes.get(tensor, ())
        if len(shape) != 2:
            raise VerificationError(f"{self.location} holds no matrix {tensor}")
        return shape[0]

    def count(self, key: str, default: int | None = None) -> int:
        """Return a number that counts something, of a key of the architecture.

        Raises:
            VerificationError: the file has no such number, and there is no default.
        """
        value = self._value(key, default)
        if type(value) is not int or value < 0:
            raise self._wrong(key, value)
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """Return a number of a key of the architecture: the shortest that float32 rounds to it.

        Raises:
            VerificationError: the file has no such number, and there is no default.
        """
        import numpy as np

        value = self._value(key, default)
        if type(value) not in (int, float):
            raise self._wrong(key, value)
        with np.errstate(over="ignore"):
            rounded = np.float32(value)
        if not np.isfinite(rounded):
            raise self._wrong(key, value)
        return float(str(rounded))

    def text(self, key: str, default: str) -> str:
        """Return a text of a key of the architecture.

        Raises:
            VerificationError: it is not a text.
        """
        value = self._value(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, value)
        return value

    def token(self, role: str, default: int | None = None) -> int | None:
        """Return the id of a special token, such as ``padding``; by default ``default``.

        Raises:
            VerificationError: it is not a number.
        """
        key = f"tokenizer.ggml.{role}_token_id"
        value = self.metadata.get(key, default)
        if value is not None and (type(value) is not int or value < 0):
            raise VerificationError(f"{self.location}: {key} = {value!r:.100} is not a token")
        return value

    def labels(self) -> dict[str, Any]:
        """Return the Hub's key of the names of a classifier's outputs, or of their number."""
        from zoo.tokenizers.gguf import list_of

        names = list_of(self._value("classifier.output_labels"), (str,), self.location)
        if not names:
            rows = self.shapes.get("cls.output.weight", (2,))[0]
            check_size(self.location, "number of labels", rows, MAX_CONFIG_LABELS)
            names = [f"LABEL_{number}" for number in range(rows)]
        return {"id2label": {str(number): name for number, name in enumerate(names)}}

    def _value(self, key: str, default: Any = None) -> Any:
        return self.metadata.get(f"{self.architecture}.{key}", default)

    def _wrong(self, key: str, value: Any) -> VerificationError:
        name = f"{self.architecture}.{key}"
        if value is None:
            return VerificationError(f"{self.location} has no key {name}", "fetch it again")
        return VerificationError(f"{self.location}: {name} = {value!r:.100} is not a valid value")


@dataclass(frozen=True)
class SkipRows(Op):
    """The first rows are missing there, which belong to positions that no text has.

    On the way back they are zero, so this operation is not invertible.
    """

    rows: int = 0

    @override
    def hub_shapes(self, shape: Shape) -> tuple[Shape, ...]:
        return ((shape[0] - self.rows, *shape[1:]),)

    @override
    def chunks(self, arrays: "Sequence[Array]") -> "Sequence[Array]":
        import numpy as np

        (array,) = arrays
        return [np.zeros((self.rows, *array.shape[1:]), array.dtype), array]

    @override
    def to_hub(self, array: "Array") -> "tuple[Array, ...]":
        return (array[self.rows :],)


@dataclass(frozen=True)
class FirstRow(Op):
    """The one row of a matrix is a vector there."""

    @override
    def hub_shapes(self, shape: Shape) -> tuple[Shape, ...]:
        return (shape[1:],)

    @override
    def chunks(self, arrays: "Sequence[Array]") -> "Sequence[Array]":
        return arrays

    @override
    def to_hub(self, array: "Array") -> "tuple[Array, ...]":
        return (array[0],)


def gguf_sizes(config: Any) -> dict[str, Any]:
    """Return the settings of GGUF that every architecture has.

    ``RuntimeHeader.common_keys`` is the way back.
    """
    return {
        "context_length": getattr(config, "max_positions", None),
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "block_count": config.num_layers,
        "attention.head_count": config.num_heads,
    }


def runtime_weights(names: Names, model: WeightMap, counts: Mapping[str, int]) -> WeightMap:
    """Return the rules from the tensor names of a format to ours.

    Args:
        names: template of the format's name, or of several that an operation joins -> ours, with
            the operation; templates have the placeholders of ``WeightMap``.
        model: the family's rules, which know the shapes of our tensors.
        counts: number of values of each numeric placeholder.
    """
    shapes = {entry.target: entry.shape for entry in model.entries()}
    first_values = dict.fromkeys(counts, "0")
    rules = []
    for source, mapping in names.items():
        if isinstance(mapping, str):
            target = mapping
            op: Op = SAME
        else:
            target, op = mapping
        shape = shapes[target.format(**first_values, p="weight")]
        rules.append(Rule(source, target, shape, op))
    return WeightMap(rules=rules, counts=counts)


def layered(prefix: str, names: Names, ours: str = "layers.{i}.") -> dict[Any, Any]:
    """Return names within a block, with the prefixes of the format's block and of ours."""
    full_names: dict[Any, Any] = {}
    for source, mapping in names.items():
        parts = (source,) if isinstance(source, str) else source
        full_source = tuple(prefix + part for part in parts)
        key = full_source[0] if len(full_source) == 1 else full_source
        if isinstance(mapping, str):
            full_names[key] = ours + mapping
        else:
            target, op = mapping
            full_names[key] = (ours + target, op)
    return full_names
