"""Encoder-decoders with fewer layers, and sequences of a teacher as targets."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from blake3 import blake3
from safetensors.torch import load_file

import zoo
from tests.distillation.making import (
    SEQ2SEQ_FAMILIES,
    assert_resumes_exactly,
    distill,
    make_seq2seq_tree,
    make_setup,
)
from tests.training.runs import assert_same, cut, records
from zoo.distillation.runs import DistillRun
from zoo.distillation.scoring.score import score_run
from zoo.errors import UsageError
from zoo.finetuning.setup import FineTuneSetup
from zoo.tasks.seq2seq.train import text_key
from zoo.training.distributed.context import DistContext


def read(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.long
def test_layers_of_encoder_and_decoder_are_copied(tmp_path: Path) -> None:
    tree = make_seq2seq_tree(tmp_path, {"recipe": "seq2seq", "init_layers": [[0, 1]]})
    setup = make_setup(tree)
    model = setup.objective.model(setup.family, setup.model_config)
    setup.prepare_model(model)
    state = model.student.state_dict()
    weights = load_file(Path(tree["distillation"]["teachers"][0]) / "model.safetensors")
    for stack in ("layers", "decoder.layers"):
        names = [name for name in state if name.startswith(f"{stack}.0.")]
        assert len(names) > 4
        for name in names:
            assert torch.equal(state[name], weights[name.replace(f"{stack}.0", f"{stack}.1")])
    run = assert_resumes_exactly(tmp_path, tree, 2)
    assert set(records(run, "validation")[-1]["losses"]) == {"seq2seq"}


@pytest.mark.long
@pytest.mark.parametrize(
    "task",
    [
        pytest.param(task, marks=pytest.mark.long if task == "seq2seq" else ())
        for task in SEQ2SEQ_FAMILIES
    ],
)
def test_targets_are_those_of_the_teachers_beam_search(task: str, tmp_path: Path) -> None:
    targets = {"num_beams": 3, "max_new_tokens": 6}
    recipe = {"recipe": "sequence.yaml"}
    tree = make_seq2seq_tree(tmp_path, recipe, task)
    file = tmp_path / "sequence.yaml"
    values = {"data": "labelled", "stages": {"fine-tuning": {"objective_weight": 1.0}}}
    file.write_text(json.dumps({**values, "targets": targets}))
    tree["distillation"]["recipe"] = str(file)
    whole = tmp_path / "whole"
    run, model = DistillRun(tree, DistContext.initialize("cpu"), whole).start()
    assert (run, model) == (whole / "fine-tuning", whole / "model")
    rows = read(whole / "targets" / "train.jsonl")
    teacher = zoo.load(tree["distillation"]["teachers"][0], backend="cpu")
    generate = teacher.seq2seq if task == "seq2seq" else teacher.generate
    results = generate([row["source"] for row in rows], **targets)
    assert [row["target"] for row in rows] == [result["generated"] for result in results]
    known = {row["text"]: row["label"] for row in read(tmp_path / "t.jsonl")}
    held_out = read(whole / "targets" / "eval.jsonl")
    assert held_out
    for row in held_out:
        assert known[row["source"]] == row["target"]
        assert row["source"] not in {row["source"] for row in rows}
    record = json.loads((whole / "targets" / "targets.json").read_bytes())
    content = (whole / "targets" / "train.jsonl").read_bytes()
    assert record["files"]["train.jsonl"]["blake3"] == blake3(content).hexdigest()
    assert record["generation"] == {**targets, "length_penalty": 1.0}
    unbroken = tmp_path / "unbroken"
    shutil.copytree(whole, unbroken, symlinks=True)
    (whole / "model").unlink()
    cut(whole / "fine-tuning", 2)
    DistillRun({}, DistContext.initialize("cpu")).resume(whole)
    # The run that is resumed has the path of the one that was not broken, which files name.
    assert_same(unbroken / "fine-tuning", whole / "fine-tuning")


def test_a_run_is_scored_by_what_both_models_generate(tmp_path: Path) -> None:
    tree = make_seq2seq_tree(tmp_path, {"recipe": "seq2seq"})
    tree["task_args"] = {"max_new_tokens": 4}
    run = distill(tmp_path / "run", tree)
    scores = score_run(run, device="cpu", backends=["cpu"])
    base = make_setup(tree).base
    assert isinstance(base, FineTuneSetup)
    held_out = base.eval_rows.values["target"].tolist()
    rows = [row for row in read(tmp_path / "t.jsonl") if text_key(row["label"]) in held_out]
    for reference, score in (
        (tree["distillation"]["teachers"][0], scores.teachers[0]),
        (str(run / "model"), scores.student),
    ):
        results = zoo.load(reference, backend="cpu").seq2seq(
            [row["text"] for row in rows], max_new_tokens=4
        )
        texts = {row["text"]: row["label"] for row in rows}
        right = [r for r in results if r["generated"].strip() == texts[r["text"]].strip()]
        if len(rows) == scores.rows:
            assert score.metrics["exact_match"] == pytest.approx(len(right) / len(rows))
        assert 0 <= score.metrics["exact_match"] <= 1


def test_a_task_without_targets_is_refused(tmp_path: Path) -> None:
    tree = make_seq2seq_tree(tmp_path, {"recipe": "sequence"}, "causal-lm")
    del tree["data"]["label"]
    with pytest.raises(UsageError, match="causal-lm has no target texts"):
        DistillRun(tree, DistContext.initialize("cpu"), tmp_path / "run").start()
    assert not (tmp_path / "run").exists()
    with pytest.raises(UsageError, match="is for labelled data"):
        text = {"distillation": tree["distillation"], "student": tree["student"]}
        DistillRun(text, DistContext.initialize("cpu"), tmp_path / "run").start()
