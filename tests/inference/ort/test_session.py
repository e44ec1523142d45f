import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import onnx
import onnxruntime
import pytest

from tests import warm
from tests.inference.making import draw_batch
from zoo.checkpoint import Checkpoint, encode_manifest, load_checkpoint
from zoo.errors import UsageError, VerificationError
from zoo.exporting.session import open_session
from zoo.inference import BackendWarning, load_session
from zoo.inference.ort.runtime import create_session
from zoo.inference.processing.batching import plan_batches
from zoo.io.digests.files import hash_file
from zoo.io.paths import home


@pytest.fixture(scope="module")
def source(small_export: Path) -> Checkpoint:
    return load_checkpoint(small_export / "model")


@pytest.fixture(scope="module")
def split(small_export: Path) -> Checkpoint:
    """An export with external weights."""
    return load_checkpoint(small_export / "export")


@pytest.fixture
def copy(split: Checkpoint, tmp_path: Path) -> Checkpoint:
    """A copy of the export, to be modified."""
    return load_checkpoint(shutil.copytree(split.path, tmp_path / "graph"))


def test_weights_in_a_file_of_their_own(source: Checkpoint, split: Checkpoint) -> None:
    names = {"onnx/model.onnx", "onnx/model.onnx_data", "config.json", "README.md"}
    assert split.manifest.files.keys() == names
    assert split.manifest.export is not None
    assert split.manifest.export["graphs"]["onnx/model.onnx"]["external_data"] == "model.onnx_data"
    paths = [path for path in split.path.rglob("*") if path.is_file()]
    assert {str(path.relative_to(split.path)) for path in paths} == {*names, "zoo.json"}
    assert (split.path / "onnx/model.onnx").stat().st_size < 50_000
    model = onnx.load(split.path / "onnx/model.onnx", load_external_data=False)
    entries = [entry for tensor in model.graph.initializer for entry in tensor.external_data]
    locations = {entry.value for entry in entries if entry.key == "location"}
    assert locations == {"model.onnx_data"}
    batch = draw_batch([40, 3])
    ours, theirs = (load_session(c).run(batch)["pooler_output"] for c in (split, source))
    assert np.abs(ours - theirs).max() < 1e-5


def test_texts_of_different_lengths_are_calls_of_their_own(
    source: Checkpoint, split: Checkpoint
) -> None:
    # A call costs less than in torch, and so may padding.
    lengths = [40, 20]
    assert len(plan_batches(lengths, call_cost=load_session(source).call_cost)) == 1
    assert len(plan_batches(lengths, call_cost=load_session(split).call_cost)) == 2


def test_inputs_that_are_absent_are_neutral(split: Checkpoint) -> None:
    session = load_session(split)
    ids = draw_batch([6, 6])["input_ids"]
    alone = session.run({"input_ids": ids})
    spelled = session.run(
        {"token_type_ids": ids * 0, "attention_mask": ids * 0 + 1, "input_ids": ids}
    )
    assert [
        name for name in session.outputs if not np.array_equal(alone[name], spelled[name])
    ] == []


def test_only_the_outputs_asked_for(split: Checkpoint) -> None:
    assert list(load_session(split).run(draw_batch([3]), ["pooler_output"])) == ["pooler_output"]


def test_wrong_inputs_are_told_before_the_runtime_sees_them(split: Checkpoint) -> None:
    session = load_session(split)
    with pytest.raises(UsageError, match="holds -1, where values from 0 to 299 are"):
        session.run({"input_ids": np.array([[-1]])})
    with pytest.raises(UsageError, match="at most 40"):
        session.run({"input_ids": np.ones((1, 41), int)})
    with pytest.raises(UsageError, match="no output is called"):
        session.run(draw_batch([2]), ["hidden"])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [flip, Path.unlink, lambda path: path.write_bytes(b"")])
@pytest.mark.parametrize("name", ["onnx/model.onnx_data", "onnx/model.onnx"])
def test_a_damaged_file_is_refused(
    copy: Checkpoint, name: str, damage: Callable[[Path], object]
) -> None:
    damage(copy.path / name)
    with pytest.raises(VerificationError, match=f"{name} is not the file that .*zoo.json"):
        load_session(copy)


@pytest.mark.parametrize(
    "words",
    [
        ("run", "features"),
        pytest.param(("run", "embed"), marks=pytest.mark.long),
        pytest.param(("bench",), marks=pytest.mark.long),
    ],
)
def test_weights_of_another_model_are_one_line(copy: Checkpoint, words: tuple[str, ...]) -> None:
    """They have the same shapes, so that ONNX Runtime would compute other outputs of them."""
    name, other = "onnx/model.onnx_data", copy.path.parent / "other.onnx_data"
    weights = np.fromfile(copy.path / name, np.float32)
    other.write_bytes((-weights).tobytes())
    assert other.stat().st_size == (copy.path / name).stat().st_size
    other.replace(copy.path / name)
    texts = ["a text"] if words[0] == "run" else []
    done = warm.zoo(*words, copy.path, *texts, "--backend", "onnx")
    assert (done.returncode, done.stdout) == (3, "")
    described = re.escape(f"{name} is not the file that {copy.path / 'zoo.json'} describes")
    assert re.fullmatch(rf"error: .*{described}; .*`zoo verify`\n", done.stderr)


def test_a_graph_that_was_not_validated_warns(copy: Checkpoint) -> None:
    export = {**(copy.manifest.export or {}), "validated": False}
    manifest = msgspec.structs.replace(copy.manifest, export=export)
    (copy.path / "zoo.json").write_bytes(encode_manifest(manifest))
    with pytest.warns(BackendWarning, match="did not pass the export gate"):
        load_session(load_checkpoint(copy.path))


def unknown_operator(model: onnx.ModelProto) -> None:
    model.graph.node[0].op_type = "NoSuchOperator"


def later_opset(model: onnx.ModelProto) -> None:
    model.opset_import[0].version = 999


@pytest.mark.parametrize("change", [unknown_operator, later_opset])
def test_what_the_runtime_lacks_is_one_line(
    copy: Checkpoint, change: Callable[[onnx.ModelProto], None]
) -> None:
    """The digests are those of the graph, as if a later release had exported it."""
    name = "onnx/model.onnx"
    model = onnx.load(copy.path / name, load_external_data=False)
    change(model)
    onnx.save(model, copy.path / name)
    files = {**copy.manifest.files, name: hash_file(copy.path / name)}
    for release, remedy in (("1.15", ""), ("99.1", "; install onnxruntime 99.1 or newer")):
        export = {**(copy.manifest.export or {}), "min_onnxruntime": release}
        manifest = msgspec.structs.replace(copy.manifest, files=files, export=export)
        (copy.path / "zoo.json").write_bytes(encode_manifest(manifest))
        done = warm.zoo("bench", copy.path, "--backend", "onnx")
        assert done.returncode == 3, done.stderr
        line = rf"error: .*{name}: ONNX Runtime [\d.]+ refuses it: (.+)\n"
        message = re.fullmatch(line, done.stderr)
        assert message and message[1].endswith(remedy)
        assert bool(remedy) == ("install onnxruntime" in message[1])


def test_a_directory_with_a_graph_alone(split: Checkpoint) -> None:
    assert load_session(split).backend == "onnx"
    assert load_session(split, "onnx", dtype="float32").dtype == "float32"
    with pytest.raises(UsageError, match="no weights for torch; use --backend onnx"):
        load_session(split, "cpu")
    with pytest.raises(UsageError, match="holds a graph in float32, not float16"):
        load_session(split, dtype="float16")
    with pytest.raises(UsageError, match="the onnx backend does not expose single layers"):
        load_session(split).hidden_states(draw_batch([2]))


def test_threads(split: Checkpoint) -> None:
    batch = draw_batch([30, 3])
    single = load_session(split, threads=1)
    assert single._session.get_session_options().intra_op_num_threads == 1  # type: ignore[attr-defined]
    assert np.abs(single.run(batch)["pooler_output"]).max() > 0


@pytest.mark.parametrize(("value", "threads"), [("3", 3), ("3,2", 3), ("all", 0), ("0", 0)])
def test_threads_of_the_environment(
    split: Checkpoint, monkeypatch: pytest.MonkeyPatch, value: str, threads: int
) -> None:
    """ONNX Runtime itself takes all cores; a number that is given comes first."""
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    options = [
        load_session(split, threads=given)._session.get_session_options()  # type: ignore[attr-defined]
        for given in (None, 1)
    ]
    assert [each.intra_op_num_threads for each in options] == [threads, 1]


def test_cuda_needs_its_own_runtime(split: Checkpoint) -> None:
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        with pytest.raises(UsageError, match="has no CUDA; install onnxruntime-gpu"):
            load_session(split, "onnx", "cuda:0")
        return
    assert load_session(split, "onnx", "cuda:0").device == "cuda:0"


def test_weights_are_exported_once_and_kept(source: Checkpoint) -> None:
    batch = draw_batch([9, 4])
    first = open_session(source, "onnx").run(batch)["pooler_output"]
    (graph,) = (home() / "onnx").glob("*/onnx/model.onnx")
    made = graph.stat()
    second = open_session(source, "onnx").run(batch)["pooler_output"]
    assert graph.stat().st_ino == made.st_ino and graph.stat().st_mtime_ns == made.st_mtime_ns
    assert np.array_equal(first, second)
    expected = load_session(source, "cpu").run(batch)["pooler_output"]
    assert np.abs(first - expected).max() < 1e-5
    assert b"torch" not in _modules(source), "a kept graph runs without torch"
    flip(graph)
    repaired = open_session(source, "onnx").run(batch)["pooler_output"]
    assert np.array_equal(first, repaired) and graph.stat().st_ino != made.st_ino


def _modules(checkpoint: Checkpoint) -> set[bytes]:
    """Return the modules that a process imports to run a checkpoint in ONNX Runtime."""
    code = (
        "import sys; from pathlib import Path;"
        "from zoo.exporting.session import open_session;"
        "from zoo.checkpoint import load_checkpoint;"
        "session = open_session(load_checkpoint(Path(sys.argv[1])), 'onnx');"
        "session.run({'input_ids': [[1, 2]]}); print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(checkpoint.path)], capture_output=True, check=True
    )
    return set(done.stdout.split())


@pytest.mark.long
def test_two_processes_that_export_at_once(source: Checkpoint) -> None:
    code = (
        "import sys; from pathlib import Path; import numpy as np;"
        "from zoo.exporting.session import open_session;"
        "from zoo.checkpoint import load_checkpoint;"
        "session = open_session(load_checkpoint(Path(sys.argv[1])), 'onnx', threads=1);"
        "print(session.run({'input_ids': np.arange(8).reshape(2, 4)})['pooler_output'].sum())"
    )
    command = [sys.executable, "-c", code, str(source.path)]
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ)
        for _ in range(2)
    ]
    results = [process.communicate(timeout=120) for process in running]
    assert [process.returncode for process in running] == [0, 0], results
    assert results[0] == results[1] and results[0][1] == b""
    names = sorted(path.name for path in (home() / "onnx").iterdir())
    assert len(names) == 1, names


def test_a_home_that_cannot_be_written(
    source: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ZOO_HOME", str(tmp_path / "file"))
    with pytest.raises(UsageError, match="set ZOO_HOME to a folder you can write to"):
        open_session(source, "onnx")


def test_a_thread_that_cannot_start_is_not_a_fault_of_the_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is a lack of memory, which the command line reports as such."""

    def start(timer: threading.Timer) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Timer, "start", start)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        create_session(b"")
