"""Comparison of what a runtime generates with what torch generates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from zoo.checkpoint import Checkpoint, load_text_tokenizer
from zoo.errors import VerificationError
from zoo.exporting.quantization.agreement import TARGET, TextBatch, why_no_texts
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

ROWS = 8
NEW_TOKENS = 16
BEAMS = 4
# tokens of a prompt
SHORTEST = 3
LONGEST = 48


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
        sequences = {
            name: generate(model, inputs, settings, eos_token_ids=ends)
            for name, settings in searches.items()
        }
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
            triples = list(zip(self.rows, expected, actual, strict=True))
            different = [triple for triple in triples if triple[1] != triple[2]]
            equal[name] = len(triples) - len(different)
            if tolerance is not None:
                greedy = searches[name].num_beams == 1
                for row, ours, theirs in different:
                    self._require_tie(session, row, ours, theirs, tolerance, greedy=greedy)
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
        # the logits of the runtime were compared with torch's before
        logits = [self._logits(session, row, sequence) for sequence in (expected, actual)]
        likely = [
            log_softmax(values)[np.arange(len(sequence)), sequence]
            for values, sequence in zip(logits, (expected, actual), strict=True)
        ]
        if greedy:
            pairs = enumerate(zip(expected, actual, strict=False))
            at = next(place for place, pair in pairs if len({*pair}) > 1)
            loss = abs(float(likely[0][at] - likely[1][at]))
        else:
            loss = float(likely[0].mean() - likely[1].mean())
        accepted = 2 * tolerance * max(float(np.abs(values).max()) for values in logits)
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
        whole = np.array([[*row, *sequence[:-1]]])
        return session.run({"input_ids": whole})[LOGITS][0, len(row) - 1 :].astype(np.float64)


def _rows(checkpoint: Checkpoint, samples: Sequence[TextBatch]) -> list[list[int]]:
    """Return the tokens of the shortest rows; prompts leave room for new tokens."""
    spec = checkpoint.onnx_spec
    room = spec.limits.get("tokens", 2 * LONGEST)
    longest = min(LONGEST, room if TARGET in spec.inputs else room // 2)
    found = [
        row[kept[: len(row)]].tolist()
        for sample in samples
        for row, kept in zip(sample.inputs["input_ids"], sample.mask, strict=True)
    ]
    return sorted((row for row in found if SHORTEST <= len(row) <= longest), key=len)[:ROWS]


def _searches(checkpoint: Checkpoint, rows: Sequence[list[int]]) -> dict[str, GenerationConfig]:
    spec = checkpoint.onnx_spec
    limits = [NEW_TOKENS, spec.limits.get(DECODER_TOKENS, NEW_TOKENS)]
    if TARGET not in spec.inputs:
        limits.append(spec.limits.get("tokens", NEW_TOKENS + LONGEST) - max(map(len, rows)))
    most = min(limits)
    return {
        "greedily": GenerationConfig(max_new_tokens=most),
        f"with {BEAMS} beams": GenerationConfig(
            max_new_tokens=most, num_beams=BEAMS, early_stopping=True
        ),
    }


def _ends(checkpoint: Checkpoint) -> list[int]:
    """Return the end-of-sequence token."""
    config: Any = checkpoint.config
    known = [*token_ids(checkpoint.model.generation.get("eos_token_id"))]
    known.append(getattr(config, "eos_token_id", config.vocab_size))
    if why_no_texts(checkpoint) is None:
        known += token_ids(load_text_tokenizer(checkpoint).role_id("eos"))
    return [token for token in known if token < config.vocab_size][:1]


def _inputs(checkpoint: Checkpoint, rows: Sequence[list[int]]) -> "dict[str, Tensor]":
    side = "right" if TARGET in checkpoint.onnx_spec.inputs else "left"
    fill = getattr(checkpoint.config, "pad_token_id", None) or 0
    return pad(rows, side=side, pad_id=fill, device="cpu")
