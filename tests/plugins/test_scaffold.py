"""``zoo plugins new``: each generated project is checked, and used by every command."""

import ast
import json
import math
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file

from tests import warm
from tests.training.runs import DATA
from tools import plugin_lengths
from zoo.cli.installation import plugins_new
from zoo.conformance.hf_reference import reference_class
from zoo.errors import VerificationError
from zoo.plugins.scaffold import KINDS, PARTS, PluginNames, render

ROOT = Path(__file__).parents[2]
SETTINGS = {
    "vocab_size": 400,
    "seq_len": 32,
    "seq_len_warmup": "null",
    "global_batch_tokens": 256,
    "max_steps": 4,
    "lr_scheduler.warmup_steps": 1,
}
SET = [f"--set={name}={value}" for name, value in SETTINGS.items()]
TASKS = {
    "encoder": ("fill-mask", "the [MASK] sat"),
    "decoder": ("generate", "the cat"),
    "encoder-decoder": ("seq2seq", "the cat"),
    "recurrent": ("fill-mask", "the [MASK] sat"),
}


def add_metadata(project: Path) -> None:
    """Write the metadata of an installation from ``pyproject.toml``, beside the package."""
    described = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    name, version = described["name"], described["version"]
    info = project / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    groups = [
        f"[{group}]\n" + "".join(f"{key} = {module}\n" for key, module in points.items())
        for group, points in described["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("".join(groups))


class Project:
    """A generated project, and commands that find its plugin."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder, self.kind, self.path = folder, kind, folder / "zoo-mine"
        folder.mkdir(exist_ok=True)
        done = warm.zoo("plugins", "new", "mine", "--like", kind, "--json", cwd=folder)
        assert done.returncode == 0, done.stderr
        self.files = json.loads(done.stdout)["files"]
        add_metadata(self.path)

    @property
    def environment(self) -> dict[str, str]:
        home = {"ZOO_HOME": str(self.folder / "home"), "PYTHONPATH": str(self.path)}
        return {**home, "ZOO_STRICT_PLUGINS": "1", "OMP_NUM_THREADS": "1"}

    def zoo(self, *arguments: object) -> dict[str, Any]:
        done = warm.zoo(*arguments, "--json", cwd=self.folder, **self.environment)
        assert done.returncode == 0, done.stdout + done.stderr
        value: dict[str, Any] = json.loads(done.stdout)
        return value

    def run_tests(self) -> "subprocess.CompletedProcess[str]":
        options = ("-q", "-p", "no:cacheprovider")
        return warm.run_pytest(*options, "tests", cwd=self.path, **self.environment)


@pytest.fixture(
    params=[pytest.param(k, marks=() if k == "encoder" else pytest.mark.long) for k in KINDS]
)
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Project:
    return Project(tmp_path, request.param)


def test_project_passes_the_quick_checks(project: Project) -> None:
    assert warm.check_plugin("mine", project.folder, **project.environment) == []
    (plugin,) = project.zoo("plugins", "info", "mine")["plugins"]
    assert plugin["provides"] == {"families": ["mine"], "checkpoints": ["mine-base"]}
    assert project.zoo("info", "mine")["repo"] == "your-organisation/mine-base"


@pytest.mark.long
def test_project_passes_its_tests(project: Project) -> None:
    done = project.run_tests()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout.splitlines()[-1]


@pytest.mark.long
def test_every_command_works_with_the_project(project: Project) -> None:
    project.zoo("pretrain", "mine", *DATA, *SET, "--device", "cpu", "-o", "run")
    project.zoo("convert", "run/model", "--to", "hub", "-o", "hub")
    project.zoo("convert", "hub", "-o", "back")
    before, after = (
        load_file(project.folder / name / "model.safetensors") for name in ("run/model", "back")
    )
    assert before.keys() == after.keys()
    assert [name for name in before if not torch.equal(before[name], after[name])] == []
    outcomes = {check["outcome"] for check in project.zoo("verify", "back")["checks"]}
    assert outcomes <= {"ok", "not run"} and "ok" in outcomes
    task, text = TASKS[project.kind]
    project.zoo("export", "back", "--onnx", "-o", "graph")
    in_torch, in_onnx = (project.zoo("run", task, model, text) for model in ("back", "graph"))
    assert len(in_torch["results"]) == len(in_onnx["results"]) == 1
    student = ("--student", "mine", "-o", "student", "--device", "cpu")
    settings = [s for s in SET if not s.startswith("--set=vocab_size")]
    project.zoo("distill", "--teacher", "run/model", *student, *DATA, *settings)
    config = json.loads((project.folder / "student/model/config.json").read_text())
    assert config["family"] == "mine"


@pytest.fixture(params=PARTS)
def part(request: pytest.FixtureRequest, tmp_path: Path) -> Project:
    """Return a generated project that has no family."""
    return Project(tmp_path, request.param)


@pytest.mark.parametrize(
    "part",
    [
        "metric",  # The others are checked and tested in the same way; a target exports a model.
        *(
            pytest.param(part, marks=pytest.mark.long)
            for part in ("objective", "task", "loss", "embedding-loss", "target")
        ),
    ],
    indirect=True,
)
def test_a_project_without_a_family_passes_its_checks_and_tests(part: Project) -> None:
    assert warm.check_plugin("mine", part.folder, **part.environment) == []
    (plugin,) = part.zoo("plugins", "info", "mine")["plugins"]
    groups = {"loss": "distillation_losses", "embedding-loss": "embedding_losses"}
    group = groups.get(part.kind, f"{part.kind}s")
    assert plugin["provides"] == {group: ["mine"]}
    done = part.run_tests()
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
def test_a_project_without_a_family_is_used_by_the_commands(tmp_path: Path) -> None:
    objective, task, target = (Project(tmp_path / k, k) for k in ("objective", "task", "target"))
    options = ("--device", "cpu", "-o", "run")
    smooth = ("--objective", "mine", "--set=objective_args.label_smoothing=0.2")
    objective.zoo("pretrain", "bert", *smooth, *DATA, *SET, *options)
    config = (objective.folder / "run/config.yaml").read_text()
    assert "objective: mine" in config and "label_smoothing: 0.2" in config
    table = task.folder / "table.tsv"
    rows = (f"{'good' if n % 2 else 'bad'} day {n}\t{n % 2}\n" for n in range(24))
    table.write_text("text\tlabel\n" + "".join(rows))
    model = objective.folder / "run/model"
    task.zoo(
        *("finetune", model, "--task", "mine", "--train", table, "--max-steps", 2, *options),
    )
    (found,) = task.zoo("run", "mine", "run/model", "good day 1")["results"]
    assert isinstance(found["score"], float)
    metrics = task.zoo("eval", "run/model", "--task", "mine", "--eval", table)["metrics"]
    assert {"pearson", "spearman", "mse"} <= metrics.keys()
    report = target.zoo("export", model, "--to", "mine", "--level", 1, "-o", "exported")
    assert report["validated"] and report["files"] == ["weights.gz"]


@pytest.mark.by_default("objective", "loss")
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("objective", "masked-lm"),
        ("task", "regression"),
        ("target", "gguf"),
        ("loss", "kl"),
        ("embedding-loss", "cosent"),
        ("metric", "accuracy"),
    ],
)
def test_a_built_in_name_is_refused(kind: str, name: str, tmp_path: Path) -> None:
    done = warm.zoo("plugins", "new", name, "--like", kind, cwd=tmp_path)
    assert done.returncode == 2 and f"there is a built-in {kind} called {name}" in done.stderr


@pytest.mark.by_default("encoder", "target")
@pytest.mark.parametrize("kind", [*KINDS, *PARTS])
def test_files_are_complete_and_formatted(kind: str, tmp_path: Path) -> None:
    files = render(PluginNames("mine"), kind)
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert [path for path, text in files.items() if re.search(r"@\w+@", text)] == []
    ruff = [sys.executable, "-m", "ruff"]
    for command in (
        ["check", "--isolated", "--select", "E,F,I,B,UP", "--line-length", "100"],
        ["format", "--isolated", "--check", "--line-length", "100"],
    ):
        done = subprocess.run(
            [*ruff, *command, "."], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("kind", [*KINDS, *PARTS])
def test_projects_import_the_public_packages_alone(kind: str) -> None:
    files = render(PluginNames("mine"), kind)
    trees = [ast.parse(text) for path, text in files.items() if path.endswith(".py")]
    imports = [
        node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
    ]
    packages = {str(node.module).partition(".")[0] for node in imports}
    standard = {"collections", "dataclasses", "importlib", "pathlib", "types", "typing"}
    assert packages <= {"zoo", "zoo_mine", "torch", "msgspec", *standard}
    assert not [alias.name for node in imports for alias in node.names if alias.name[0] == "_"]


@pytest.mark.parametrize("kind", KINDS)
def test_registry_counts_the_parameters(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted by hand from the widths of the size ``base``."""
    name = f"counted-{kind}"
    for path, text in render(PluginNames(name), kind).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    (family,) = __import__(PluginNames(name).package).zoo_families()
    parameters = KINDS[kind].parameters
    assert family.weights(family.sizes()["base"], KINDS[kind].head).parameters() == parameters
    width, inner, words = 768, 3072, 30522
    block = 4 * width**2 + 2 * width * inner + 9 * width + inner
    cross = 4 * width**2 + 6 * width
    both = 4 * 256 * (512 + 256 + 1) * 2 + 2 * 512  # LSTMs of both directions, and a norm
    expected = {
        "encoder": (words + 512 + 2) * width + 12 * block + width**2 + 3 * width + words,
        "decoder": 50257 * width + 12 * block + 2 * width,
        "encoder-decoder": 32128 * (width + 1)
        + 2 * 1024 * width
        + 24 * block
        + 12 * cross
        + 4 * width,
        "recurrent": words * 512 + 4 * both + 2 * 512 + 512**2 + 3 * 512 + words,
    }
    assert parameters == expected[kind]


def test_names(tmp_path: Path) -> None:
    names = PluginNames("my-model_2")
    assert (names.package, names.distribution) == ("zoo_my_model_2", "zoo-my-model-2")
    assert names.class_name == "MyModel2"
    for name, message in (
        ("Mine", "lower-case"),
        ("../mine", "lower-case"),
        ("bert", "installed"),
        ("gpt2", "of the family gpt,"),
    ):
        done = warm.zoo("plugins", "new", name, cwd=tmp_path)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1) and message in done.stderr
    done = warm.zoo("plugins", "new", "mine", "--class-prefix", "mine", cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1) and "a class" in done.stderr
    (tmp_path / "zoo-mine").mkdir()
    (tmp_path / "zoo-mine" / "notes.txt").touch()
    assert warm.zoo("plugins", "new", "mine", cwd=tmp_path).returncode == 2
    assert [path.name for path in tmp_path.iterdir() if "mine" in path.name] == ["zoo-mine"]


def test_a_prefix_gives_the_classes_of_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is the model type; the words of the name are another spelling, which is named."""
    for module, prefix in (("gpt_bigcode", "GPTBigCode"), ("gpt-bigcode", None)):
        project = tmp_path / module
        arguments = ("--class-prefix", prefix) if prefix else ()
        like = ("--like", "decoder", "-o", project, "--json")
        done = warm.zoo("plugins", "new", module, *arguments, *like, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["model_type"] == module
        monkeypatch.syspath_prepend(project)
        monkeypatch.delitem(sys.modules, "zoo_gpt_bigcode", raising=False)
        monkeypatch.delitem(sys.modules, "zoo_gpt_bigcode.config", raising=False)
        (family,) = __import__("zoo_gpt_bigcode").zoo_families()
        config = family.config_type()
        if prefix:
            kind = reference_class(family, config, "causal-lm")
            assert kind is transformers.GPTBigCodeForCausalLM
        else:
            with pytest.raises(VerificationError, match="which transformers spells GPTBigCodeFor"):
                reference_class(family, config, "causal-lm")


def test_choices_of_the_option_are_the_kinds() -> None:
    assert (*KINDS, *PARTS) == plugins_new.KINDS


def test_code_of_the_page_is_that_of_the_projects() -> None:
    """The projects and the plugin without a family are used by other tests."""
    code = [
        text for kind in (*KINDS, *PARTS) for text in render(PluginNames("mine"), kind).values()
    ]
    toolbox = ROOT / "examples" / "plugins" / "toolbox"
    files = [*toolbox.rglob("*.py"), toolbox / "pyproject.toml"]
    code += [path.read_text("utf-8") for path in files]
    page = (ROOT / "docs" / "plugins.md").read_text("utf-8")
    excerpts = re.findall(r"```(?:python|toml)\n(.*?)```", page, re.DOTALL)
    (rule,) = [part for part in excerpts if "LogitsProcessor" in part]
    excerpts.remove(rule)  # the next test runs it
    assert len(excerpts) == 16
    assert [part for part in excerpts if part not in "\n".join(code)] == []


def test_rule_of_the_page_runs() -> None:
    page = (ROOT / "docs" / "plugins.md").read_text("utf-8")
    (rule,) = re.findall(r"```python\n(from zoo.nn.logits_processor.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(rule, names)
    scores = names["NoEvenTokens"]()(torch.zeros(1, 1, dtype=torch.int64), torch.ones(1, 4))
    assert scores.tolist() == [[-math.inf, 1, -math.inf, 1]]


def test_lengths_of_the_page_are_those_of_the_examples() -> None:
    page = (ROOT / "docs" / "plugins.md").read_text("utf-8")
    rows = re.findall(r"^\| \[(\w+)\]\(.*\| (\d+) \| (\d+) \|$", page, re.MULTILINE)
    assert {name: (int(a), int(b)) for name, a, b in rows} == plugin_lengths.lengths()
