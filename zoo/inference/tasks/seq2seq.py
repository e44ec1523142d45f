"""The task seq2seq: output sequences of encoder-decoder models, such as translations."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.errors import UsageError
from zoo.families.base import DECODER_TOKENS
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

    def limits(self) -> list[int]:
        """Return the limits on the number of source tokens.

        Raises:
            UsageError: the decoder takes fewer tokens than are to be generated.
        """
        checkpoint, settings = self.checkpoint, self.settings
        spec = checkpoint.family.onnx(checkpoint.config, checkpoint.head_name)
        most = spec.limits.get(DECODER_TOKENS)
        if most is None or settings.longest <= most:
            return super().limits()
        # the last new token is not read; max_length counts the first token of the decoder
        if settings.max_new_tokens is None and settings.max_length is not None:
            self.settings = replace(settings, max_length=most + 1)
        elif settings.max_new_tokens is None:
            self.settings = replace(settings, max_new_tokens=most)
        else:
            raise UsageError(
                f"{settings.longest} new tokens are more than the decoder takes",
                f"it takes {most}: lower --max-new-tokens",
            )
        return super().limits()

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
