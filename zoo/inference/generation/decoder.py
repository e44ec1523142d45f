"""What a model offers to be generated with, whatever it is made of."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from zoo.errors import NonFiniteError


class State(Protocol):
    """What a decoder remembers of its rows: a cache, a mask, an encoded source."""

    def select(self, rows: Tensor) -> None:
        """Keep some rows, in the order given; a row may be kept several times, or dropped.

        Args:
            rows: (kept,), int64.
        """


@runtime_checkable
class Decoder(Protocol):
    """A model that continues token sequences, one token at a time.

    It may have a method ``quicken()`` too, as any model may: sessions call it once the weights
    are there, before they run in float32 on a CPU, and it may trade memory for speed.
    """

    def prefill(self, inputs: Mapping[str, Tensor], max_new_tokens: int) -> tuple[Tensor, Any]:
        """Read the inputs.

        Args:
            inputs: ``input_ids`` and, where there is padding, ``attention_mask``, int64 and
                (batch, tokens) each. A model that continues its input gets it padded on the
                left, so that every row ends in a real token; a model that reads its input with
                an encoder, on the right.
            max_new_tokens: how many tokens will be generated at most.

        Returns:
            logits of the first new token, (batch, vocabulary), and a ``State``.
        """

    def step(self, tokens: Tensor, state: Any) -> Tensor:
        """Read one more token of each row.

        Args:
            tokens: (batch,), int64.
            state: of ``prefill``; changed in place.

        Returns:
            logits of the next token, (batch, vocabulary).
        """


def require_finite(logits: Tensor) -> Tensor:
    """Return logits after a check.

    Raises:
        NonFiniteError: one is NaN or infinite.
    """
    if not logits.isfinite().all():
        raise NonFiniteError("the model returned NaN or infinity while it generated")
    return logits


def pad(
    rows: Sequence[Sequence[int]], *, side: str, pad_id: int, device: torch.device | str
) -> dict[str, Tensor]:
    """Stack token ids of several lengths.

    Args:
        rows: at least one, and none of them empty.
        side: ``left`` or ``right``.
        pad_id: what to fill up with.
        device: where to.

    Returns:
        the inputs of ``Decoder.prefill``; no mask where nothing was padded.
    """
    width = max(map(len, rows))
    ids = torch.full((len(rows), width), pad_id)
    mask = torch.zeros_like(ids)
    for place, row in enumerate(rows):
        cut = slice(width - len(row), width) if side == "left" else slice(len(row))
        ids[place, cut] = torch.tensor(row)
        mask[place, cut] = 1
    inputs = {"input_ids": ids} if mask.all() else {"input_ids": ids, "attention_mask": mask}
    return {name: tensor.to(device) for name, tensor in inputs.items()}
