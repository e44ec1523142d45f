"""Fixtures of all tests: an isolated home, and a Hub on loopback."""

import gc
import itertools
import logging
import operator
import os
import re
import signal
import sys
import tempfile
import types
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from functools import cache, partial
from importlib.abc import InspectLoader
from pathlib import Path
from typing import TYPE_CHECKING

# Sums depend on the number of threads, and runs of this process are compared with those of others.
# NumPy reads it at import.
os.environ["OMP_NUM_THREADS"] = "1"
import numpy as np
import pytest

from tests.exporter import EXPORTER, WRITER, keep_tables, keep_traces
from tests.once import share_directory, written_once
from tests.reporting import record
from zoo.io.locks import file_lock

if TYPE_CHECKING:
    from tests.hub.hub_server import Hub

# A background shell makes its children ignore SIGINT, which several tests send.
signal.signal(signal.SIGINT, signal.default_int_handler)
HANDLERS = {
    number: signal.getsignal(number)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
}
for _name in ("COLUMNS", "LINES"):  # readline, which pytest imports, sets them for child processes
    os.unsetenv(_name)
# By default NumPy takes NaN for equal to NaN, and two broken results would be equal.
vars(np.testing)["assert_allclose"] = partial(np.testing.assert_allclose, equal_nan=False)
# Tests end processes and not machines, so no file has to reach the disk, which takes milliseconds.
vars(os)["fsync"] = operator.index  # a built-in function, like the real one
NOWHERE = "http://127.0.0.1:9"  # the port of the discard service, closed on all machines
FOREIGN = (
    "COLUMNS",
    "HF_HUB_OFFLINE",
    "TRANSFORMERS_OFFLINE",
    "HF_HUB_CACHE",
    "HUGGINGFACE_HUB_CACHE",
    "HF_TOKEN",
    "HF_TOKEN_PATH",
    "HUGGING_FACE_HUB_TOKEN",
    "HF_HUB_DISABLE_SYMLINKS",
    "ZOO_PLUGINS",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cuda-device",
        metavar="DEVICE",
        help="run the tests marked cuda on this device, such as cpu, to try the tests themselves",
    )


EXAMPLES = 20  # of a property in the default run
MORE_EXAMPLES = 300  # in `make test-all`


def pytest_configure(config: pytest.Config) -> None:
    """Set the number of examples that Hypothesis tries, before modules read it."""
    from hypothesis import settings

    is_default = "not long" in config.getoption("markexpr")
    number = EXAMPLES if is_default else MORE_EXAMPLES
    settings.register_profile("zoo", max_examples=number, deadline=None)
    settings.load_profile("zoo")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector from going through modules and test items again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


FRESH = not any(Path(__file__).parent.glob("__pycache__/test_*"))  # no bytecode of tests is there


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Let one worker compile a module with all that it imports, and the others wait for it.

    Otherwise each compiles everything, which takes two thirds of a first collection.
    """
    run = getattr(collector.config, "workerinput", {}).get("testrunuid")
    if not (run and FRESH and isinstance(collector, pytest.Module)):
        return (yield)
    name = collector.nodeid.replace("/", "-")
    with file_lock(Path(tempfile.gettempdir(), f"zoo-{run}-{name}.lock")):
        return (yield)


# the defaults look for cycles in all objects after each few thousand new ones
gc.set_threshold(10_000, 20, 20)
MORE_MODULES = 100  # that were imported since the last freeze, such as torch with what it needs
frozen_modules = 0


def let_loggers_propagate() -> None:
    """Let the loggers of torch pass their records on.

    pytest adds handlers to each logger that does not, and removes them, six times for each test.
    """
    for logger in logging.root.manager.loggerDict.values():
        if isinstance(logger, logging.Logger) and logger.name.startswith("torch"):
            logger.propagate = True


def pytest_runtest_logfinish() -> None:
    """Keep the garbage collector from going through the libraries that a test has imported."""
    global frozen_modules
    if len(sys.modules) > frozen_modules + MORE_MODULES:
        frozen_modules = len(sys.modules)
        let_loggers_propagate()
        gc.collect()
        gc.freeze()
    if EXPORTER in sys.modules:
        keep_tables()
    if WRITER in sys.modules:
        keep_traces()


def mark_repeated_cases(items: Iterable[pytest.Item]) -> None:
    """Mark the cases of a test as long that its mark ``by_default`` does not name.

    A name is the id of a case, or its first part, of the last ``parametrize``.

    Raises:
        pytest.UsageError: a test has several cases, and none of the names.
    """
    cases: dict[str, list[bool]] = {}
    for item in items:
        mark = item.get_closest_marker("by_default")
        if mark is None or not isinstance(item, pytest.Function):
            continue
        is_named = any(f"{item.callspec.id}-".startswith(f"{name}-") for name in mark.args)
        cases.setdefault(item.nodeid.partition("[")[0], []).append(is_named)
        if not is_named:
            item.add_marker(pytest.mark.long)
    for test, named in cases.items():
        if len(named) > 1 and not any(named):
            raise pytest.UsageError(f"{test}: by_default names none of its cases")


@pytest.hookimpl(tryfirst=True)  # before pytest deselects what is long
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark repeated cases as long, and skip tests that need a CUDA device where there is none."""
    mark_repeated_cases(items)
    marked = [item for item in items if item.get_closest_marker("cuda")]
    if not marked or config.getoption("--cuda-device"):
        return
    from zoo.nn.devices import cuda_problem

    if problem := cuda_problem():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=f"no CUDA device: {problem}"))


@cache
def code_of_hub_settings() -> types.CodeType:
    spec = sys.modules["huggingface_hub.constants"].__spec__
    assert spec is not None and isinstance(spec.loader, InspectLoader)
    code = spec.loader.get_code(spec.name)
    assert code is not None
    return code


def reload_hub_settings() -> None:
    """Reload the settings of huggingface_hub, which it reads at import.

    This runs for each test, and ``importlib.reload`` would look for the file and read it again.
    """
    if constants := sys.modules.get("huggingface_hub.constants"):
        exec(code_of_hub_settings(), vars(constants))


@pytest.fixture(scope="session", autouse=True)
def isolated_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Isolate fixtures of modules from the user's store and cache; each test has its own."""
    share_directory(tmp_path_factory)
    folder = tmp_path_factory.mktemp("session")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZOO_HOME", str(folder / "zoo-home"))
        patch.setenv("HF_HOME", str(folder / "hf-home"))
        yield


def restore_handlers() -> None:
    for number, handler in HANDLERS.items():
        signal.signal(number, handler)


NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def folder_of_tests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the directories of all tests of this process."""
    return tmp_path_factory.mktemp("t", numbered=False)


@pytest.fixture
def tmp_path(folder_of_tests: Path, request: pytest.FixtureRequest) -> Path:
    """A new directory for a test.

    The fixture of pytest reads the names of the directories of all former tests for the next free
    number. With some thousand tests, this takes longer than most tests.
    """
    name = re.sub(r"\W", "_", request.node.name)[:24]
    folder = folder_of_tests / f"{name}{next(NUMBERS)}"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture(autouse=True)
def signal_handlers() -> Iterator[None]:
    """Restore the handlers of signals: ``zoo.cli.main`` lets them end the process at once."""
    restore_handlers()  # a fixture of a module or the session may have run a command
    yield
    restore_handlers()


@pytest.fixture(autouse=True)
def isolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Isolate tests from the user's store, cache and token, and from the network."""
    for name in FOREIGN:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ZOO_HOME", str(tmp_path / "zoo-home"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf-home"))
    monkeypatch.setenv("HF_ENDPOINT", NOWHERE)
    reload_hub_settings()


@pytest.fixture(scope="session")
def small_export(isolated_session: None) -> Path:
    """A directory with a converted ``model``, and its ``export`` with weights in another file."""
    from tests.exporting.making import export_onnx
    from tests.inference.making import make_checkpoint

    def write(folder: Path) -> None:
        model = make_checkpoint(folder / "model", num_layers=1)
        export_onnx(model, folder / "export", external_over=1000)

    return written_once("small-export", write)


@pytest.fixture
def hub(isolated: None, monkeypatch: pytest.MonkeyPatch) -> "Iterator[Hub]":
    """A Hub on loopback that ``$HF_ENDPOINT`` names, here and in subprocesses."""
    from tests.hub.hub_server import Hub

    with Hub() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
        reload_hub_settings()
        yield server


CASES: Counter[tuple[str, str]] = Counter()
FAILURES: Counter[tuple[str, str]] = Counter()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Record the result of a test with the mark ``promise``, over all its parameters."""
    report = yield
    mark = item.get_closest_marker("promise")
    if mark is not None and report.when == "call" and not report.skipped:
        key = (str(mark.args[0]), item.nodeid.partition("[")[0])
        CASES[key] += mark.kwargs.get("cases", 1)
        FAILURES[key] += int(report.failed)
        command = f"pytest {key[1]}"
        record(key[0], cases=CASES[key], failures=FAILURES[key], command=command)
    return report
