"""Batches that are computed at the same time, compared with one after the other."""

import threading
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.exporting.conftest import with_tokenizer
from tests.inference.making import draw_batch, make_checkpoint, store
from zoo.checkpoint import Checkpoint, load_checkpoint
from zoo.exporting.gate import export_model
from zoo.exporting.session import open_session
from zoo.exporting.targets import find_target
from zoo.exporting.targets.base import ExportSettings
from zoo.families.random_inputs import random_inputs, randomize_weights
from zoo.inference import Session, load_session
from zoo.inference.concurrency import MAX_CONCURRENT_BATCHES, compute_batches
from zoo.inference.embed import Embed
from zoo.inference.processing.records import as_records
from zoo.plugins import get_family
from zoo.plugins.registry import all_families

TEXTS = ["a b c d e"[: 1 + number % 9] for number in range(40)]
CASES = [("cpu", "float32"), ("cpu", "int8"), ("onnx", "float32"), ("ctranslate2", "float32")]


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Let torch use two threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return with_tokenizer(tmp_path_factory.mktemp("encoder") / "bert", "none")


def embed(session: Session, checkpoint: Checkpoint) -> tuple[np.ndarray[Any, Any], set[int]]:
    """Return embeddings in small batches, and the threads that ran the session."""
    threads = set[int]()
    run = session.run

    def run_and_record(*arguments: Any, **options: Any) -> Any:
        threads.add(threading.get_ident())
        return run(*arguments, **options)

    session.run = run_and_record  # type: ignore[method-assign]
    task = Embed(checkpoint, session, max_batch_tokens=16)
    vectors = [result["embedding"] for result in task.run(as_records(TEXTS), arrays=True)]
    return np.stack(vectors), threads


@pytest.mark.filterwarnings("ignore::zoo.inference.task.TaskWarning")
@pytest.mark.parametrize(("backend", "dtype"), CASES)
@pytest.mark.usefixtures("two_threads")
def test_embeddings_are_those_of_one_batch_after_the_other(
    encoder: Checkpoint, tmp_path: Path, backend: str, dtype: str
) -> None:
    checkpoint = encoder
    if backend != "cpu":
        settings = ExportSettings(precision=dtype, allow_tokenizer_differences=True)
        export_model(find_target(backend), encoder, tmp_path / "export", settings)
        checkpoint = load_checkpoint(tmp_path / "export")
    concurrent, workers = embed(
        open_session(checkpoint, backend, dtype=dtype, threads=2), checkpoint
    )
    assert threading.get_ident() not in workers and len(workers) <= 2
    one_by_one, threads = embed(
        open_session(checkpoint, backend, dtype=dtype, threads=1), checkpoint
    )
    assert threads == {threading.get_ident()}
    np.testing.assert_allclose(concurrent, one_by_one, atol=1e-6, equal_nan=False)


@pytest.mark.by_default("bert", "deberta", "elmo", "t5")
@pytest.mark.parametrize("name", list(all_families()))
@pytest.mark.usefixtures("two_threads")
def test_models_of_all_families_run_in_several_threads(name: str, tmp_path: Path) -> None:
    family = get_family(name)
    config: Any = family.sizes()["tiny"]
    model = family.model(config, "none")
    randomize_weights(model)
    checkpoint = store(tmp_path / "model", model, family, config, "none")
    session = load_session(checkpoint, "cpu", dtype="float64")
    batches = []
    for seed in range(12):
        inputs = random_inputs(checkpoint.onnx_spec, checkpoint.config, [4 + seed, 7, 3], seed=seed)
        batches.append({name: tensor.numpy() for name, tensor in inputs.items()})
    expected = [session.run(batch) for batch in batches]
    for outputs, references in zip(
        compute_batches(session, session.run, batches), expected, strict=True
    ):
        for output, reference in references.items():
            np.testing.assert_allclose(outputs[output], reference, atol=1e-12, equal_nan=False)


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return load_session(make_checkpoint(tmp_path / "model"), "cpu")


@pytest.mark.usefixtures("two_threads")
def test_the_first_error_ends_the_rest(session: Session) -> None:
    """The threads of torch are as many as before."""
    computed = []
    failed = threading.Event()

    def compute(number: int) -> int:
        session.run(draw_batch([5]))
        if number == 3:
            failed.set()
            raise ValueError("the fourth")
        if number > 3:
            failed.wait(60)
        computed.append(number)
        return number

    results: list[int] = []
    with pytest.raises(ValueError, match="the fourth"):
        results += compute_batches(session, compute, range(1000))
    assert set(computed) >= {0, 1, 2}
    assert 3 not in computed and len(computed) < 1000
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_each_batch_has_its_part_of_the_threads(session: Session) -> None:
    """As torch uses them: what it reports is a number of all threads."""
    torch.set_num_threads(4)

    def cores(_: int) -> int:
        return int(torch.__config__.parallel_info().split("omp_get_max_threads() : ")[1][0])

    assert list(compute_batches(session, cores, range(2))) == [2, 2]
    assert list(compute_batches(session, cores, range(1))) == [4]
    assert session.concurrent_batches(3) == 3
    torch.set_num_threads(64)
    assert session.concurrent_batches(100) == MAX_CONCURRENT_BATCHES


@pytest.mark.usefixtures("two_threads")
def test_context_variables_are_the_callers(session: Session) -> None:
    variable = ContextVar("variable", default="")
    token = variable.set("of the caller")
    try:
        found = list(compute_batches(session, lambda _: variable.get(), range(4)))
    finally:
        variable.reset(token)
    assert found == ["of the caller"] * 4
