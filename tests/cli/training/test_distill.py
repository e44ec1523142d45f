"""The examples of ``zoo distill --help`` and of docs/distillation.md run."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.finetuning.making import finetune, texts, write_table
from tests.finetuning.making import settings as finetune_settings
from tests.training.runs import TEXT, run_training
from zoo.cli.training.distill import command
from zoo.io.yaml import parse_yaml

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
    "table.tsv": "t.tsv",
    "wikipedia/": "books/",
}
FEW_STEPS = ["--max-steps", "2", "--no-score"]
SMALL_STEPS = ["--global-batch-tokens", "256", "--set", "seq_len=64", "--set", "eval_sequences=4"]


def examples() -> list[str]:
    """Return the commands of the help text and of the page."""
    page = PAGE.read_text("utf-8").replace("\\\n", " ")
    text = re.sub(r" \\\n +", " ", command.epilog or "")
    return [*COMMAND.findall(text), *OF_THE_PAGE.findall(page)]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the models and files that the examples name."""
    folder = tmp_path_factory.mktemp("examples")
    # as wide as the students of the examples
    shape = {"num_layers": 4, "hidden_size": 128, "intermediate_size": 512}
    teacher = run_training(folder / "teacher", "bert", max_steps=2, config=shape)
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


# of no new run, of a part of a cache (tests/distillation/test_teacher_shards.py), or of teachers
# that tests/families/test_bart_tasks.py and tests/distillation/test_static_student.py make
WITHOUT_RUNS = re.compile(
    "--shard|--resume|--continue-from|--print-recipe|--teacher bart-large-cnn|--student static"
)


def marked_examples() -> Iterator[Any]:
    """Yield the examples; ``long`` are those with the options of an earlier one."""
    earlier = set[frozenset[str]]()
    for example in examples():
        if WITHOUT_RUNS.search(example):
            continue
        options = frozenset(word for word in shlex.split(example) if word.startswith("-"))
        options -= {"-o", "--train"}
        yield pytest.param(example, marks=pytest.mark.long if options in earlier else ())
        earlier.add(options)


@pytest.mark.by_default(
    "distill --teacher REF --student FAMILY",
    "distill --teacher RUN/model --student FAMILY --train t.tsv -",
)
@pytest.mark.parametrize("example", list(marked_examples()))
def test_an_example_runs(example: str, workplace: Path) -> None:
    words = [NAMES.get(word, word) for word in shlex.split(example)]
    output = [] if "-o" in words else ["-o", f"runs/{len(list(workplace.glob('runs/*')))}"]
    small = [] if "--task" in words else SMALL_STEPS
    data = [] if {"--task", "--train"} & {*words} else ["--train", "books/"]  # a shorter text
    arguments = [*words, *output, *FEW_STEPS, *small, *data, "--device", "cpu"]
    done = warm.zoo(*arguments, cwd=workplace, ZOO_HOME=str(workplace / "home"))
    assert done.returncode == 0, done.stderr


def test_all_examples_are_read() -> None:
    page = PAGE.read_text("utf-8").count("$ zoo distill ")
    assert len(examples()) == (command.epilog or "").count("\n  zoo distill ") + page


def test_a_printed_recipe_is_a_file_for_the_option(workplace: Path) -> None:
    (printing,) = [line for line in examples() if "--print-recipe" in line]
    arguments, _, file = printing.partition(" > ")
    done = warm.zoo(*shlex.split(arguments), cwd=workplace)
    recipe = parse_yaml(done.stdout, file)
    assert recipe["terms"] == {"relations": {"kind": "relations", "relation_heads": 48}}
    assert "name" not in recipe and recipe["init_layers"] is None
    assert json.loads(warm.zoo(*shlex.split(arguments), "--json").stdout) == recipe
    (workplace / file).write_text(done.stdout)
    teacher = [
        "--teacher",
        "model",
        "--student",
        "distilbert",
        "--recipe",
        file,
        "--train",
        "books/",
    ]
    changes = ["--set", "distillation.terms.relations.relation_heads=32", "-o", "runs/printed"]
    few = [*FEW_STEPS, *SMALL_STEPS, "--device", "cpu"]
    done = warm.zoo("distill", *teacher, *changes, *few, cwd=workplace)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_a_recipe_to_print_has_a_name() -> None:
    done = warm.zoo("distill", "--print-recipe")
    assert done.returncode == 2 and "--recipe NAME takes distilbert, " in done.stderr
    done = warm.zoo("distill", "--print-recipe", "--recipe", "minilmv3")
    assert done.returncode == 2 and "did you mean minilmv2" in done.stderr
