"""The documents of packed rows; for attention within them, see ``zoo.nn.kernels``."""

import functools
from collections.abc import Callable, MutableMapping
from typing import NamedTuple, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.weak import WeakIdKeyDictionary

P = ParamSpec("P")
T = TypeVar("T")


def outside_of_graphs(function: Callable[P, T]) -> Callable[P, T]:
    """Exclude a function from compiled graphs, as ``torch.compiler.disable``."""
    # The compiler, which takes seconds to import, is only used in code that it compiles.
    disabled: Callable[P, T] = torch._disable_dynamo(function)  # type: ignore[attr-defined]

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        if torch.compiler.is_compiling():
            return disabled(*args, **kwargs)
        return function(*args, **kwargs)

    return call


class DocumentOffsets(NamedTuple):
    """The documents of packed rows, as stretches of the flattened rows."""

    # (documents + 1,), int32: the first token of each document, and the number of all tokens. The
    # padding of a row counts as a document.
    offsets: Tensor
    max_length: int  # Number of tokens that no document exceeds.
    causal: bool = False  # Whether a token attends only to itself and earlier tokens.
    # Number of tokens on each side that a token attends to; ``None`` for all.
    reach: int | None = None
    # Number of keys at the beginning of each document, such as a prefix's, that have no query.
    more_keys: int = 0

    @property
    def offsets_of_keys(self) -> Tensor:
        """The same offsets for the keys, (documents + 1,), int32."""
        if not self.more_keys:
            return self.offsets
        numbers = torch.arange(len(self.offsets), device=self.offsets.device, dtype=torch.int32)
        return self.offsets + numbers * self.more_keys

    @classmethod
    def of(cls, document_ids: Tensor, *, causal: bool = False) -> "DocumentOffsets":
        """Return the offsets for document ids, (rows, tokens); equal ones are adjacent."""
        return cls(document_offsets(document_ids), document_ids.shape[1], causal)


# Document ids -> their version and their offsets, as long as the ids exist.
_attached: MutableMapping[Tensor, tuple[int, Tensor]] = WeakIdKeyDictionary()


def attach_offsets(document_ids: Tensor, offsets: Tensor) -> None:
    """Let ``document_offsets`` return offsets that were computed elsewhere, such as on the host.

    They count until the ids change in place. Copies of the ids do not have them.
    """
    _attached[document_ids] = (document_ids._version, offsets)


def attached_offsets(document_ids: Tensor) -> Tensor | None:
    """Return the offsets that were attached to document ids, if there are any."""
    attached = _attached.get(document_ids)
    if attached is None:
        return None
    version, offsets = attached
    return offsets if version == document_ids._version else None


@outside_of_graphs
def document_offsets(document_ids: Tensor) -> Tensor:
    """Return the offsets, (documents + 1,), int32.

    Their number depends on the ids, so that the device is waited for, unless they are attached.
    """
    attached = attached_offsets(document_ids)
    if attached is not None:
        return attached
    begins = torch.ones_like(document_ids, dtype=torch.bool)
    begins[:, 1:] = document_ids[:, 1:] != document_ids[:, :-1]
    starts = begins.flatten().nonzero()[:, 0]
    return F.pad(starts, (0, 1), value=document_ids.numel()).to(torch.int32)


@outside_of_graphs
def one_segment_a_row(segments: Tensor) -> bool:
    """Return whether each row has at most one stretch of numbers above 0, as text with padding."""
    # ``segments`` is (batch, tokens), int64, such as an attention mask.
    begins = segments != 0
    begins[:, 1:] &= segments[:, :-1] == 0
    return bool((begins.sum(1) <= 1).all())
