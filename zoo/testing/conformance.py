"""The conformance checks as pytest classes, for built-in families and third parties' alike.

A plugin's test file is one class::

    from zoo.testing import FamilyTests

    class TestMine(FamilyTests):
        family = Mine()
        golden = Path(__file__).parent / "golden"

The tests are made from the table ``zoo.conformance.kit.CHECKS``: one for each check, for every
head.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from zoo.conformance.family_checks import FamilyChecks
from zoo.conformance.kit import CHECKS, run_check
from zoo.conformance.smoke_train import SMOKE_TASKS
from zoo.conformance.tiny_model import NotApplicable
from zoo.overrides import override

NO_GOLDEN_FILE = pytest.param(
    None,
    id="none",
    marks=pytest.mark.skip(reason="no golden file; set `golden` to a directory of them"),
)


class FamilyTests(FamilyChecks):
    """The tests of a family. Subclass it in a test file, and set the family.

    A test is skipped if its check does not apply to the family; the reason is shown.

    Attributes:
        family: the family.
        golden: a directory of golden files; ``None`` skips the test of outputs, visibly.
    """

    golden: ClassVar[Path | None] = None

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Parametrize the tests with ``head``, ``size``, ``task`` or ``golden_file``."""
        files = sorted(self.golden.glob("*.safetensors")) if self.golden else []
        values: Mapping[str, list[Any]] = {
            "head": list(self.family.heads()),
            "size": list(self.family.sizes()),
            "task": list(SMOKE_TASKS),
            "golden_file": [pytest.param(path, id=path.stem) for path in files] or [NO_GOLDEN_FILE],
        }
        for name in values:  # in a fixed order: parallel runs compare what they collected
            if name in metafunc.fixturenames:
                metafunc.parametrize(name, values[name])


class ReferenceTests(FamilyTests):
    """The tests of a family with a reference: ``FamilyTests``, and the outputs of transformers.

    They are skipped where transformers has no class of the name that the family gives.

    Attributes:
        settings: changes of the configuration; outputs are compared with each.
        row_lengths: number of tokens of the rows that are compared, long enough for every branch
            of the formulas; ``None`` for three different ones up to 48.
    """

    settings: ClassVar[Sequence[Mapping[str, Any]]] = ({},)
    row_lengths: ClassVar[Sequence[int] | None] = None

    @override
    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        super().pytest_generate_tests(metafunc)
        if "changes" in metafunc.fixturenames:
            metafunc.parametrize("changes", self.settings, ids=str)


def _make_test(check: str) -> Callable[..., None]:
    """Return a test that runs a check; its parameters are those that pytest gives."""

    def test(self: FamilyTests, **values: Any) -> None:
        if "golden_file" in values:
            values = {"path": values["golden_file"]}
        if "lengths" in parameters:
            values["lengths"] = getattr(self, "row_lengths", None)
        try:
            run_check(self, check, values)
        except NotApplicable as error:
            pytest.skip(str(error))

    method = getattr(FamilyChecks, f"check_{check}")
    parameters = inspect.signature(method).parameters
    given = [
        parameter.replace(name="golden_file" if name == "path" else name)
        for name, parameter in parameters.items()
        if name not in ("directory", "lengths")
    ]
    test.__signature__ = inspect.signature(method).replace(parameters=given)  # type: ignore[attr-defined]
    test.__doc__ = method.__doc__
    return test


for _name, _check in CHECKS.items():
    _class = ReferenceTests if _check.compares else FamilyTests
    setattr(_class, f"test_{_check.test or _name}", _make_test(_name))
