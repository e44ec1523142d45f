"""Checks of generation: steps after a cache, padded prompts, rows that a beam search reorders."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from zoo.conformance.tiny_model import TOLERANCE, TinyModel, largest_difference, require
from zoo.exporting.graph.parts import NUM_NEW_TOKENS, with_cache
from zoo.families.onnx import LOGITS, OnnxSpec
from zoo.families.random_inputs import random_inputs
from zoo.inference.generation.decoder import SessionDecoder, pad
from zoo.nn.generation import GenerationMixin

PROMPTS = (5, 2)  # tokens of the prompts of a batch
# rows that are kept before each step; in the last, two share their prompt and earlier tokens
SELECTED = ((1, 0), (0, 1, 1))
TARGET = "decoder_input_ids"


class GenerationChecks(TinyModel):
    """Checks of the heads that generate tokens."""

    def check_cached_decoding(self, head: str) -> None:
        """Check that decoding with a cache gives the logits of a single pass."""
        spec = self.family.onnx(self.config, head)
        model = self.model(head)
        inputs = self.inputs(head)
        self.require_equal_with_cache(model, spec, inputs)

    def require_equal_with_cache(
        self, model: nn.Module, spec: OnnxSpec, inputs: Mapping[str, Tensor]
    ) -> None:
        """Check the logits of the last tokens of inputs; see ``check_cached_decoding``."""
        if not isinstance(model, GenerationMixin) or list(spec.outputs) != [LOGITS]:
            return
        parts = with_cache(model, spec, inputs)
        for part in (*(part.first_run for part in parts if part.first_run), *parts):
            outputs = self.run(part.module, part.example)
            require(list(outputs) == list(part.spec.outputs), f"{part.file}: {list(outputs)}")
        expected = self.run(model, inputs)[LOGITS][:, -NUM_NEW_TOKENS:]
        difference = largest_difference(outputs[LOGITS], expected)
        require(difference <= TOLERANCE, f"logits with a cache differ by {difference:.1e}")

    def check_generation(self, head: str) -> None:
        """Check that padded prompts, whose rows are reordered, continue as each does by itself."""
        # Applies to models with ``prefill`` and ``step``. Each step is compared with a pass over
        # the whole text without a cache, or, for heads without an exact one, with the steps of the
        # row by itself.
        model: Any = self.model(head)
        spec = self.family.onnx(self.config, head)
        if not isinstance(model, SessionDecoder) or list(spec.outputs) != [LOGITS]:
            return
        shortest = spec.minimums.get("tokens", 1)
        lengths = [max(length, shortest) for length in PROMPTS]
        ids = random_inputs(spec, self.config, lengths)["input_ids"]
        drawn = random_inputs(spec, self.config, [len(SELECTED) + shortest] * 3, seed=1)
        prompts = [row[:length] for row, length in zip(ids.tolist(), lengths, strict=True)]
        continuations = drawn["input_ids"].tolist()  # as many as rows are kept
        side = "right" if self._has_target(head) else "left"
        pad_id = getattr(self.config, "pad_token_id", None) or 0
        batch = pad(prompts, side=side, pad_id=pad_id, device="cpu")
        with torch.no_grad():
            logits, state = model.prefill(batch, len(SELECTED))
            rows = [(prompt, list[int]()) for prompt in prompts]
            self._compare(head, model, rows, logits)
            for step, selected in enumerate(SELECTED):
                tokens = [text[step] for text in continuations[: len(selected)]]
                state.select(torch.tensor(selected))
                rows = [
                    (rows[index][0], [*rows[index][1], token])
                    for index, token in zip(selected, tokens, strict=True)
                ]
                logits = model.step(torch.tensor(tokens), state)
                self._compare(head, model, rows, logits)
        require(not torch.equal(logits[1], logits[2]), "a step gives every token the same logits")

    def _has_target(self, head: str) -> bool:
        return TARGET in self.family.onnx(self.config, head).inputs

    def _compare(
        self, head: str, model: Any, rows: Sequence[tuple[list[int], list[int]]], logits: Tensor
    ) -> None:
        """Compare the next logits of a batch, (rows, vocabulary), with each row by itself."""
        # ``rows`` has prompt and new tokens of each row
        for row, (prompt, tokens) in enumerate(rows):
            difference = largest_difference(
                logits[row], self._separate(head, model, prompt, tokens)
            )
            message = f"logits after {len(tokens)} new tokens differ by {difference:.1e}"
            require(difference <= TOLERANCE, f"{message} from the row's by itself")

    def _separate(self, head: str, model: Any, prompt: list[int], tokens: list[int]) -> Tensor:
        """Return the next logits of one row, (vocabulary,), without a cache if that is exact."""
        source = torch.tensor([prompt])
        if not self.family.heads()[head].has_cache:
            logits, state = model.prefill({"input_ids": source}, len(tokens))
            for token in tokens:
                logits = model.step(torch.tensor([token]), state)
            return logits[0]  # type: ignore[no-any-return]
        inputs = {"input_ids": torch.tensor([[*prompt, *tokens]])}
        if self._has_target(head):
            start = model.decoder_input_ids(source)
            target = torch.cat((start, torch.tensor([tokens], dtype=torch.int64)), dim=1)
            inputs = {"input_ids": source, TARGET: target}
        return self.run(model, inputs)[LOGITS][0, -1]
