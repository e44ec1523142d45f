"""The wheel: its contents, and use without the source tree."""

import csv
import json
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
import yaml

from tests.checkpoints import Make, hub_checkpoint
from tests.once import written_once
from zoo import version

__all__ = ["hub_checkpoint"]

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel() -> Path:
    return next(written_once("wheel", build_wheel).glob("*.whl"))


def build_wheel(folder: Path) -> None:
    """Build the wheel from a copy of the tracked files that the container files are given."""
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split("\0")
    rules = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    context = tuple(rule[1:] for rule in rules if rule.startswith("!"))
    tracked = [name for name in names if name and name.startswith(context)]
    if not tracked:
        pytest.skip("not in a git checkout, so what belongs to the project cannot be told")
    for name in tracked:
        target = folder / "source" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_symlink():
            target.symlink_to(os.readlink(ROOT / name))
        else:
            target.write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", str(folder)]
    done = subprocess.run(
        [*command, str(folder / "source")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout


def test_each_file_of_the_package_matches_a_pattern() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    package = ROOT / "zoo"
    packaged: set[Path] = set()
    for pattern in settings["package-data"]["zoo"]:
        files = {path for path in package.glob(pattern) if path.is_file()}
        assert files, f"nothing matches {pattern}"
        packaged |= files
    assert packaged >= set(package.rglob("*.mjs")) | set(package.rglob("*.txt"))


def test_only_our_packages_are_in_it(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {
        "zoo",
        "zoo_converters",
        *(path.name for path in (ROOT / "plugins").glob("zoo_*")),
    }
    data = {"zoo/registry.yaml", "zoo/py.typed", "zoo/plugins/directory.yaml"}
    assert data <= set(names)
    templates = {p.name for p in (ROOT / "zoo/report/templates").iterdir()}
    assert templates == {Path(n).name for n in names if n.startswith("zoo/report/templates/")}
    projects = {str(p.relative_to(ROOT)) for p in (ROOT / "zoo/plugins/templates").rglob("*.txt")}
    assert projects == {n for n in names if n.startswith("zoo/plugins/templates/")}
    texts = [name for name in names if name.startswith("zoo/data/sample/")]
    assert {Path(n).name for n in texts} == {p.name for p in (ROOT / "zoo/data/sample").iterdir()}
    assert sum(zipfile.ZipFile(wheel).getinfo(name).file_size for name in texts) < 5_000_000


def test_the_registry_in_it_is_a_real_file(wheel: Path) -> None:
    packed = zipfile.ZipFile(wheel).read("zoo/registry.yaml")
    assert packed == (ROOT / "registry.yaml").read_bytes()


@pytest.mark.by_default("converters")
@pytest.mark.parametrize("name", ["plugins", "converters", "tests"])
def test_it_works_from_another_folder(wheel: Path, tmp_path: Path, name: str) -> None:
    unpacked = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(unpacked)
    program = (
        "import importlib.util, sys\n"
        f"sys.path.insert(0, {str(unpacked)!r})\n"
        f"assert importlib.util.find_spec({name!r}) is None\n"
        "import zoo, zoo_converters\n"
        f"assert zoo.__file__.startswith({str(unpacked)!r}), zoo.__file__\n"
        "from zoo.hub.registry import builtin\n"
        "assert builtin()\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel with pip into an environment that shares the dependencies of this one.

    Returns its folder of packages.
    """
    environment = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(environment, with_pip=False)
    site = next(environment.glob("lib/python*/site-packages"))
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*command, "--target", str(site), str(wheel)], check=True)
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return site


def run(site: Path, folder: Path, *words: str) -> str:
    """Run Python of the environment in a folder, and return its output."""
    done = subprocess.run(
        [site.parents[2] / "bin" / "python", "-I", *words],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "ZOO_HOME": str(folder / "home")},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_is_installed_and_runs(wheel: Path, site: Path, tmp_path: Path) -> None:
    shown = run(site, tmp_path, "-m", "zoo", "--version")
    assert shown.split()[-1] == version.__version__
    assert f"-{version.__version__}-" in wheel.name
    families = json.loads(run(site, tmp_path, "-m", "zoo", "families", "--json"))["families"]
    assert sorted(families) == sorted(p.name[4:] for p in (ROOT / "plugins").glob("zoo_*"))
    place = run(site, tmp_path, "-c", "import zoo; print(zoo.__file__)")
    assert Path(place.strip()).is_relative_to(site), "the wheel, not the source tree"


@pytest.mark.long
def test_a_table_becomes_vectors_in_a_fresh_environment(
    site: Path, hub_checkpoint: Make, tmp_path: Path
) -> None:
    """5,000 texts of a CSV, as a spreadsheet writes it, to ``.npy`` and Parquet."""
    hub_checkpoint("BertModel", "a model")
    with (tmp_path / "my reviews.csv").open("w", encoding="utf-8-sig", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "Review", "stars"])
        rows.writerows([k, f'a "{k % 7}" b,\nc {k}', k % 5] for k in range(5000))
    command = ("-m", "zoo", "run", "embed", "a model", "--input", "my reviews.csv")
    for name in ("vectors.npy", "vectors.parquet"):
        shown = run(site, tmp_path, *command, "--text", "Review", "--normalize", "-o", name)
        assert shown == f"wrote {name}, 5,000 rows\n"
    vectors = np.load(tmp_path / "vectors.npy")
    assert vectors.shape == (5000, 32) and vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    table = pyarrow.parquet.read_table(tmp_path / "vectors.parquet").to_pydict()
    np.testing.assert_array_equal(np.array(table["embedding"], np.float32), vectors)
    assert table["id"] == [str(k) for k in range(5000)]
    assert table["Review"][4321] == f'a "{4321 % 7}" b,\nc 4321'
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "a model",
        "home",
        "my reviews.csv",
        "vectors.npy",
        "vectors.npy.json",
        "vectors.parquet",
    ]


@pytest.mark.parametrize("name", ["test", "release"])
def test_workflows_run_targets_of_the_makefile(name: str) -> None:
    workflow = yaml.safe_load((ROOT / f".github/workflows/{name}.yml").read_text("utf-8"))
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    targets = {step["run"].split()[1] for step in steps if step.get("run", "").startswith("make ")}
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert targets >= {"test"}
    assert [target for target in targets if f"\n{target}:" not in makefile] == []
    tokens = [job for job, value in workflow["jobs"].items() if "permissions" in value]
    assert tokens == (["publish"] if name == "release" else [])


def test_hints_name_packages_and_not_extras_of_this_one() -> None:
    """A package of a hint is a requirement of this one, or of what it works with."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    requirements = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    known = {re.split(r"[<>=!\[; ]", name)[0] for name in requirements}
    known |= {"lm-eval", "mteb", "llama-cpp-python", "mlflow", "wandb", "{REFERENCE}"}
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for folder in ("zoo", "converters", "plugins")
        for path in (ROOT / folder).rglob("*.py")
        for name in re.findall(r"pip install ([^-`\s][^`\s\",;]*)", path.read_text("utf-8"))
        if name not in known
    ]
    assert wrong == []
