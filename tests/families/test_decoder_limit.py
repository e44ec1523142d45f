"""A decoder with a limited number of positions is never run beyond it, and says so in one line."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch.nn import functional as F

from tests.distillation.making import distill, make_seq2seq_tree
from tests.exporting.making import export_onnx
from tests.finetuning.making import HERE, finetune, setup_of, texts, write_table
from tests.inference.conftest import converted
from tests.tasks.seq2seq.making import model, pairs, sentences, t5_hub, tree_of
from tests.training.runs import records, run_training
from zoo.checkpoint import Checkpoint, load_checkpoint
from zoo.conformance.family_checks import FamilyChecks
from zoo.conformance.verify import verify
from zoo.distillation.scoring.score import score_run
from zoo.errors import UsageError
from zoo.exporting.validate import run_reference
from zoo.families.random_inputs import axis_lengths
from zoo.inference import load_session
from zoo.inference.likelihood import Seq2SeqLikelihood
from zoo.inference.processing.records import as_records
from zoo.tasks import make_evaluation
from zoo.tasks.seq2seq.predict import Seq2SeqGeneration
from zoo_t5 import T5

__all__ = ["model", "t5_hub"]
LIMIT = 12
Run = Callable[..., torch.Tensor]


def with_positions(run: Run) -> Run:
    """Return the blocks of a decoder that also read a table of learned positions, which are 0."""

    def limited(x: Any, *args: Any, **options: Any) -> torch.Tensor:
        cache = options.get("cache", args[3] if len(args) > 3 else None)
        past = cache.length if cache is not None else 0
        positions = torch.arange(past + x.shape[1])[past:]
        return run(x + F.embedding(positions, x.new_zeros(LIMIT, 1)), *args, **options)

    return limited


@pytest.fixture(autouse=True)
def limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let T5 have a decoder with learned positions, and an encoder without any limit."""
    build = T5.model

    def built(self: T5, config: Any, head: str) -> Any:
        module: Any = build(self, config, head)
        if hasattr(module, "decoder"):
            module.decoder.run = with_positions(module.decoder.run)
        return module

    monkeypatch.setattr(T5, "model", built)
    monkeypatch.setattr(T5, "max_decoder_len", lambda self, config: LIMIT)


class Kit(FamilyChecks):
    family = T5()


@pytest.fixture
def checkpoint(model: Path) -> Checkpoint:
    return load_checkpoint(model)


def test_a_longer_decoder_input_fails(checkpoint: Checkpoint) -> None:
    """So that the other tests show that no one gives it."""
    module = checkpoint.family.model(checkpoint.config, "seq2seq-lm")
    ids = torch.zeros(1, LIMIT + 1, dtype=torch.int64)
    with pytest.raises(IndexError):
        module(ids, decoder_input_ids=ids)


def test_random_inputs_of_the_kit_and_the_gate_keep_to_the_limit() -> None:
    family = T5()
    config = family.sizes()["tiny"]
    spec = family.onnx(config, "seq2seq-lm")
    assert spec.limits == {"decoder_tokens": LIMIT}
    assert axis_lengths(spec, [40, 3])["decoder_tokens"] == [4, LIMIT]
    batches = run_reference(family.model(config, "seq2seq-lm").eval(), spec, config, (0, 0))
    assert max(b.inputs["decoder_input_ids"].shape[1] for b in batches) == LIMIT
    kit = Kit()
    for check in (kit.check_longest_input, kit.check_output_shapes, kit.check_cached_decoding):
        check("seq2seq-lm")


def test_verification_keeps_to_the_limit(checkpoint: Checkpoint) -> None:
    checks = list(verify(checkpoint.path, reference=True))
    assert [check for check in checks if check.outcome == "failed"] == []


@pytest.mark.parametrize(
    ("backend", "num_beams"),
    [("cpu", 1), ("cpu", 3), pytest.param("onnx", 3, marks=pytest.mark.long)],
)
def test_generation_fills_the_decoder_and_reports_its_limit(
    checkpoint: Checkpoint, tmp_path: Path, backend: str, num_beams: int
) -> None:
    if backend == "onnx":
        export_onnx(checkpoint, tmp_path / "graph")
        checkpoint = load_checkpoint(tmp_path / "graph")
    session = load_session(checkpoint, backend)
    with pytest.raises(UsageError, match=f"13 new tokens are more .* it takes {LIMIT}"):
        Seq2SeqGeneration(checkpoint, session, max_new_tokens=LIMIT + 1, num_beams=num_beams)
    task = Seq2SeqGeneration(checkpoint, session, num_beams=num_beams)  # 20 new tokens by default
    assert task.settings.longest == LIMIT
    long = msgspec.structs.replace(checkpoint.model, generation={"max_length": 200})
    object.__setattr__(checkpoint, "model", long)
    task = Seq2SeqGeneration(checkpoint, session, num_beams=num_beams)
    assert task.settings.max_length == LIMIT + 1
    results = [record["stopped"] for record in task.run(as_records(sentences(6)))]
    assert "length" in results


def test_likelihood_reports_the_limit(checkpoint: Checkpoint) -> None:
    scorer = Seq2SeqLikelihood(checkpoint, load_session(checkpoint, "cpu"))
    (tokens,) = scorer.tokenize([("the cat", " ".join(sentences(9)))])
    with pytest.raises(UsageError, match=f"the decoder takes {LIMIT}"):
        list(scorer.split(tokens, 0))


@pytest.mark.long
def test_targets_are_cut_in_fine_tuning_and_in_its_evaluation(model: Path, tmp_path: Path) -> None:
    run = finetune(tmp_path / "run", tree_of(model, pairs(tmp_path / "t.tsv"), max_steps=2))
    batches = setup_of(run).train_dataloader(HERE)
    widths = [batch.tensors["labels"].shape[1] for batch in batches.make_batches(0)]
    batches.close()
    assert max(widths) <= LIMIT
    for name in ("max_target_len", "max_new_tokens"):
        tree = tree_of(model, tmp_path / "t.tsv", task_args={name: LIMIT + 1})
        with pytest.raises(UsageError, match=rf"task_args.{name} is 13, and the decoder takes 12"):
            finetune(tmp_path / name, tree)


def test_an_evaluation_cuts_targets_and_says_how_many(
    checkpoint: Checkpoint, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [{"in": "the cat", "out": "a mat"}, {"in": "the dog", "out": " ".join(sentences(9))}]
    file = write_table(tmp_path / "t.jsonl", rows)
    session = load_session(checkpoint, "cpu")
    evaluation = make_evaluation("seq2seq", checkpoint, session, text="in", label="out")
    with caplog.at_level("WARNING", "zoo"):
        metrics = evaluation.evaluate([file]).metrics
    assert metrics["samples"] == 2
    assert "1 of 2 targets are cut to the 12 tokens that the decoder takes" in caplog.text


def test_pretraining_refuses_rows_whose_targets_are_longer(tmp_path: Path) -> None:
    """Rows of 64 source tokens have targets of 15 tokens and more."""
    with pytest.raises(UsageError, match="and the decoder has 12 positions; --set seq_len="):
        run_training(tmp_path / "run", "t5")


def test_predictions_of_fine_tuning_keep_to_the_limit_and_the_rules_of_the_family(
    t5_hub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the checkpoint's own settings say."""
    stored = tmp_path / "stored"
    shutil.copytree(t5_hub, stored)
    settings = {"max_length": 200, "num_beams": 2, "num_return_sequences": 2, "eos_token_id": 1}
    (stored / "generation_config.json").write_text(json.dumps(settings))
    model = converted(stored, tmp_path / "ours").path
    lengths: list[int] = []

    def no_end(input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        lengths.append(input_ids.shape[1])
        return scores.index_fill(1, torch.tensor([1]), float("-inf"))

    monkeypatch.setattr(T5, "logits_processors", lambda self, config, head: (no_end,))
    tree = tree_of(model, pairs(tmp_path / "t.tsv"), max_steps=2, eval_steps=2)
    finetune(tmp_path / "run", tree)
    assert sorted(set(lengths)) == list(range(1, LIMIT + 1))
    metrics = records(tmp_path / "run", "validation")[-1]
    assert 0 <= metrics["metrics"]["exact_match"] <= 1


@pytest.mark.parametrize("key", ["max_length", "max_new_tokens"])
def test_stored_lengths_are_capped(checkpoint: Checkpoint, key: str) -> None:
    long = msgspec.structs.replace(checkpoint.model, generation={key: 200})
    object.__setattr__(checkpoint, "model", long)
    settings = Seq2SeqGeneration(checkpoint, load_session(checkpoint, "cpu")).settings
    assert settings.new_tokens(1) == LIMIT


@pytest.mark.long
def test_scores_of_distillation_keep_to_the_limit(tmp_path: Path) -> None:
    """The targets have up to nine words, and nothing in the settings says how many are read."""
    tree = make_seq2seq_tree(tmp_path, {"recipe": "seq2seq"})
    rows = [{"text": text, "label": f"{text} {text}"} for text in texts(40)]
    write_table(tmp_path / "t.jsonl", rows)
    tree["task_args"] = {}
    scores = score_run(distill(tmp_path / "run", tree), device="cpu", backends=["cpu"])
    assert scores.rows > 0
    assert 0 <= scores.student.metrics["exact_match"] <= 1
