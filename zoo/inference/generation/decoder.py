"""Interface between generation and the models that generate."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from zoo.errors import NonFiniteError

if TYPE_CHECKING:
    from zoo.inference.generation.config import GenerationConfig
    from zoo.inference.generation.processors import Processor


class DecoderState(Protocol):
    """State of a decoder between steps: key-value cache, mask, encoded source."""

    def select(self, rows: Tensor) -> None:
        """Select rows of the batch, repeated or dropped, by their indices, (new batch,), int64."""


@runtime_checkable
class SessionDecoder(Protocol):
    """A model that generates one token at a time.

    Like any model it may define ``optimize_for_inference()``, which sessions call once after
    loading, before they run in float32 on a CPU; it may trade memory for speed.
    """

    def prefill(self, inputs: Mapping[str, Tensor], max_new_tokens: int) -> tuple[Tensor, Any]:
        """Run the prompts.

        Args:
            inputs: ``input_ids`` and, if there is padding, ``attention_mask``, int64 and
                (batch, tokens) each. Padding is on the left for decoders, so that every row
                ends in a token, and on the right for encoders. For encoder-decoders also
                ``decoder_input_ids``, (batch, 1), if the first token of the decoder differs from
                the configuration's.
            max_new_tokens: maximum number of tokens that will be generated.

        Returns:
            logits of the first new token, (batch, vocabulary), and a ``State``.
        """

    def step(self, tokens: Tensor, state: Any) -> Tensor:
        """Run one more token of each row.

        Args:
            tokens: (batch,), int64.
            state: state that ``prefill`` returned; updated in place.

        Returns:
            logits of the next token, (batch, vocabulary).
        """


@runtime_checkable
class SequenceGenerator(Protocol):
    """A runtime that searches for whole sequences itself, by the settings that it has."""

    def generate_sequences(
        self,
        inputs: Mapping[str, Tensor],
        settings: "GenerationConfig",
        limits: Sequence[int],
        eos_token_ids: Sequence[int],
        logits_processor: "Sequence[Processor]" = (),
    ) -> list[list[int]]:
        """Generate a continuation of each row; see ``zoo.inference.generation.generate.generate``.

        Args:
            inputs: see ``Decoder.prefill``.
            settings: settings of generation.
            limits: maximum number of new tokens of each row.
            eos_token_ids: end-of-sequence tokens.
            logits_processor: further rules.

        Raises:
            UsageError: the runtime does not have a setting.
        """

    def stream_tokens(
        self,
        inputs: Mapping[str, Tensor],
        settings: "GenerationConfig",
        limits: Sequence[int],
        eos_token_ids: Sequence[int],
        logits_processor: "Sequence[Processor]" = (),
    ) -> Iterator[int]:
        """Yield the new tokens of a single row as they are found."""


def require_finite(logits: Tensor) -> Tensor:
    """Return the logits if all are finite."""
    if not logits.isfinite().all():
        raise NonFiniteError("the model returned NaN or infinity while it generated")
    return logits


def pad(
    rows: Sequence[Sequence[int]], *, side: str, pad_id: int, device: torch.device | str
) -> dict[str, Tensor]:
    """Pad token ids to one length and stack them.

    Args:
        rows: token ids of each row; at least one row, none empty.
        side: side of the padding, ``left`` or ``right``.
        pad_id: padding token.
        device: device of the result.

    Returns:
        inputs of ``Decoder.prefill``, without a mask if there is no padding.
    """
    width = max(map(len, rows))
    ids = torch.full((len(rows), width), pad_id)
    mask = torch.zeros_like(ids)
    for index, row in enumerate(rows):
        cut = slice(width - len(row), width) if side == "left" else slice(len(row))
        ids[index, cut] = torch.tensor(row)
        mask[index, cut] = 1
    inputs = {"input_ids": ids} if mask.all() else {"input_ids": ids, "attention_mask": mask}
    return {name: tensor.to(device) for name, tensor in inputs.items()}
