"""Decoder graphs with a key-value cache in ONNX Runtime."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from onnxruntime import InferenceSession, OrtValue

from zoo.families.onnx import (
    LOGITS,
    NUM_LOGITS,
    PAST,
    PRESENT,
    SOURCE_HIDDEN,
    SOURCE_MASK,
    USE_CACHE,
)
from zoo.inference.check_outputs import check_cache
from zoo.inference.ort.runtime import create_session, ort_value, run_values

if TYPE_CHECKING:
    from zoo.inference.session import Floats


Integers = NDArray[np.int64]
TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
ENCODED = "last_hidden_state"
Values = dict[str, OrtValue]


# The versions of ONNX 1.12, so that earlier releases of ONNX Runtime read the graph.
GATHER_OPSET = 17
GATHER_IR_VERSION = 8


class RowSelector:
    """Selects rows of tensors by a graph in ONNX Runtime, so that none is copied to the host."""

    def __init__(self, device: str = "cpu") -> None:
        self._device = device
        self._sessions: dict[int, InferenceSession] = {}  # Element type -> session.

    def select(
        self, values: Mapping[str, OrtValue], rows: NDArray[np.int64]
    ) -> dict[str, OrtValue]:
        """Return rows of the first axis of each tensor."""
        indices = ort_value(rows)
        selected = {}
        for name, value in values.items():
            element_type = value.element_type()
            if element_type not in self._sessions:
                self._sessions[element_type] = create_session(
                    gather_graph(element_type), self._device
                )
            inputs = {"values": value, "rows": indices}
            outputs = run_values(self._sessions[element_type], inputs, ["selected"], self._device)
            selected[name] = outputs["selected"]
        return selected


def gather_graph(element_type: int) -> bytes:
    """Return a graph that selects rows of a tensor with any number of axes."""
    from onnx import TensorProto, helper  # not needed without beams, and slow to import

    graph = helper.make_graph(
        [helper.make_node("Gather", ["values", "rows"], ["selected"], axis=0)],
        "rows",
        [
            helper.make_tensor_value_info("values", element_type, None),
            helper.make_tensor_value_info("rows", TensorProto.INT64, [None]),
        ],
        [helper.make_tensor_value_info("selected", element_type, None)],
    )
    opsets = [helper.make_opsetid("", GATHER_OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=GATHER_IR_VERSION)
    return bytes(model.SerializeToString())


class OrtDecodeState:
    """State between decoding steps."""

    def __init__(self, past: Values, source: Values, mask: Integers, selector: RowSelector) -> None:
        self.past = past
        self.source = source
        self.mask = mask
        self._selector = selector
        self._prompts = np.arange(len(mask))  # (batch,), the prompt of each row

    @property
    def length(self) -> int:
        """Number of tokens in the cache."""
        return int(next(iter(self.past.values())).shape()[2])

    def select(self, rows: Any) -> None:
        """Select rows of the batch; see ``zoo.inference.generation.decoder.DecoderState``."""
        indices = np.asarray(rows)
        self.past = self._selector.select(self.past, indices)
        prompts = self._prompts[indices]
        self.mask = self.mask[indices]
        if not np.array_equal(prompts, self._prompts):  # beams of one prompt share its source
            self.source = self._selector.select(self.source, indices)
            self._prompts = prompts


class OrtDecoder:
    """A decoder graph with a key-value cache, and the encoder graph of an encoder-decoder."""

    def __init__(
        self, paths: Sequence[Path], device: str = "cpu", threads: int | None = None
    ) -> None:
        self._device = device
        self._selector = RowSelector(device)
        *encoder, self.decoder = [create_session(path, device, threads) for path in paths]
        self._encoder = encoder[0] if encoder else None
        check_cache(paths[-1], self.decoder, tuple(TYPES))
        names = [o.name for o in self.decoder.get_outputs() if o.name.startswith(PRESENT)]
        self._cross_outputs = [name for name in names if ".encoder." in name]
        self._cache_outputs = [name for name in names if name not in self._cross_outputs]

    @property
    def target(self) -> str:
        """Name of the decoder's token ids among the inputs of the model."""
        return "decoder_input_ids" if self._encoder else "input_ids"

    def begin(self, inputs: Mapping[str, Integers]) -> OrtDecodeState:
        """Return the state before the first step; the encoder runs here, on (batch, tokens)."""
        mask = inputs["attention_mask"]
        past = self._empty_cache(len(mask), self._cache_outputs)
        if self._encoder is None:
            return OrtDecodeState(past, {}, mask, self._selector)
        values = {name: ort_value(inputs[name]) for name in ("input_ids", "attention_mask")}
        (hidden,) = run_values(self._encoder, values, [ENCODED], self._device).values()
        source = self._empty_cache(len(mask), self._cross_outputs)
        return OrtDecodeState(past, {SOURCE_HIDDEN: hidden, **source}, mask, self._selector)

    def _empty_cache(self, rows: int, outputs: Sequence[str]) -> Values:
        """Return keys and values of no tokens, by the names of the decoder's inputs."""
        return {
            value.name: ort_value(
                np.empty((rows, value.shape[1], 0, value.shape[3]), TYPES[value.type])
            )
            for value in self.decoder.get_inputs()
            if value.name.replace(PAST, PRESENT, 1) in outputs
        }

    def read(self, tokens: Integers, state: OrtDecodeState, *, last: bool = False) -> "Floats":
        """Run the decoder on new tokens, (batch, tokens); return logits in the graph's dtype.

        The logits are (batch, tokens, vocabulary) or (batch, 1, vocabulary).
        """
        arrays: dict[str, NDArray[Any]] = {"input_ids": tokens}
        if last:
            arrays[NUM_LOGITS] = np.array(1)
        first = state.length == 0
        if self._encoder:
            arrays |= {SOURCE_MASK: state.mask, USE_CACHE: np.array([not first])}
        else:
            size = state.length + tokens.shape[1]
            # generated tokens are not padding
            missing_columns = max(0, size - state.mask.shape[1])
            state.mask = (
                np.pad(state.mask, ((0, 0), (0, missing_columns)), constant_values=1)
                if missing_columns
                else state.mask
            )
            arrays["attention_mask"] = state.mask[:, :size]
        values = {name: ort_value(array) for name, array in arrays.items()}
        names = [LOGITS, *self._cache_outputs, *(self._cross_outputs if first else ())]
        values |= {**state.past, **state.source}
        outputs = run_values(self.decoder, values, names, self._device)
        logits: Floats = outputs.pop(LOGITS).numpy()
        cross = {name: outputs.pop(name) for name in names if name in self._cross_outputs}
        state.past = _as_inputs(outputs)
        state.source = {**state.source, **_as_inputs(cross)}
        return logits

    def whole(self, inputs: Mapping[str, Integers], past: int = 0) -> "Floats":
        """Return the logits of whole sequences, (batch, tokens), as (batch, tokens, vocabulary)."""
        state = self.begin(inputs)
        tokens = inputs[self.target]
        pieces = [tokens[:, :past], tokens[:, past:]] if past else [tokens]
        logits = [self.read(piece, state) for piece in pieces]
        return np.concatenate(logits, axis=1) if past else logits[0]


def _as_inputs(outputs: Mapping[str, OrtValue]) -> Values:
    """Rename the cache that a run returned to the inputs of the next run."""
    return {name.replace(PRESENT, PAST, 1): value for name, value in outputs.items()}
