"""No command takes an unknown URL for a path, neither as an argument nor in a file."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import zoo
from tests import warm
from tests.faults import newer
from tests.interfaces import commands
from zoo.errors import UsageError

URL = "abfs://bucket/name.jsonl"
PATH_WORDS = {"DIR", "FILE", "PATH", "RUN", "REF", "CONFIG.yaml"}
EXCEPTIONS = {"FILE|TEXT"}  # a text may begin with a URL, and then has a slot


def test_every_argument_and_option_of_a_path_refuses_a_url() -> None:
    tested, taken = 0, []
    for name, command in commands():
        for parameter in command.params:
            metavar = parameter.metavar or ""
            if metavar in EXCEPTIONS or not PATH_WORDS & {*re.split(r"[^\w.]+", metavar)}:
                continue
            tested += 1
            try:
                parameter.type.convert(URL, parameter, None)
                taken.append(f"{name} {parameter.name}")
            except UsageError as error:
                assert "is a URL" in error.what
    assert tested > 150
    assert taken == []


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = newer.newer_inputs(tmp_path / "inputs")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return folder


Words = Callable[[Path], list[object]]
COMMANDS: dict[str, Words] = {
    "run -o": lambda i: ["run", "classify", i / "model", "a", "-o", URL],
    "run --input": lambda i: ["run", "classify", i / "model", "--input", URL],
    "eval --eval": lambda i: ["eval", i / "model", *newer.TASK, "--eval", URL],
    "eval --report": lambda i: [*newer.evaluate(i, "--report", "abfs://b/r.html")],
    "eval --figures": lambda i: [*newer.evaluate(i, "--figures", "abfs://b/figures")],
    "eval --predictions": lambda i: [*newer.evaluate(i, "--predictions", URL)],
    "convert -o": lambda i: ["convert", i / "model", "--to", "hub", "-o", "abfs://b/o"],
    "convert": lambda i: ["convert", "abfs://b/model", "-o", "out"],
    "fetch": lambda i: ["fetch", "https://huggingface.co/org/name"],
    "--lock": lambda i: ["fetch", "org/name", "--lock", "abfs://b/zoo.lock"],
    "export -o": lambda i: ["export", i / "model", "-o", "abfs://b/o"],
    "look -o": lambda i: ["look", i / "model", "a", "-o", "abfs://b/o.html"],
    "finetune -o": lambda i: [*newer.finetune(i), "-o", "abfs://b/run"],
    "finetune --train": lambda i: ["finetune", "bert", *newer.TASK, "--train", f"x={URL}"],
    "finetune --resume": lambda i: ["finetune", "--resume", "abfs://b/run"],
    "pretrain --set data": lambda i: [*newer.pretrain(i), "--set", f"data.eval_paths=[{URL}]"],
    "pretrain --set tokenizer": lambda i: [
        *newer.pretrain(i),
        "--set",
        "data.tokenizer=abfs://b/m",
    ],
    "pretrain --set init_from": lambda i: [
        *newer.pretrain(i),
        "--set",
        "init_from.model=abfs://b/m",
    ],
    "distill --cache-teacher": lambda i: [*newer.distill(i, None), "--cache-teacher", "abfs://b/c"],
    "distill --recipe": lambda i: [*newer.distill(i), "--recipe", "abfs://b/recipe.yaml"],
    "corpus build": lambda i: ["corpus", "build", URL, "-o", "out"],
    "plugins new -o": lambda i: ["plugins", "new", "mine", "-o", "abfs://b/o"],
    "adapter list": lambda i: ["adapter", "list", "abfs://b/o"],
    "compare": lambda i: ["compare", "abfs://b/run"],
    "push": lambda i: ["push", "abfs://b/run", "org/name"],
    "generation": lambda i: ["run", "generate", i / "model", "a", "--generation-config", URL],
}


@pytest.mark.by_default(
    "run -o",
    "eval --eval",
    "convert",
    "fetch",
    "export -o",
    "look -o",
    "finetune --train",
    "pretrain --set data",
    "distill --recipe",
    "corpus build",
    "plugins new -o",
    "adapter list",
    "compare",
    "push",
    "generation",
)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_url_ends_a_command_before_it_writes(inputs: Path, name: str) -> None:
    done = warm.zoo(*COMMANDS[name](inputs), ZOO_HOME=str(inputs / "home"))
    assert done.returncode == 2, done.stderr
    assert "is a URL" in done.stderr.splitlines()[-1]
    assert list(Path().iterdir()) == []


SETTINGS: dict[str, dict[str, object]] = {
    "data": {"data": {"train": ["abfs://b/t.jsonl"]}},
    "eval": {"data": {"eval": ["abfs://b/t.jsonl"]}},
    "teacher": {"distillation": {"teachers": ["abfs://b/model"]}},
    "cache": {"distillation": {"cache_teacher": "abfs://b/cache"}},
    "student": {"student": {"name": "abfs://b/model"}},
}


@pytest.mark.by_default("eval", "teacher")
@pytest.mark.parametrize("name", SETTINGS)
def test_a_url_in_a_file_of_settings(inputs: Path, name: str) -> None:
    path = inputs / "distill.yaml"
    tree = yaml.safe_load(path.read_text())
    for key, value in SETTINGS[name].items():
        tree[key] |= value
    path.write_text(yaml.safe_dump(tree))
    done = warm.zoo(*newer.distill(inputs), "-o", inputs / "out", ZOO_HOME=str(inputs / "home"))
    assert done.returncode == 2, done.stderr
    assert "is a URL" in done.stderr.splitlines()[-1]
    assert not (inputs / "out").exists() and list(Path().iterdir()) == []


def test_a_home_that_is_a_url(inputs: Path) -> None:
    done = warm.zoo("plugins", "disable", "bert", ZOO_HOME="abfs://b/home")
    assert done.returncode == 2 and "abfs://b/home is a URL" in done.stderr
    assert list(Path().iterdir()) == []


def test_python_functions_refuse_urls(inputs: Path) -> None:
    model = zoo.load(inputs / "model")
    table = str(inputs / "table.jsonl")
    task: dict[str, Any] = {"task": "text-classification", "offline": True, "score": False}
    calls: list[Callable[[], object]] = [
        lambda: zoo.load("https://huggingface.co/org/name"),
        lambda: zoo.load(inputs / "model", adapter="abfs://b/adapter"),
        lambda: model.run_table("classify", URL, "out.jsonl"),
        lambda: model.run_table("classify", table, URL),
        lambda: model.run_table("classify", table, Path(URL)),
        lambda: zoo.evaluate(model, task="text-classification", eval=URL),
        lambda: zoo.distill("abfs://b/model", student="bert", train=[table]),
        lambda: zoo.distill(inputs / "model", student="bert", train=[URL], **task),
        lambda: zoo.distill(inputs / "model", student="bert", train=[table], output=URL, **task),
    ]
    for call in calls:
        with pytest.raises(UsageError, match="is a URL"):
            call()
    assert list(Path().iterdir()) == []
