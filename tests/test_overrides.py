import subprocess
import sys

import pytest

from tests.interfaces import ROOT
from zoo.overrides import override


class Base:
    @property
    def size(self) -> int:
        return 1

    @classmethod
    def make(cls) -> "Base":
        return cls()


class Derived(Base):
    @property
    @override
    def size(self) -> int:
        return 2

    @classmethod
    @override
    def make(cls) -> "Derived":
        return cls()


def test_properties_and_class_methods_are_overridden() -> None:
    assert type(Derived.make()) is Derived and Derived.make().size == 2


@pytest.mark.parametrize(("decorator", "code"), [("    @override\n", 0), ("", 1)])
def test_the_linter_wants_no_docstring_of_an_override(decorator: str, code: int) -> None:
    source = (
        '"""A module."""\n\nfrom zoo.overrides import override\n\n\nclass Kind(list[int]):\n'
        f'    """A class."""\n\n    other = override\n\n{decorator}'
        "    def append(self, item: int) -> None:\n        print(item)\n"
    )
    command = ["ruff", "check", "-q", "--output-format", "concise", "--stdin-filename"]
    done = subprocess.run(
        [sys.executable, "-m", *command, str(ROOT / "zoo" / "kind.py")],
        input=source, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, "D102" in done.stdout) == (code, bool(code)), done.stdout + done.stderr
