"""Start-up time and imports of the command line, help, usage errors, and exit codes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import cold, warm
from tests.cli.imports import modules_after
from tests.tokenizers.directories import real
from tests.training.runs import SMALL

HEAVY = ("torch", "numpy", "onnx", "onnxruntime", "rich", "huggingface_hub", "tokenizers", "pluggy")


def zoo(
    *arguments: str, cwd: Path | None = None, **environment: str
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "zoo", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        cwd=cwd,
        check=False,
    )


@pytest.mark.parametrize("arguments", [("--help",), ("--version",)])
def test_help_imports_nothing_heavy_and_no_plugin(arguments: tuple[str, ...]) -> None:
    loaded = modules_after(*arguments)
    assert not loaded & set(HEAVY)
    assert not [name for name in loaded if name.startswith(("zoo_", "transformers"))]


@pytest.mark.parametrize("command", ["convert", "fetch", "verify", "export", "bench", "run"])
def test_help_of_a_command_imports_nothing_heavy(command: str) -> None:
    assert not modules_after(command, "--help") & set(HEAVY)


def test_help_of_distillation_lists_the_losses_without_torch() -> None:
    loaded = modules_after("distill", "--help")
    assert {f"zoo.distillation.losses.{name}" for name in ("kl", "relations")} < loaded
    assert not loaded & set(HEAVY)


# each of these takes a second or more to import
SLOW = ("torch.distributed.checkpoint", "scipy", "sklearn", "matplotlib")
COMPILER = ("torch._dynamo", "torch._inductor", "sympy", "torch.distributed.fsdp")


@pytest.mark.long
def test_commands_that_compile_nothing_do_not_import_the_compiler(tmp_path: Path) -> None:
    values = {name: json.dumps(value) for name, value in SMALL.items() if name != "data"}
    settings = [f"--set={name}={value}" for name, value in values.items()]
    settings += ["--train", SMALL["data"]["paths"][0], "--max-steps", "1"]
    run = tmp_path / "run"
    settings += ["--objective", "masked-lm", "--device", "cpu", "-o", str(run)]
    loaded = modules_after("pretrain", "bert", *settings)
    assert "torch" in loaded and not loaded & {*SLOW, *COMPILER}
    rows = [f"text {n}\t{'xy'[n % 2]}\n" for n in range(40)]
    (tmp_path / "table.tsv").write_text("".join(["text\tlabel\n", *rows]), "utf-8")
    few = ["--set=max_steps=1", "--device", "cpu", "-o", str(tmp_path / "tuned")]
    table = ["--task", "text-classification", "--train", str(tmp_path / "table.tsv")]
    loaded = modules_after("finetune", str(run / "model"), *table, *few)
    assert "torch" in loaded and not loaded & {*SLOW, *COMPILER}
    loaded = modules_after("run", "features", str(run / "model"), "a text")
    assert "torch" in loaded and not loaded & {*SLOW, *COMPILER}


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="read from /proc")
@pytest.mark.parametrize("arguments", [("--help",), ("run", "--help")])
def test_help_takes_little_memory(arguments: tuple[str, ...]) -> None:
    """The peak is at most 60 MB, of which the interpreter takes ten."""
    program = (
        "import sys\n"
        "from zoo.cli import main\n"
        "try:\n"
        f"    main({list(arguments)!r})\n"
        "finally:\n"
        "    status = dict(line.split(':') for line in open('/proc/self/status'))\n"
        "    print(status['VmHWM'].split()[0], file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert int(done.stderr) * 1024 <= 60e6


def test_one_family_imports_one_plugin() -> None:
    loaded = modules_after("info", "all-minilm-l6-v2")
    assert "zoo_bert" in loaded
    assert not loaded & {"torch", "onnxruntime", "huggingface_hub", "transformers"}


def test_a_conversion_imports_the_plugin_of_its_family_alone() -> None:
    loaded = modules_after("convert", str(real()), "--dry-run")
    plugins = {name.partition(".")[0] for name in loaded if name.startswith("zoo_")}
    assert plugins == {"zoo_bert", "zoo_converters"} and "torch" not in loaded


@pytest.mark.by_default("minilmv2")
@pytest.mark.parametrize("recipe", ["distilbert", "tinybert-task", "minilmv2", "embeddings"])
def test_a_recipe_is_printed_without_torch(recipe: str) -> None:
    loaded = modules_after("distill", "--recipe", recipe, "--print-recipe")
    assert "zoo.distillation.losses.base" in loaded
    assert not loaded & {"torch", "numpy", "onnxruntime", "transformers"}


@pytest.mark.by_default("group0")
@pytest.mark.parametrize("group", [(), ("run",), ("corpus",)])
def test_without_a_command_there_is_help_as_it_is_written(group: tuple[str, ...]) -> None:
    done = zoo(*group)
    assert done.returncode == 2
    assert done.stderr == zoo(*group, "--help").stdout
    assert done.stdout == ""


def test_a_family_that_is_left_out_is_missing() -> None:
    done = cold.zoo("info", "t5-small", ZOO_PLUGINS="bert")
    assert done.returncode == 2
    assert done.stderr == "error: t5-small: no family is called 't5'; available: bert\n"


def test_a_mistyped_command_lists_the_nearest() -> None:
    done = cold.zoo("convrt")
    assert done.returncode == 2
    assert "did you mean convert" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_mistyped_model_lists_the_nearest() -> None:
    done = cold.zoo("info", "bert-base-uncasd")
    assert done.returncode == 2
    assert "did you mean" in done.stderr
    assert "bert-base-uncased" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_missing_option_is_one_line() -> None:
    done = warm.zoo("finetune", "bert-base-uncased", "--task", "text-classification")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "--train" in done.stderr


def test_json_errors_are_objects_on_standard_output() -> None:
    done = warm.zoo("info", "no-such-model", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["exit_code"] == 2
    assert "no-such-model" in json.loads(done.stdout)["error"]


@pytest.mark.by_default("models", "doctor")
@pytest.mark.parametrize("command", ["families", "models", "plugins", "doctor"])
def test_json_prints_one_object(command: str) -> None:
    done = warm.zoo(command, "--json")
    assert done.returncode == 0, done.stderr
    assert isinstance(json.loads(done.stdout), dict)
    assert done.stderr == ""


def completed(words: str, cwd: Path) -> list[str]:
    """Return the completions of the last word, as ``type,value``."""
    environment = {
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
        "_ZOO_COMPLETE": "bash_complete",
    }
    return cold.zoo(cwd=cwd, **environment).stdout.splitlines()


@pytest.mark.by_default("bash")
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_that_completes(shell: str) -> None:
    assert "_ZOO_COMPLETE" in cold.zoo("completion", shell).stdout
    assert "plain,bert-base-uncased" in completed("zoo info bert-base-u", Path.cwd())


def test_directories_are_completed_beside_names(tmp_path: Path) -> None:
    (tmp_path / "bert-mine").mkdir()
    (tmp_path / "bert-notes.txt").touch()
    completions = completed("zoo verify bert", tmp_path)
    assert {"plain,bert-mine", "plain,bert-base-uncased"} <= set(completions)
    assert "plain,bert-notes.txt" not in completions
    assert completed("zoo verify ./be", tmp_path) == ["dir,./be"]  # bash lists the directories
