"""Running graphs with a cache: keys and values go from one run of ONNX Runtime into the next."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from onnxruntime import OrtValue

from zoo.families.onnx import LOGITS, PAST, PRESENT
from zoo.inference.check_outputs import check_cache
from zoo.inference.ort import create_session, run_values

if TYPE_CHECKING:
    from zoo.inference.session import Floats

Integers = NDArray[np.int64]
TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
Values = dict[str, OrtValue]


class OrtDecodeState:
    """What is kept between the runs.

    Args:
        past: keys and values of the tokens that were read, by the decoder's names.
        source: likewise of the source, if there is one.
        mask: (batch, tokens) of all tokens that are known of, or of the source.
    """

    def __init__(self, past: Values, source: Values, mask: Integers) -> None:
        self.past, self.source, self.mask = past, source, mask
        self._given = np.arange(len(mask))

    @property
    def length(self) -> int:
        """How many tokens were read."""
        return int(next(iter(self.past.values())).shape()[2])

    def select(self, rows: Any) -> None:
        """Keep some rows of the batch, in the order given."""
        kept = np.asarray(rows)
        self.past, given = _rows(self.past, kept), self._given[kept]
        self.mask = self.mask[kept]
        if not np.array_equal(given, self._given):  # beams of one text share its source
            self.source, self._given = _rows(self.source, kept), given


class OrtDecoder:
    """The graph of a model that writes with a cache, or the two of an encoder and a decoder.

    Args:
        paths: the decoder's file, or the encoder's and the decoder's.
        device: see ``start``.
        threads: likewise.

    Attributes:
        decoder: the one that reads tokens, in ONNX Runtime.
    """

    def __init__(
        self, paths: Sequence[Path], device: str = "cpu", threads: int | None = None
    ) -> None:
        *encoder, self.decoder = [create_session(path, device, threads) for path in paths]
        self._encoder = encoder[0] if encoder else None
        check_cache(paths[-1], self.decoder, tuple(TYPES))
        self._grown = [o.name for o in self.decoder.get_outputs() if o.name.startswith(PRESENT)]

    @property
    def target(self) -> str:
        """What the tokens that the decoder reads are called among a model's inputs."""
        return "decoder_input_ids" if self._encoder else "input_ids"

    def begin(self, inputs: Mapping[str, Integers]) -> OrtDecodeState:
        """Return what is kept before the first token; a source is read here.

        Args:
            inputs: ``input_ids`` and ``attention_mask``, int64 and (batch, tokens) each.
        """
        mask = inputs["attention_mask"]
        empty = {
            given.name: _value(
                np.empty((len(mask), given.shape[1], 0, given.shape[3]), TYPES[given.type])
            )
            for given in self.decoder.get_inputs()
            if _past(given.name) in self._grown
        }
        if self._encoder is None:
            return OrtDecodeState(empty, {}, mask)
        names = [output.name for output in self._encoder.get_outputs()]
        known = {name: _value(inputs[name]) for name in ("input_ids", "attention_mask")}
        return OrtDecodeState(empty, _fed(run_values(self._encoder, known, names)), mask)

    def read(self, tokens: Integers, held: OrtDecodeState) -> "Floats":
        """Read more tokens of each row.

        Args:
            tokens: (batch, tokens).
            held: changed in place.

        Returns:
            what comes after each, (batch, tokens, vocabulary), in the dtype of the graph.
        """
        known = {"input_ids": tokens}
        if self._encoder:
            known["encoder_attention_mask"] = held.mask
        else:
            size = held.length + tokens.shape[1]
            held.mask = _widened(held.mask, size)
            known["attention_mask"] = held.mask[:, :size]
        values = {name: _value(array) for name, array in known.items()}
        found = run_values(
            self.decoder, {**values, **held.past, **held.source}, [LOGITS, *self._grown]
        )
        logits: Floats = found.pop(LOGITS).numpy()
        held.past = _fed(found)
        return logits

    def whole(self, inputs: Mapping[str, Integers], past: int = 0) -> "Floats":
        """Return what comes after every token of texts, (batch, tokens, vocabulary).

        Args:
            inputs: what the model takes, int64 and (batch, tokens) each.
            past: read so many first, and the others after them.
        """
        held, tokens = self.begin(inputs), inputs[self.target]
        pieces = [tokens[:, :past], tokens[:, past:]] if past else [tokens]
        read = [self.read(piece, held) for piece in pieces]
        return np.concatenate(read, axis=1) if past else read[0]


def _past(name: str) -> str:
    return name.replace(PAST, PRESENT, 1)


def _fed(found: Mapping[str, OrtValue]) -> Values:
    """Name what a run returned as the next is given it."""
    return {name.replace(PRESENT, PAST, 1): value for name, value in found.items()}


def _value(array: NDArray[Any]) -> OrtValue:
    return OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))


def _rows(values: Values, rows: NDArray[Any]) -> Values:
    return {name: _value(value.numpy()[rows]) for name, value in values.items()}


def _widened(mask: Integers, size: int) -> Integers:
    """Return a mask of so many tokens or more: what was written is no padding."""
    more = max(0, size - mask.shape[1])
    return np.pad(mask, ((0, 0), (0, more)), constant_values=1) if more else mask
