"""Comparison of what a runtime generates with what torch generates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from zoo.checkpoint import Checkpoint, load_text_tokenizer
from zoo.errors import VerificationError
from zoo.exporting.quantization.agreement import TARGET, TextBatch
from zoo.exporting.quantization.texts import why_no_texts
from zoo.exporting.report import GenerationAgreement
from zoo.families.base import DECODER_TOKENS
from zoo.families.onnx import LOGITS
from zoo.inference.generation.config import GenerationConfig, token_ids
from zoo.inference.generation.decoder import pad
from zoo.inference.generation.generate import generate
from zoo.inference.processing.numbers import log_softmax

if TYPE_CHECKING:
    from torch import Tensor

    from zoo.inference.session import Session

MAX_ROWS = 8
MAX_NEW_TOKENS = 16
NUM_BEAMS = 4
# Tokens of a prompt or source.
MIN_TOKENS = 3
MAX_TOKENS = 48


@dataclass(frozen=True)
class GeneratedSequences:
    """Sequences that torch generates, by greedy search and with beams."""

    checkpoint: Checkpoint
    rows: Sequence[list[int]]  # tokens of the prompts or sources
    ends: Sequence[int]
    sequences: Mapping[str, list[list[int]]]  # name of the search -> its sequences

    @classmethod
    def from_model(cls, checkpoint: Checkpoint, model: Any, samples: Sequence[TextBatch]) -> Self:
        """Generate from the shortest texts."""
        rows = _rows(checkpoint, samples)
        ends = _ends(checkpoint)
        if not rows:
            return cls(checkpoint, rows, ends, {})
        inputs = _inputs(checkpoint, rows)
        searches = _searches(checkpoint, rows)
        sequences = {}
        for name, settings in searches.items():
            sequences[name] = generate(model, inputs, settings, eos_token_ids=ends)
        return cls(checkpoint, rows, ends, sequences)

    def compare(self, session: "Session", tolerance: float | None) -> GenerationAgreement:
        """Compare a runtime's sequences with torch's; other ones may be as likely."""
        equal: dict[str, int] = {}
        if not self.rows:
            return GenerationAgreement(texts=0, equal=equal)
        decoder = session.generator()
        inputs = _inputs(self.checkpoint, self.rows)
        searches = _searches(self.checkpoint, self.rows)
        for name, expected in self.sequences.items():
            actual = generate(decoder, inputs, searches[name], eos_token_ids=self.ends)
            greedy = searches[name].num_beams == 1
            equal[name] = 0
            for row, tokens, runtime_tokens in zip(self.rows, expected, actual, strict=True):
                if tokens == runtime_tokens:
                    equal[name] += 1
                elif tolerance is not None:
                    self._require_tie(
                        session, row, tokens, runtime_tokens, tolerance, greedy=greedy
                    )
        return GenerationAgreement(texts=len(self.rows), equal=equal)

    def _require_tie(
        self,
        session: "Session",
        row: list[int],
        expected: list[int],
        actual: list[int],
        tolerance: float,
        *,
        greedy: bool,
    ) -> None:
        """Check that two sequences are equally likely, as far as rounding is."""
        # The logits of the runtime were compared with torch's before.
        expected_logits = self._logits(session, row, expected)
        actual_logits = self._logits(session, row, actual)
        expected_log_probs = log_softmax(expected_logits)[np.arange(len(expected)), expected]
        actual_log_probs = log_softmax(actual_logits)[np.arange(len(actual)), actual]
        if greedy:
            position = 0  # of the first token that differs
            while expected[position] == actual[position]:
                position += 1
            loss = abs(float(expected_log_probs[position] - actual_log_probs[position]))
        else:
            loss = float(expected_log_probs.mean() - actual_log_probs.mean())
        largest = max(float(np.abs(expected_logits).max()), float(np.abs(actual_logits).max()))
        accepted = 2 * tolerance * largest
        if loss > accepted:
            raise VerificationError(
                f"{session.backend} generates other tokens than torch, which are less likely by "
                f"{loss:.1e}, where {accepted:.0e} is accepted: {actual} for {expected}",
                "nothing was written",
            )

    def _logits(self, session: "Session", row: list[int], sequence: list[int]) -> Any:
        """Return the logits that predict a sequence, (tokens, vocabulary)."""
        ids = np.array([row])
        if TARGET in self.checkpoint.onnx_spec.inputs:
            config: Any = self.checkpoint.config
            target = np.array([[config.decoder_start_token_id, *sequence[:-1]]])
            return session.run({"input_ids": ids, TARGET: target})[LOGITS][0].astype(np.float64)
        text = np.array([[*row, *sequence[:-1]]])
        return session.run({"input_ids": text})[LOGITS][0, len(row) - 1 :].astype(np.float64)


def _rows(checkpoint: Checkpoint, samples: Sequence[TextBatch]) -> list[list[int]]:
    """Return the tokens of the shortest rows; prompts leave room for new tokens."""
    spec = checkpoint.onnx_spec
    max_tokens = spec.limits.get("tokens", 2 * MAX_TOKENS)
    if TARGET not in spec.inputs:
        max_tokens //= 2
    max_tokens = min(MAX_TOKENS, max_tokens)
    rows: list[list[int]] = []
    for sample in samples:
        for ids, mask in zip(sample.inputs["input_ids"], sample.mask, strict=True):
            row = ids[mask[: len(ids)]].tolist()
            if MIN_TOKENS <= len(row) <= max_tokens:
                rows.append(row)
    return sorted(rows, key=len)[:MAX_ROWS]


def _searches(checkpoint: Checkpoint, rows: Sequence[list[int]]) -> dict[str, GenerationConfig]:
    spec = checkpoint.onnx_spec
    max_new_tokens = min(MAX_NEW_TOKENS, spec.limits.get(DECODER_TOKENS, MAX_NEW_TOKENS))
    if TARGET not in spec.inputs:
        max_tokens = spec.limits.get("tokens", MAX_NEW_TOKENS + MAX_TOKENS)
        max_new_tokens = min(max_new_tokens, max_tokens - max(map(len, rows)))
    beam_search = GenerationConfig(
        max_new_tokens=max_new_tokens, num_beams=NUM_BEAMS, early_stopping=True
    )
    return {
        "greedily": GenerationConfig(max_new_tokens=max_new_tokens),
        f"with {NUM_BEAMS} beams": beam_search,
    }


def _ends(checkpoint: Checkpoint) -> list[int]:
    """Return the end-of-sequence token."""
    config: Any = checkpoint.config
    candidates = [*token_ids(checkpoint.model.generation.get("eos_token_id"))]
    candidates.append(getattr(config, "eos_token_id", config.vocab_size))
    if why_no_texts(checkpoint) is None:
        candidates += token_ids(load_text_tokenizer(checkpoint).role_id("eos"))
    return [token for token in candidates if token < config.vocab_size][:1]


def _inputs(checkpoint: Checkpoint, rows: Sequence[list[int]]) -> "dict[str, Tensor]":
    side = "right" if TARGET in checkpoint.onnx_spec.inputs else "left"
    pad_id = getattr(checkpoint.config, "pad_token_id", None) or 0
    return pad(rows, side=side, pad_id=pad_id, device="cpu")
