"""A plugin-based model zoo and conversion CLI for pretrained language models.

``import zoo`` is cheap: nothing heavy is imported until a model is loaded. The functions have the
names, options and errors of the commands: ``zoo.convert`` is ``zoo convert``.
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

from zoo.version import __version__

if TYPE_CHECKING:
    from zoo.api import Model, load
    from zoo.api.conversion import convert, push, retokenize, verify
    from zoo.api.evaluation import evaluate
    from zoo.api.exporting import export
    from zoo.api.finetuning_suites import finetune_suite
    from zoo.api.inspection import look
    from zoo.api.layers import layer_similarity
    from zoo.api.probing import probe
    from zoo.api.running import run
    from zoo.api.surfaces import loss_surface
    from zoo.api.training import distill, finetune, pretrain

__all__ = [
    "Model",
    "__version__",
    "convert",
    "distill",
    "evaluate",
    "export",
    "finetune",
    "finetune_suite",
    "layer_similarity",
    "load",
    "look",
    "loss_surface",
    "pretrain",
    "probe",
    "push",
    "retokenize",
    "run",
    "verify",
]

# Libraries send telemetry unless told otherwise, ONNX Runtime from its import on: set before any of
# them is imported, and inherited by every process that is started from here.
for _variable in ("DO_NOT_TRACK", "HF_HUB_DISABLE_TELEMETRY", "ORT_DISABLE_TELEMETRY"):
    os.environ.setdefault(_variable, "1")

# Public name -> the module that defines it, which is imported when the name is used.
_MODULES = {
    "Model": "zoo.api",
    "convert": "zoo.api.conversion",
    "distill": "zoo.api.training",
    "evaluate": "zoo.api.evaluation",
    "export": "zoo.api.exporting",
    "finetune": "zoo.api.training",
    "finetune_suite": "zoo.api.finetuning_suites",
    "layer_similarity": "zoo.api.layers",
    "load": "zoo.api",
    "look": "zoo.api.inspection",
    "loss_surface": "zoo.api.surfaces",
    "pretrain": "zoo.api.training",
    "probe": "zoo.api.probing",
    "push": "zoo.api.conversion",
    "retokenize": "zoo.api.conversion",
    "run": "zoo.api.running",
    "verify": "zoo.api.conversion",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'zoo' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
