"""The command ``zoo plugins check``: every file of a plugin is checked."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plugins.laying import FAMILY, declare_model_types, lay_out
from tests.warm import zoo
from zoo.conformance.plugin_checks import check_plugin

# every check runs for every head, and two heads show that
FEW_HEADS = FAMILY.replace(
    "\n@hookimpl",
    """
    def heads(self):
        return {name: super(Mine, self).heads()[name] for name in ("none", "masked-lm")}

@hookimpl""",
    1,
)
ENDLESS = "import time\ntime.sleep(60)\n"


def check(site: Path) -> tuple[int, str, list[str]]:
    """Return exit code, status and problems of the plugin ``mine``."""
    done = zoo("plugins", "check", "mine", "--json", PYTHONPATH=str(site))
    (mine,) = json.loads(done.stdout)["plugins"]
    return done.returncode, mine["health"], mine.get("problems", [])


# The checks of every family of the project show that they pass a sound one.
@pytest.mark.long
def test_a_sound_plugin(tmp_path: Path) -> None:
    files = {"more.py": "print('hello')\n", "test_mine.py": "1 / 0\n"}
    assert check(lay_out(tmp_path, files, first=FEW_HEADS)) == (0, "ok", [])


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[int, str, list[str]]]:
    """A plugin with two broken files and a wrong declaration, and what is found."""
    files = {"model.py": "def build(:\n", "weights.py": "raise SystemExit(0)\n"}
    site = lay_out(tmp_path_factory.mktemp("broken"), files, first=FEW_HEADS)
    declare_model_types(site, "zoo_mine", "mine", "other")
    return site, check(site)


def test_every_broken_file_is_named(broken: tuple[Path, tuple[int, str, list[str]]]) -> None:
    _, (code, health, problems) = broken
    assert code == 5
    declared = [problem for problem in problems if problem.startswith("model type ")]
    assert declared == ["model type other: an entry point declares it, but no family has it"]
    assert "zoo-mine 1.2" in health and "model.py, line 1" in health
    assert "import zoo_mine.weights: SystemExit: 0" in "\n".join(problems)
    assert "model of mine with head none: SyntaxError" in "\n".join(problems)


def test_every_problem_is_a_line(broken: tuple[Path, tuple[int, str, list[str]]]) -> None:
    site, (_, _, problems) = broken
    done = zoo("plugins", "check", "mine", "loggers", PYTHONPATH=str(site))
    lines = [f"mine (zoo-mine 1.2): {len(problems)} problems"]
    lines += [f"  problem: {problem}" for problem in problems]
    assert done.returncode == 5 and len(problems) > 2
    *of_mine, healthy = done.stdout.splitlines()
    assert of_mine == lines and healthy.startswith("loggers (plm-zoo ") and healthy.endswith(": ok")
    assert done.stderr.startswith("error: 1 of 2 plugins fail: mine (from zoo-mine 1.2); ")
    assert done.stderr.count("\n") == 1


NO_RECIPE = FAMILY.replace(
    "\n@hookimpl",
    """
    def heads(self):
        return {"none": super().heads()["none"]}

    def recipe(self, size):
        from zoo.errors import UsageError
        raise UsageError("mine has no recipe")

@hookimpl""",
    1,
)


def test_full_checks_and_those_that_do_not_apply(tmp_path: Path) -> None:
    """Classes called as those of BERT have another model type in transformers."""
    site = lay_out(tmp_path, {}, first=NO_RECIPE)
    done = zoo("plugins", "check", "mine", "--full", PYTHONPATH=str(site))
    assert done.returncode == 5
    first, *lines = done.stdout.splitlines()
    problems = [line for line in lines if line.startswith("  problem: ")]
    failed = {line.removeprefix("  problem: ").partition(" of mine")[0] for line in problems}
    references = {"published tensors", "reference defaults", "reference outputs"}
    references |= {"reference initialization", "dropout rates", "reference keys", "reference ties"}
    assert failed == references and len(problems) == 7
    assert [line for line in problems if "has the model type mine, and Bert" not in line] == []
    assert first == "mine (zoo-mine 1.2): 7 problems"
    skipped = [line for line in lines if line.startswith("  not run: ")]
    assert len(problems) + len(skipped) == len(lines)
    reasons = [line.removeprefix("  not run: ").partition(": ") for line in skipped]
    assert {(check, reason) for check, _, reason in reasons} == {
        ("export of mine", "no recipe: mine has no recipe"),
        ("label leaks of mine", "no recipe: mine has no recipe"),
        ("objectives of mine", "no recipe: mine has no recipe"),
        (
            "reference tokenizer of mine",
            "transformers has no tokenizer class for the model type mine",
        ),
        ("loss decreases of mine", "no recipe: mine has no recipe"),
        (
            "resume of mine",
            "mine has no head for text-classification, question-answering, multiple-choice",
        ),
        *(
            (f"fine tuning of mine with task {task}", f"mine has no head {head}")
            for task, head in (
                ("text-classification", "sequence-classification"),
                ("question-answering", "question-answering"),
                ("multiple-choice", "multiple-choice"),
            )
        ),
        (
            "golden file of mine",
            "it compares with files, which the plugin's own tests have",
        ),
    }


@pytest.mark.long
def test_full_checks_train_and_export(tmp_path: Path) -> None:
    """The recipe of the first needs a head that it lacks; the second has all heads."""
    for heads, first, failing in (
        ("few", FEW_HEADS, {"loss decreases", "export", "objectives"}),
        ("all", FAMILY, set()),
    ):
        site = lay_out(tmp_path / heads, {}, first=first)
        done = zoo("plugins", "check", "mine", "--full", "--json", PYTHONPATH=str(site))
        (mine,) = json.loads(done.stdout)["plugins"]
        failed = {text.partition(" of mine")[0] for text in mine["problems"]}
        references = {"published tensors", "reference defaults", "reference outputs"}
        references |= {"reference keys", "reference ties"}
        assert failed - references == failing, mine["problems"]
        skipped = {text.partition(" of mine")[0] for text in mine["skipped"]} - {"packed rows"}
        assert skipped == {"golden file", *(["fine tuning"] if heads == "few" else [])}


IGNORES_MASK = """
from zoo_bert.model import build as build_bert

def build(config, head):
    model = build_bert(config, head)
    forward = model.forward

    def without_mask(input_ids, attention_mask=None, token_type_ids=None):
        return forward(input_ids, token_type_ids=token_type_ids)

    model.forward = without_mask
    return model
"""


@pytest.mark.long
def test_outputs_that_depend_on_padding_are_named(tmp_path: Path) -> None:
    code, health, problems = check(lay_out(tmp_path, {"model.py": IGNORES_MASK}))
    assert code == 5
    assert "plugin mine (from zoo-mine 1.2) is broken" in health
    checks = {problem.partition(" with head ")[0] for problem in problems}
    assert checks == {"padding of mine"}
    start = "padding of mine with head masked-lm: logits of a row of 7 tokens differs by"
    assert len([problem for problem in problems if problem.startswith(start)]) == 1


@pytest.mark.long
def test_the_kit_is_imported_when_it_is_used() -> None:
    program = (
        "import sys, zoo.testing; assert not {'torch', 'pytest'} & sys.modules.keys(); "
        "from zoo.testing import FamilyTests, ReferenceTests; "
        "assert issubclass(ReferenceTests, FamilyTests)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_name_that_is_not_installed(tmp_path: Path) -> None:
    done = zoo("plugins", "check", "mein", PYTHONPATH=str(lay_out(tmp_path, {})))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "no plugin is called 'mein'; did you mean mine" in done.stderr


def test_the_list_imports_the_first_module_alone(tmp_path: Path) -> None:
    site = lay_out(tmp_path, {"model.py": "1 / 0\n"})
    done = zoo("plugins", "--json", PYTHONPATH=str(site))
    assert done.returncode == 0
    assert {plugin["health"] for plugin in json.loads(done.stdout)["plugins"]} == {"ok"}


@pytest.mark.parametrize(
    ("text", "message"),
    [(ENDLESS, "more than 1 s"), ("import os\nos._exit(3)\n", "ends the process, with 3")],
)
def test_module_that_hangs_or_exits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    """The package has no slow imports, so that the subprocess starts quickly."""
    site = lay_out(tmp_path, {"more.py": text}, first=FAMILY)
    monkeypatch.setenv("PYTHONPATH", str(site))
    (finding,) = check_plugin("mine", seconds=1 if text == ENDLESS else 60)
    assert message in finding.text and not finding.skipped
