"""Scores of the next token: the model's logits after the rules of the settings."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from zoo.errors import UsageError
from zoo.inference.generation.config import GenerationConfig
from zoo.inference.generation.decoder import require_finite
from zoo.inference.generation.processors import Processor, make_rules
from zoo.inference.generation.processors.base import Step

TARGET = "decoder_input_ids"


class Scores:
    """Applies the rules of generation to the rows of a batch.

    A rule sees no padding: it is called once for the rows of each length of prompt, or of source.
    So a text does not depend on the batch it is in.
    """

    def __init__(
        self,
        inputs: Mapping[str, Tensor],
        settings: GenerationConfig,
        eos_token_ids: Sequence[int],
        custom: Sequence[Processor] = (),
    ) -> None:
        self._settings = settings
        self._rules = make_rules(settings, eos_token_ids, custom)
        self.has_rules = bool(self._rules)
        ids = inputs["input_ids"]
        mask = inputs.get("attention_mask")
        self._starts = inputs.get(TARGET)  # (prompts, tokens), of an encoder-decoder
        rows = zip(ids, ids == ids if mask is None else mask.bool(), strict=True)
        self._prompts = [row[real] for row, real in rows]
        starts = self._prompts if self._starts is None else self._starts
        self.max_new_tokens = [settings.new_tokens(len(start)) for start in starts]
        if min(self.max_new_tokens) < 1:
            raise UsageError(
                f"max_length {settings.max_length} leaves no room after {max(map(len, starts))} "
                "tokens",
                "raise it, or give max_new_tokens",
            )

    def of(self, logits: Tensor, rows: Sequence[int], new_tokens: Tensor) -> Tensor:
        """Return the scores that logits, (rows, vocabulary), become, given the generated tokens.

        For a beam search, logits are after ``log_softmax``. ``new_tokens`` are (rows, new tokens),
        int64.
        """
        groups: dict[int, list[int]] = {}
        for place, row in enumerate(rows):
            groups.setdefault(len(self._prompts[row]), []).append(place)
        scores = logits
        for places in groups.values():
            group_rows = [rows[place] for place in places]
            if len(groups) == 1:
                return self._apply(logits, group_rows, new_tokens)
            index = torch.tensor(places, device=logits.device)
            part = self._apply(logits[index], group_rows, new_tokens[index])
            scores = scores.index_copy(0, index, part)
        return scores

    def _apply(self, scores: Tensor, rows: Sequence[int], new_tokens: Tensor) -> Tensor:
        """Apply the rules to rows whose prompts have one length."""
        prompts = torch.stack([self._prompts[row] for row in rows])
        starts = prompts if self._starts is None else self._starts[list(rows)]
        ids = torch.cat([starts.to(new_tokens.device), new_tokens], 1)
        step = Step(ids, prompts.to(ids.device), new_tokens.shape[1], self.max_new_tokens[rows[0]])
        for rule in self._rules:
            scores = rule(step, scores)
        return scores

    def check(self, logits: Tensor) -> None:
        """Check the model's logits before the first rule."""
        if not self._settings.remove_invalid_values:
            require_finite(logits)
