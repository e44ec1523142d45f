import re
import subprocess
import sys

import numpy as np
import pytest

import zoo
from tests.inference import conftest
from tests.inference.conftest import Small
from tests.interfaces import EXAMPLES, FOLDER, ROOT, SNAPSHOTS, imports
from zoo.errors import UsageError

small, hub_checkpoint = conftest.small, conftest.hub_checkpoint


@pytest.mark.by_default("auto", "cpu")
@pytest.mark.parametrize("backend", ["auto", "cpu", "onnx"])
def test_a_directory_is_loaded_on_any_backend(small: Small, backend: zoo.api.Backend) -> None:
    made, source = small("BertModel")
    expected = made.features(["a b", "c"])
    for path in (made.checkpoint.path, str(source)):
        model = zoo.load(path, backend=backend, threads=1, offline=True)
        assert model.session.backend == ("cpu" if backend == "auto" else backend)
        for ours, theirs in zip(model.features(["a b", "c"]), expected, strict=True):
            assert ours["tokens"] == theirs["tokens"]
            np.testing.assert_allclose(ours["layers"]["2"], theirs["layers"]["2"], atol=1e-5)
    assert repr(model).endswith(f" parameters, {model.session.backend} on cpu, float32>")
    if backend == "onnx":
        with pytest.raises(UsageError, match=r"does not expose single layers.*--backend cpu"):
            model.features(["a"], layers=[0])


@pytest.mark.filterwarnings("ignore::zoo.inference.task.TaskWarning")
def test_a_single_string_is_not_taken_for_a_list_of_letters(small: Small) -> None:
    model, _ = small("BertModel")
    with pytest.raises(UsageError, match="a single string was given for texts; put it into a list"):
        model.features("a b")


@pytest.mark.filterwarnings("ignore::zoo.inference.task.TaskWarning")
def test_any_iterable_will_do(small: Small) -> None:
    model, _ = small("BertModel")
    assert model.embed(text for text in ("a", "b", "c")).shape == (3, 32)


def test_a_name_that_nothing_has_is_refused() -> None:
    with pytest.raises(UsageError, match="no model is called 'all-minilm-l6-v3'; did you mean"):
        zoo.load("all-minilm-l6-v3")


@pytest.mark.parametrize(
    ("name", "module"),
    [("distill", "distillation.losses.kl"), ("evaluate", "evaluation.base")],
)
def test_a_function_is_one_before_and_after_its_modules_are_imported(
    name: str, module: str
) -> None:
    code = f"import zoo; first = zoo.{name}; import zoo.{module}; " + (
        f"print(callable(first), zoo.{name} is first)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]


def test_importing_zoo_and_its_tasks_is_cheap() -> None:
    code = (
        "import sys, zoo, zoo.api, zoo.inference.task; zoo.distill; zoo.evaluate;"
        "import zoo.inference.processing.inputs, zoo.inference.embed;"
        "print(sorted({'torch', 'numpy', 'tokenizers', 'onnxruntime'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_interfaces_are_those_of_the_snapshot(name: str) -> None:
    expected = (FOLDER / f"{name}.txt").read_text("utf-8").splitlines()
    remedy = "for a wanted change, run `python -m tests.interfaces`, and add a line to CHANGELOG.md"
    assert list(SNAPSHOTS[name]()) == expected, remedy


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.iterdir()))
def test_plugins_of_the_examples_import_stable_names_alone(name: str) -> None:
    """Every import is in a snapshot, or of a module that is."""
    lines = [line for file in ("plugins", "python") for line in (FOLDER / f"{file}.txt").open()]
    stable = {re.split(r"[(,\s]", line)[0] for line in lines}
    parts = [listed.split(".") for listed in stable]
    names = {(part[1], part[-1]) for part in parts if len(part) > 1}
    modules = {".".join(part[:length]) for part in parts for length in range(2, len(part))}
    imported = imports(EXAMPLES / name)
    assert imported
    assert [
        f"{module}.{member}"
        for module, member in sorted(imported)
        if (module.split(".")[1], member) not in names and f"{module}.{member}" not in modules
    ] == []
    assert [member for _, member in imported if member.startswith("_")] == []


def test_the_snapshot_has_the_names_of_the_documentation() -> None:
    """The first column of the table names functions, classes and modules."""
    page = (ROOT / "docs" / "api.md").read_text("utf-8")
    rows = re.findall(r"^\| (`zoo.*?) \|", page.partition("## Python")[2], re.MULTILINE)
    names = [name for row in rows for name in re.findall(r"`(zoo(?:\.\w+)+)", row)]
    assert {"zoo.load", "zoo.__version__", "zoo.errors", "zoo.objectives"} <= set(names)
    snapshot = [line for lines in SNAPSHOTS.values() for line in lines()]
    assert [n for n in names if not any(re.match(rf"{n}\b", line) for line in snapshot)] == []


def test_errors_have_the_documented_attributes() -> None:
    error = UsageError("a fault", "a remedy")
    assert (error.what, error.hint, error.exit_code) == ("a fault", "a remedy", 2)
