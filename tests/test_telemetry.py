"""Telemetry of the libraries that zoo uses is off."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN = """
import {first}
import onnxruntime
from onnx import TensorProto, helper

values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", values[:1], values[1:])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
"""
VARIABLES = ("DO_NOT_TRACK", "HF_HUB_DISABLE_TELEMETRY", "ORT_DISABLE_TELEMETRY")


def files_left(home: Path, first: str) -> list[Path]:
    """Run a session of ONNX Runtime with an empty home; return the created files."""
    home.mkdir()
    environment = {k: v for k, v in os.environ.items() if k not in {*VARIABLES, "XDG_CACHE_HOME"}}
    environment["HOME"] = str(home)
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    subprocess.run([sys.executable, "-c", RUN.format(first=first)], env=environment, check=True)
    return [path for path in home.rglob("*") if path.is_file()]


def test_onnx_runtime_keeps_no_record_of_its_use(tmp_path: Path) -> None:
    if not files_left(tmp_path / "without", "os"):
        pytest.skip("this build of ONNX Runtime has no telemetry")
    assert files_left(tmp_path / "with", "zoo") == []


def test_the_hub_client_sends_no_list_of_installed_libraries() -> None:
    code = "import zoo; from huggingface_hub.constants import HF_HUB_DISABLE_TELEMETRY as off; "
    code += "print(off)"
    environment = {key: value for key, value in os.environ.items() if key not in VARIABLES}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "True\n"


def test_a_choice_of_the_user_stays() -> None:
    code = "import os, zoo; print(os.environ['ORT_DISABLE_TELEMETRY'])"
    environment = {**os.environ, "ORT_DISABLE_TELEMETRY": "0"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "0\n"
