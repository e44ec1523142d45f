import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.inference.making import draw_batch, make_checkpoint
from zoo.checkpoint import Checkpoint
from zoo.errors import UsageError
from zoo.inference import available, load_session
from zoo.inference.torch_session import load_model
from zoo.nn.devices import has_bfloat16

CUDA = torch.cuda.is_available()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return make_checkpoint(tmp_path_factory.mktemp("torch") / "model")


def test_outputs_are_those_of_the_module(checkpoint: Checkpoint) -> None:
    session = load_session(checkpoint, "cpu")
    batch = draw_batch([9, 4])
    outputs = session.run(batch)
    with torch.inference_mode():
        returned = load_model(checkpoint)(**{n: torch.from_numpy(a) for n, a in batch.items()})
    assert [
        name for name in returned if not np.array_equal(outputs[name], returned[name].numpy())
    ] == []
    assert list(outputs) == ["last_hidden_state", "pooler_output"] == list(session.outputs)
    assert outputs["last_hidden_state"].shape == (2, 9, 64)
    assert {array.dtype for array in outputs.values()} == {np.dtype(np.float32)}
    assert (session.backend, session.device, session.dtype) == ("cpu", "cpu", "float32")
    assert session.inputs == ("input_ids", "attention_mask", "token_type_ids")


def test_only_the_outputs_asked_for(checkpoint: Checkpoint) -> None:
    session = load_session(checkpoint, "cpu")
    assert list(session.run(draw_batch([3]), ["pooler_output"])) == ["pooler_output"]


def test_inputs_that_are_absent_are_neutral(checkpoint: Checkpoint) -> None:
    session = load_session(checkpoint, "cpu", dtype="float64")
    ids = draw_batch([6, 6])["input_ids"]
    alone = session.run({"input_ids": ids})["last_hidden_state"]
    spelled = session.run(
        {"input_ids": ids, "attention_mask": ids * 0 + 1, "token_type_ids": ids * 0}
    )["last_hidden_state"]
    masked = session.run({"input_ids": ids, "attention_mask": np.tri(2, 6, 4, int)})
    assert np.abs(alone - spelled).max() < 1e-12
    assert np.abs(alone - masked["last_hidden_state"]).max() > 1e-3


def test_padding_changes_nothing(checkpoint: Checkpoint) -> None:
    session = load_session(checkpoint, "cpu", dtype="float64")
    short, padded = draw_batch([7, 5]), draw_batch([7, 5], tokens=23)
    for name in short:
        padded[name][:, :7] = short[name]
    first, second = (session.run(batch)["last_hidden_state"] for batch in (short, padded))
    real = short["attention_mask"] == 1
    assert np.abs(first[real] - second[:, :7][real]).max() < 1e-12


@pytest.mark.parametrize("stored", [torch.float32, torch.float16, torch.bfloat16])
def test_a_cpu_computes_in_float32_whatever_is_stored(tmp_path: Path, stored: torch.dtype) -> None:
    session = load_session(make_checkpoint(tmp_path / "model", dtype=stored), "cpu")
    assert session.dtype == "float32"
    assert session.run(draw_batch([3]))["pooler_output"].dtype == np.float32


def test_float64(checkpoint: Checkpoint) -> None:
    single, double = (
        load_session(checkpoint, "cpu"),
        load_session(checkpoint, "cpu", None, "float64"),
    )
    batch = draw_batch([9, 4])
    a, b = (s.run(batch)["last_hidden_state"] for s in (single, double))
    assert b.dtype == np.float64 and double.dtype == "float64"
    assert 0 < np.abs(a - b).max() < 1e-5


@pytest.mark.parametrize("name", ["float16", "fp16"])
def test_float16_on_a_cpu_is_refused(checkpoint: Checkpoint, name: str) -> None:
    with pytest.raises(UsageError, match=r"use float32.* or bfloat16"):
        load_session(checkpoint, "cpu", dtype=name)


def test_bfloat16_on_a_cpu_needs_hardware_for_it(checkpoint: Checkpoint) -> None:
    if not has_bfloat16():
        with pytest.raises(UsageError, match="neither AMX nor AVX512-BF16"):
            load_session(checkpoint, "cpu", dtype="bfloat16")
        return
    session = load_session(checkpoint, "cpu", dtype="bfloat16")
    batch = draw_batch([9, 4])
    rounded = session.run(batch)["last_hidden_state"]
    exact = load_session(checkpoint, "cpu").run(batch)["last_hidden_state"]
    assert session.dtype == "bfloat16" and rounded.dtype == np.float32
    assert 1e-4 < np.abs(rounded - exact).max() / np.abs(exact).max() < 0.1


def test_has_bfloat16_is_what_the_processor_says() -> None:
    path = Path("/proc/cpuinfo")
    flags = path.read_text().split() if path.is_file() else []
    if "flags" in flags:  # on x86
        assert has_bfloat16() == bool({"avx512_bf16", "amx_bf16"} & set(flags))


def test_threads(checkpoint: Checkpoint) -> None:
    before = torch.get_num_threads()
    try:
        load_session(checkpoint, "cpu", threads=1)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
    with pytest.raises(UsageError, match="0 threads"):
        load_session(checkpoint, "cpu", threads=0)


def test_hidden_states(checkpoint: Checkpoint) -> None:
    session = load_session(checkpoint, "cpu")
    batch = draw_batch([9, 4])
    states = session.hidden_states(batch)
    assert session.layers == len(states) == 3
    assert {state.shape for state in states} == {(2, 9, 64)}
    assert np.array_equal(states[-1], session.run(batch)["last_hidden_state"])
    assert not np.array_equal(states[0], states[1])
    assert len(session.hidden_states(batch)) == 3, "hooks of the first call are gone"


def test_cuda_is_used_or_says_why_not(checkpoint: Checkpoint) -> None:
    if not CUDA:
        for backend, device in (("cuda", None), ("auto", "cuda:0")):
            with pytest.raises(UsageError, match=r"CUDA is not available: torch .*; ") as caught:
                load_session(checkpoint, backend, device)
            assert "--device cpu" in str(caught.value)
        assert available()["cuda"].startswith("not available: torch")
        return
    session = load_session(checkpoint, "cuda")
    assert (session.backend, session.device, session.dtype) == ("cuda", "cuda:0", "float32")
    batch = draw_batch([9, 4])
    there, here = (
        s.run(batch)["pooler_output"] for s in (session, load_session(checkpoint, "cpu"))
    )
    assert np.abs(there - here).max() < 1e-4
    with pytest.raises(UsageError, match="there is no device cuda:99"):
        load_session(checkpoint, "cuda", "cuda:99")


def test_auto_takes_the_best_there_is(checkpoint: Checkpoint) -> None:
    assert load_session(checkpoint).backend == ("cuda" if CUDA else "cpu")
    assert load_session(checkpoint, device="cpu").backend == "cpu"


@pytest.mark.parametrize(
    "options, message",
    [
        ({"backend": "cpp"}, "no backend is called 'cpp'; did you mean"),
        ({"backend": "tpu"}, "no backend is called 'tpu'"),
        ({"dtype": "float31"}, "no dtype is called 'float31'"),
        ({"device": "gpu"}, "no device is called 'gpu'; give cpu, cuda"),
        ({"threads": 0}, "0 threads are not possible"),
        ({"threads": 100_000}, "100000 threads are not possible; give a number up to"),
        ({"device": "meta"}, "the device meta is not supported"),
        ({"backend": "cpu", "device": "cuda:0"}, "--device cuda:0 is not one of the cpu"),
        ({"backend": "cuda", "device": "cpu"}, "--device cpu is not one of the cuda"),
    ],
)
def test_wrong_requests(checkpoint: Checkpoint, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        load_session(checkpoint, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "inputs, message",
    [
        ({}, "the input input_ids is missing"),
        ({"ids": [[1]]}, "no input is called 'ids'; there are input_ids, attention_mask"),
        ({"input_ids": [[1.5]]}, "holds float64, not integers"),
        ({"input_ids": [1, 2]}, r"has the shape \(2,\), not \(batch, tokens\)"),
        ({"input_ids": np.zeros((1, 0), int)}, "has no tokens"),
        ({"input_ids": np.zeros((1, 41), int)}, "has 41 tokens, where the model takes at most 40"),
        ({"input_ids": [[1, 300]]}, "holds 300, where values from 0 to 299 are"),
        ({"input_ids": [[1, -1]]}, "holds -1, where values from 0 to 299 are"),
        ({"input_ids": [[1]], "token_type_ids": [[2]]}, "token_type_ids holds 2"),
        ({"input_ids": [[1, 2]], "attention_mask": [[1]]}, "has 1 tokens, another one 2"),
    ],
)
def test_wrong_inputs(checkpoint: Checkpoint, inputs: dict[str, object], message: str) -> None:
    session = load_session(checkpoint, "cpu")
    with pytest.raises(UsageError, match=message):
        session.run(inputs)  # type: ignore[arg-type]


def test_an_unknown_output(checkpoint: Checkpoint) -> None:
    with pytest.raises(UsageError, match="no output is called 'logits'"):
        load_session(checkpoint, "cpu").run(draw_batch([3]), ["logits"])


def test_arrays_may_be_read_only_or_of_another_integer_type(checkpoint: Checkpoint) -> None:
    session = load_session(checkpoint, "cpu")
    ids = draw_batch([5, 5])["input_ids"]
    expected = session.run({"input_ids": ids})["pooler_output"]
    odd = np.asfortranarray(ids.astype(np.int32))
    odd.flags.writeable = False
    outputs = session.run({"input_ids": odd, "attention_mask": np.ones_like(ids, bool)})
    assert np.array_equal(outputs["pooler_output"], expected)


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = (
        "import sys, zoo.inference.validate_inputs, zoo.families.onnx, zoo.exporting.report;"
        "print(*{'torch', 'numpy', 'onnx', 'onnxruntime'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, check=True
    )
    assert done.stdout.split() == []


def test_every_backend_describes_itself() -> None:
    backends = available()
    assert list(backends) == ["cpu", "cuda", "onnx"]
    assert torch.__version__ in backends["cpu"] and "onnxruntime" in backends["onnx"]
    assert [line for line in backends.values() if "\n" in line] == []
