"""Output sequences of encoder-decoder models, such as translations."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.errors import UsageError
from zoo.families.base import DECODER_TOKENS
from zoo.inference.generation.config import cap_new_tokens
from zoo.inference.generation.languages import target_settings
from zoo.inference.generation.task import GenerationTask
from zoo.inference.task import EncodedExample
from zoo.overrides import override

if TYPE_CHECKING:
    from torch import Tensor

    from zoo.checkpoint import Checkpoint
    from zoo.inference import Session
    from zoo.tokenizers import TextTokenizer


class Seq2SeqGeneration(GenerationTask):
    """Output sequences of an encoder-decoder model.

    Results have the keys of ``GenerationTask``. Source texts that are too long are truncated.
    """

    name: ClassVar[str] = "seq2seq"
    side: ClassVar[str] = "right"

    def __init__(
        self,
        checkpoint: "Checkpoint",
        session: "Session",
        tokenizer: "TextTokenizer | None" = None,
        *,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(checkpoint, session, tokenizer, **options)
        if tgt_lang is not None:
            forced: Any = target_settings(self.tokenizer, tgt_lang)
            self.settings = replace(self.settings, **forced)
        if src_lang is not None:
            self.tokenizer = self.tokenizer.in_language(src_lang)

    @override
    def limits(self) -> list[int]:
        """Return the limits on the number of source tokens."""
        checkpoint = self.checkpoint
        settings = self.settings
        spec = checkpoint.onnx_spec
        most = spec.limits.get(DECODER_TOKENS)
        if most is not None and (self.overrides.get("max_new_tokens") or 0) > most:
            raise UsageError(
                f"{settings.max_new_tokens} new tokens are more than the decoder takes",
                f"it takes {most}: lower --max-new-tokens",
            )
        self.settings = cap_new_tokens(settings, most)
        return super().limits()

    @override
    def check(self, item: EncodedExample) -> None:
        """Refuse an empty text if the tokenizer has no beginning-of-sequence token."""
        self._prompt(item)

    @override
    def _starts(self, count: int, device: str) -> "dict[str, Tensor]":
        """Return ``decoder_start_token_id`` of the settings, or else of the configuration."""
        import torch

        config: Any = self.checkpoint.config
        start = self.settings.decoder_start_token_id
        if start is None:
            start = config.decoder_start_token_id
        return {"decoder_input_ids": torch.full((count, 1), start, device=device)}
