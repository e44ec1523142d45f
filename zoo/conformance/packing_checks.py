"""Checks of packed rows, whose documents must not see each other."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from zoo.conformance.tiny_model import (
    TOLERANCE,
    NotApplicable,
    TinyModel,
    largest_difference,
    require,
)
from zoo.errors import UsageError
from zoo.families.random_inputs import random_inputs
from zoo.objectives import objective_type


class PackingChecks(TinyModel):
    """Checks of packed rows."""

    # number of tokens of the documents of a packed row, the longest first
    packed_lengths: ClassVar[Sequence[int]] = (9, 5)

    def check_packed_rows(self, head: str) -> None:
        """Check that documents of a packed row have the hidden states of separate rows."""
        # Applies to models whose ``encode`` takes packed rows, or whose ``hidden`` takes packed
        # pairs of source and target
        model: Any = self.model(head)
        hidden = getattr(model, "hidden", None)
        encode = getattr(model, "encode", None)
        if _takes(hidden, "decoder_document_ids"):
            self._compare_pairs(model.hidden)
        elif _takes(encode, "document_ids"):
            texts = self._documents(seed=0)
            positions = torch.cat([torch.arange(len(text)) for text in texts])
            with torch.no_grad():
                packed = model.encode(
                    torch.cat(texts)[None],
                    position_ids=positions[None],
                    document_ids=_numbers(texts),
                )
                separate = torch.cat([model.encode(text[None]) for text in texts], dim=-2)
            _require_equal(packed, separate, "documents of a packed row")
        else:
            trains = f"the recipe of tiny packs rows of the head {head}"
            require(head != self._packed_head(), f"{trains}, and encode has no document_ids")
            raise NotApplicable(f"{self.family.name} with head {head} takes no packed rows")

    def _packed_head(self) -> str | None:
        """Return the head that the recipe trains on packed rows, if it does."""
        try:
            objective = self.family.recipe("tiny").objective
        except UsageError:  # no recipe
            return None
        objective_class = objective_type(self.family, self.config, objective)
        # rows of a stateful objective are not documents
        return None if objective_class.stateful else objective_class.head

    def _compare_pairs(self, hidden: Callable[..., tuple[Tensor, Tensor]]) -> None:
        """Compare the sources and the targets of an encoder-decoder."""
        sources = self._documents(seed=0)
        targets = self._documents(seed=1)[::-1]
        with torch.no_grad():
            packed = hidden(
                torch.cat(sources)[None],
                None,
                torch.cat(targets)[None],
                document_ids=_numbers(sources),
                decoder_document_ids=_numbers(targets),
            )
            pairs = [
                hidden(source[None], None, target[None])
                for source, target in zip(sources, targets, strict=True)
            ]
        for part, name in enumerate(("sources", "targets")):
            separate = torch.cat([pair[part] for pair in pairs], dim=-2)
            _require_equal(packed[part], separate, f"{name} of a packed row")

    def _documents(self, seed: int) -> list[Tensor]:
        spec = self.family.onnx(self.config, "none")
        lengths = self.packed_lengths
        ids = random_inputs(spec, self.config, lengths, seed=seed)["input_ids"]
        return [row[:length] for row, length in zip(ids, lengths, strict=True)]


def _takes(method: Any, name: str) -> bool:
    """Return whether a method has an argument, or takes any."""
    if method is None:
        return False
    parameters = inspect.signature(method).parameters
    return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _numbers(texts: Sequence[Tensor]) -> Tensor:
    """Return the document ids of a row of texts, (1, tokens)."""
    return torch.cat([torch.full((len(t),), k) for k, t in enumerate(texts, start=1)])[None]


def _require_equal(packed: Tensor, separate: Tensor, label: str) -> None:
    difference = largest_difference(packed, separate)
    message = f"{label} differ by {difference:.1e} from separate rows"
    require(difference <= TOLERANCE, message)
