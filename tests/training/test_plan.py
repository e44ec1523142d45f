"""What a run says before it trains, and where its stages change."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import zoo
from tests.finetuning.making import labelled, settings
from tests.training.runs import EVAL_TEXT, TEXT, run_training, tree
from zoo.cli import cli
from zoo.errors import UsageError
from zoo.finetuning.runs import FineTuneRun
from zoo.training.distributed.context import DistContext
from zoo.training.run import PretrainRun
from zoo.training.seeds import train_seeds
from zoo.training.setup import pretrain_setup

pytestmark = pytest.mark.usefixtures("shared_home")
HERE = DistContext.initialize("cpu")
STAGES = {
    "max_steps": 8,
    "seq_len": 64,
    "seq_len_warmup": {"seq_len": 16, "fraction": 0.25, "keep": "tokens"},
    "objective_args": {"generator_width_ratio": 1.0, "generator_fraction": 0.5},
}


def test_the_plan_comes_first(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = PretrainRun(tree("gpt", max_steps=2), HERE, tmp_path / "run")
    setup = pretrain_setup(run.plan()[0])  # type: ignore[arg-type]
    train, evaluation = (setup.corpus.record.splits[n].tokens for n in ("train", "validation"))
    model = setup.objective.model(setup.family, setup.model_config)
    with caplog.at_level(logging.INFO, "zoo"):
        run.start()
    parameters = sum(p.numel() for p in model.parameters())
    vocabulary = setup.corpus.record.vocab_size
    assert caplog.messages[:5] == [
        f"model: gpt tiny, {parameters:,} parameters to train, causal-lm",
        f"data: {TEXT}: {train:,} tokens, {evaluation:,} to evaluate",
        f"tokenizer: {vocabulary:,} tokens; case and accents kept; no character of the "
        "texts changes",
        f"steps: 2 of 4 rows of 64 tokens, {512 / train:.3g} passes over the data",
        f"directory: {tmp_path / 'run'}",
    ]
    assert EVAL_TEXT.is_file()


def test_a_dry_run_returns_the_plan_and_trains_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "run"
    settings = tree("gpt", max_steps=2)
    given = {name: value for name, value in settings.items() if name != "family"}
    options: dict[str, Any] = {"settings": given, "output": directory}
    dry_run = zoo.pretrain("gpt", **options, dry_run=True)
    assert not directory.exists() and list(tmp_path.iterdir()) == []
    with caplog.at_level(logging.INFO, "zoo"):
        zoo.pretrain("gpt", **options)
    lines = [f"{name}: {text}" for name, text in dry_run.plan.items()]
    assert lines == caplog.messages[: len(lines)] and len(lines) == 5
    assert dry_run.to_dict() == {"plan": dict(dry_run.plan)}
    assert "parameters to train" in dry_run._repr_html_()
    with pytest.raises(UsageError, match="a dry run trains nothing"):
        _ = dry_run.model
    with pytest.raises(UsageError, match="exists"):
        zoo.pretrain("gpt", **options, dry_run=True)
    with pytest.raises(UsageError, match="--dry-run describes a new run; leave --resume out"):
        zoo.pretrain(resume=directory, dry_run=True)


def test_dry_runs_of_other_commands(tmp_path: Path) -> None:
    """Of several seeds and stages, the plan says how many and which."""
    labelled(tmp_path / "table.tsv")
    values = settings("bert", tmp_path / "table.tsv", vocab_size=60, max_steps=1)
    tuned = FineTuneRun(values, HERE, tmp_path / "tuned")
    assert tuned.describe()["steps"].startswith("1 of 8 rows, ")
    words = "pretrain bert --size tiny --tokenizer train --set vocab_size=400 --max-steps 3"
    words += " --objective masked-lm"
    arguments = [*words.split(), "--seeds", "2", "--train", str(TEXT), "--dry-run", "--json"]
    outcome = CliRunner().invoke(cli, [*arguments, "-o", str(tmp_path / "runs")])
    assert outcome.exception is None, outcome.exception
    plan = json.loads(outcome.stdout)["plan"]
    assert plan["seeds"] == "2 runs" and plan["steps"].startswith("3 of ")
    assert plan["tokenizer"] == (
        "400 tokens; case and accents kept; no character of the texts changes"
    )
    arguments += ["--lowercase", "-o", str(tmp_path / "lower")]
    outcome = CliRunner().invoke(cli, arguments)
    tokenizer = json.loads(outcome.stdout)["plan"]["tokenizer"]
    assert tokenizer.startswith("400 tokens; lower case, accents removed; ")
    characters = "".join(TEXT.read_text("utf-8").split())
    capitals = sum(character != character.lower() for character in characters)
    assert f"; {capitals:,} of {len(characters):,} characters (" in tokenizer
    assert [path.name for path in tmp_path.iterdir()] == ["table.tsv"]


def test_stages_are_announced_and_terms_have_no_weights(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "zoo"):
        run_training(tmp_path / "run", "electra", **STAGES)
    assert [line for line in caplog.messages if line.startswith("from step")] == [
        "from step 1: rows of 16 tokens, the generator only",
        "from step 3: rows of 64 tokens, the generator only",
        "from step 5: rows of 64 tokens, generator and discriminator",
    ]
    (first,) = [line for line in caplog.messages if line.startswith("step 1 of 8: loss ")]
    (last,) = [line for line in caplog.messages if line.startswith("step 8 of 8: masked-lm ")]
    losses = [float(line.split(", ")[0].rsplit(" ")[-1]) for line in (first, last)]
    assert max(losses) < 8  # about ln 400; the weighted sum is about 40
    assert "masked-lm " not in first  # of the discriminator there is no loss yet
    term = last.partition(" replaced-token-detection ")[2].partition(",")[0]
    assert 0 < float(term) < 0.75  # about ln 2 at first


@pytest.mark.long
def test_fine_tuning_and_its_seeds(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    labelled(tmp_path / "table.tsv")
    values = settings("bert", tmp_path / "table.tsv", vocab_size=60, max_steps=1)
    with caplog.at_level(logging.INFO, "zoo"):
        train_seeds(FineTuneRun(values, HERE, tmp_path / "runs"), 2)
    lines = [line for line in caplog.messages if line.startswith(("run ", "steps: "))]
    assert lines[0] == "run 1 of 2: seed 0" and lines[2] == "run 2 of 2: seed 1"
    assert lines[1] == lines[3] and lines[1].startswith("steps: 1 of 8 rows, ")
