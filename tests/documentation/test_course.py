"""The scripts of the course run, and print what their cells promise."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

COURSE = Path(__file__).parents[2] / "examples" / "course"
PRINTS = {  # script -> what it prints at its end
    "elmo_layers": r"layer 0: 1\.000\n.*layer 1: \S+\n.*layer 2: \S+\n",
    "masked_words": r"early\n(  .*\n){3}\nlate\n(  .*\n){3}",
    "electra_and_bert": r"accuracy",
    "text_to_text": r"write 4 2 -> .*\nwrite 0 7 -> .*\n",
    "frozen_or_full": r"accuracy",
    "what_distillation_keeps": r"parameters: \d+%.*\nloss: .*\nthe same prediction: \d+%",
}


def test_every_script_is_tested_and_described() -> None:
    scripts = {path.stem for path in COURSE.glob("[!_]*.py")}
    readme = (COURSE / "README.md").read_text("utf-8")
    assert scripts == set(PRINTS)
    assert [name for name in scripts if f"| `{name}.py` |" not in readme] == []


@pytest.mark.long
@pytest.mark.parametrize("name", PRINTS)
def test_a_script_runs(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, COURSE / f"{name}.py", "--quick", "-o", tmp_path / "out"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(PRINTS[name], done.stdout), done.stdout
