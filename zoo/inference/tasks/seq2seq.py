"""The task seq2seq: output sequences of encoder-decoder models, such as translations."""

from typing import TYPE_CHECKING, Any, ClassVar

from zoo.inference.tasks.base import EncodedExample
from zoo.inference.tasks.generate import Generate

if TYPE_CHECKING:
    from torch import Tensor


class Seq2Seq(Generate):
    """Output sequences of an encoder-decoder model.

    Results have the keys of ``Generate``. Source texts that are too long are truncated.
    """

    name: ClassVar[str] = "seq2seq"
    side: ClassVar[str] = "right"

    def check(self, item: EncodedExample) -> None:
        """Refuse an empty text where there is no beginning-of-sequence token."""
        self._prompt(item)

    def _starts(self, count: int, device: str) -> "dict[str, Tensor]":
        """Return ``decoder_start_token_id`` of the settings, or else of the configuration."""
        import torch

        config: Any = self.checkpoint.config
        start = self.settings.decoder_start_token_id
        if start is None:
            start = config.decoder_start_token_id
        return {"decoder_input_ids": torch.full((count, 1), start, device=device)}
