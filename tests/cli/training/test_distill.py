"""The examples of ``zoo distill --help`` and of docs/distillation.md run."""

import re
import shlex
from pathlib import Path

import pytest

from tests import warm
from tests.finetune.making import finetune, texts, write_table
from tests.finetune.making import settings as finetune_settings
from tests.training.runs import TEXT, run_training
from zoo.cli.training.distill import command

COMMAND = re.compile(r"^ *zoo (distill .+?)(?:  +\S.*)?$", re.MULTILINE)
OF_THE_PAGE = re.compile(r"^\$ zoo (distill .+)$", re.MULTILINE)
PAGE = Path(__file__).parents[3] / "docs/distillation.md"
MODEL, CLASSIFIER = "model", "RUN/model"
NAMES = {
    "FAMILY": "distilbert",
    "REF": MODEL,
    "A": CLASSIFIER,
    "B": CLASSIFIER,
    "runs/books/model": MODEL,
    "bert-base-multilingual-cased": MODEL,
    "roberta-base": MODEL,
    "runs/sst2/model": CLASSIFIER,
    "train.tsv": "t.tsv",
    "wikipedia/": "books/",
}
FEW_STEPS = ["--max-steps", "2", "--no-score"]
SMALL_STEPS = ["--global-batch-tokens", "256", "--set", "seq_len=64", "--set", "eval_sequences=4"]


def examples() -> list[str]:
    """Return the commands of the help text and of the page."""
    page = PAGE.read_text("utf-8").replace("\\\n", " ")
    return [*COMMAND.findall(command.epilog or ""), *OF_THE_PAGE.findall(page)]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the models and files that the examples name."""
    folder = tmp_path_factory.mktemp("examples")
    teacher = run_training(folder / "teacher", "bert", max_steps=2, config={"num_layers": 4})
    (folder / "model").symlink_to(teacher / "model")
    (folder / "books").symlink_to(TEXT)
    (folder / "GLUE" / "SST-2").mkdir(parents=True)
    rows = [{"text": text, "label": str(int(text[0] <= "e"))} for text in texts(40)]
    table = write_table(folder / "t.tsv", rows)
    for split in ("train", "dev"):
        sentences = [{"sentence": row["text"], "label": row["label"]} for row in rows]
        write_table(folder / "GLUE" / "SST-2" / f"{split}.tsv", sentences)
    finetune(folder / "RUN", finetune_settings(folder / "model", table, max_steps=2))
    (folder / "my-recipe.yaml").write_text("terms: {kl: {kind: kl}}")
    return folder


@pytest.mark.parametrize("example", [line for line in examples() if "--resume" not in line])
def test_an_example_runs(example: str, workplace: Path) -> None:
    words = [NAMES.get(word, word) for word in shlex.split(example)]
    output = [] if "-o" in words else ["-o", f"runs/{len(list(workplace.glob('runs/*')))}"]
    small = [] if "--task" in words else SMALL_STEPS
    data = [] if {"--task", "--data"} & {*words} else ["--data", "books/"]  # a shorter text
    arguments = [*words, *output, *FEW_STEPS, *small, *data, "--device", "cpu"]
    done = warm.zoo(*arguments, cwd=workplace, ZOO_HOME=str(workplace / "home"))
    assert done.returncode == 0, done.stderr


def test_all_examples_are_read() -> None:
    page = PAGE.read_text("utf-8").count("$ zoo distill ")
    assert len(examples()) == (command.epilog or "").count("\n  zoo distill ") + page
