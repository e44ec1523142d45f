"""A decoder with a limited number of positions is never run beyond it, and says so in one line."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.finetune.tasks.test_seq2seq import hub, model, sentences
from zoo.checkpoint import Checkpoint, load_checkpoint
from zoo.conformance.family_checks import FamilyChecks
from zoo.errors import UsageError
from zoo.export.validate import run_reference
from zoo.families.random_inputs import axis_lengths
from zoo.inference.likelihood import Seq2SeqLikelihood
from zoo.inference.processing.records import as_records
from zoo.inference.tasks.seq2seq import Seq2Seq
from zoo.inference.torch_session import TorchSession
from zoo_t5 import T5

__all__ = ["hub", "model"]
LIMIT = 12


class LimitedT5(T5):
    """A T5 whose decoder fails beyond a number of tokens, as learned positions do."""

    def max_decoder_len(self, config: Any) -> int:
        return LIMIT

    def model(self, config: Any, head: str) -> Any:
        module: Any = super().model(config, head)
        for name in ("decoder",):
            getattr(module, name).register_forward_pre_hook(_check)
        return module


def _check(module: Any, args: Any) -> None:
    if args and isinstance(args[0], torch.Tensor) and args[0].shape[1] > LIMIT:
        raise IndexError("index out of range in self")


class Kit(FamilyChecks):
    family = LimitedT5()


@pytest.fixture
def checkpoint(model: Path) -> Checkpoint:
    return replace(load_checkpoint(model), family=LimitedT5())


def test_random_inputs_of_the_kit_and_the_gate_keep_to_the_limit() -> None:
    family = LimitedT5()
    config = family.sizes()["tiny"]
    spec = family.onnx(config, "seq2seq-lm")
    assert spec.limits == {"decoder_tokens": LIMIT}
    assert axis_lengths(spec, [40, 3])["decoder_tokens"] == [4, LIMIT]
    batches = run_reference(family.model(config, "seq2seq-lm").eval(), spec, config, (0, 0))
    assert max(b.inputs["decoder_input_ids"].shape[1] for b in batches) == LIMIT
    kit = Kit()
    for check in (kit.check_longest_input, kit.check_output_shapes, kit.check_cached_decoding):
        check("seq2seq-lm")


def test_generation_reports_the_limit(checkpoint: Checkpoint) -> None:
    session = TorchSession(checkpoint, "cpu")
    with pytest.raises(UsageError, match=f"13 new tokens are more .* it takes {LIMIT}"):
        Seq2Seq(checkpoint, session, max_new_tokens=LIMIT + 1)
    results = list(Seq2Seq(checkpoint, session, max_new_tokens=LIMIT).run(as_records(["the cat"])))
    assert results[0]["stopped"] in ("end", "length")
    stored = replace(
        checkpoint,
        model=checkpoint.model.__class__(
            **{
                f: getattr(checkpoint.model, f)
                for f in checkpoint.model.__struct_fields__
                if f != "generation"
            },
            generation={"max_length": 200},
        ),
    )
    assert Seq2Seq(stored, session).settings.max_length == LIMIT + 1


def test_likelihood_reports_the_limit(checkpoint: Checkpoint) -> None:
    scorer = Seq2SeqLikelihood(checkpoint, TorchSession(checkpoint, "cpu"))
    (tokens,) = scorer.tokenize([("the cat", " ".join(sentences(9)))])
    with pytest.raises(UsageError, match=f"the decoder takes {LIMIT}"):
        list(scorer.split(tokens, 0))
