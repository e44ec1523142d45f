"""The task features: hidden states of the tokens."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.errors import UsageError
from zoo.inference.processing.batching import EncodedBatch
from zoo.inference.processing.numbers import short_floats
from zoo.inference.processing.records import TextExample
from zoo.inference.session import no_layers
from zoo.inference.task import RESULT_NUMBERS, BatchTask, EncodedExample
from zoo.inference.task_checks import require_finite
from zoo.io.numbers import parse_int
from zoo.overrides import override

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.inference import Need

LAST = (-1,)


class ExtractFeatures(BatchTask):
    """Hidden states of chosen layers.

    Results have the keys ``tokens``, ``offsets`` (start and end of each token in characters; 0, 0
    for special tokens) and ``layers``: number of the layer as a string -> (tokens, hidden). Layer 0
    is the embeddings; negative numbers count from the last layer, -1.
    """

    name: ClassVar[str] = "features"
    output_keys: ClassVar[tuple[str, ...]] = ("tokens", "offsets", "layers")
    pairs: ClassVar[bool] = True
    chunk_size: int = 128  # The states of all layers of a chunk are in memory at once.

    @classmethod
    @override
    def needs(cls, checkpoint: "Checkpoint", options: Mapping[str, Any]) -> "tuple[Need, ...]":
        last_numbers = {-1, getattr(checkpoint.config, "num_layers", -1)}
        if set(options.get("layers", LAST)) <= last_numbers:
            return ("tokens",)
        return ("layers",)

    @classmethod
    @override
    def check_options(cls, checkpoint: "Checkpoint", options: Mapping[str, Any]) -> None:
        num_layers = getattr(checkpoint.config, "num_layers", None)
        if num_layers is not None:
            _require_layers(options.get("layers", LAST), num_layers)

    @classmethod
    @override
    def from_command(
        cls, records: Iterator[TextExample], options: dict[str, Any]
    ) -> tuple[Iterator[TextExample], dict[str, Any]]:
        if not isinstance(options["layers"], str):
            return records, options
        layers = [parse_int(part) for part in options["layers"].split(",")]
        if None in layers:
            raise UsageError(
                f"--layers {options['layers']} is not a list of numbers", "such as 0,6,-1"
            )
        return records, {**options, "layers": layers}

    def __init__(self, *args: Any, layers: Sequence[int] = LAST, **options: Any) -> None:
        super().__init__(*args, **options)
        if self.session.layers:
            self.depth = self.session.layers - 1
        else:
            # The backend exposes no layers.
            self.depth = int(getattr(self.checkpoint.config, "num_layers", 0))
        if not layers:
            raise UsageError("no layers were asked for", "-1 is the last")
        _require_layers(layers, self.depth)
        numbers = [layer % (self.depth + 1) for layer in layers]
        self.layers = tuple(dict.fromkeys(numbers))
        self.chunk_size = max(self.chunk_size // len(self.layers), 1)
        self.is_last_output = (
            self.layers == (self.depth,) and "last_hidden_state" in self.session.outputs
        )
        if not self.is_last_output and not self.session.layers:
            raise no_layers(self.session.backend)

    @override
    def compute(self, items: list[EncodedExample], batch: EncodedBatch) -> list[dict[str, Any]]:
        # Layer -> its states, (texts, tokens, hidden).
        if self.is_last_output:
            states = {self.depth: self.output("last_hidden_state", items, batch)}
        else:
            hidden_states = self.session.hidden_states(batch.inputs, self.layers)
            for state in hidden_states:
                require_finite(state, batch.mask, [item.record for item in items])
            states = dict(zip(self.layers, hidden_states, strict=True))
        results = []
        for row, item in enumerate(items):
            length = len(item.encoded.ids)
            layers = {}
            for number in self.layers:
                layers[str(number)] = states[number][row, :length].copy()
            result = {
                "tokens": list(item.encoded.tokens),
                "offsets": [list(span) for span in item.encoded.offsets],
                "layers": layers,
            }
            results.append(result)
        return results

    @override
    def max_result_numbers(self, record: TextExample) -> int:
        width = int(getattr(self.checkpoint.config, "hidden_size", RESULT_NUMBERS))
        return len(self.layers) * width * self.max_record_tokens(record)

    @override
    def to_json(self, added: dict[str, Any]) -> dict[str, Any]:
        layers = {name: short_floats(values) for name, values in added["layers"].items()}
        return {**added, "layers": layers}


def _require_layers(layers: Sequence[int], depth: int) -> None:
    """Check that a model with some number of layers, in addition to embeddings, has all of them."""
    for layer in layers:
        if not -depth - 1 <= layer <= depth:
            raise UsageError(
                f"the model has no layer {layer}",
                f"layers are 0 (the embeddings) to {depth}, or -1 (the last) to {-depth - 1}",
            )
