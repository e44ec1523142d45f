"""A plugin-based model zoo and conversion CLI for pretrained language models.

``import zoo`` is cheap: nothing heavy is imported until a model is loaded.
"""

import os
from typing import TYPE_CHECKING, Any

from zoo.version import __version__

if TYPE_CHECKING:
    from zoo.api import Model, load
    from zoo.api.evaluation import evaluate
    from zoo.distillation.function import distill

__all__ = ["Model", "__version__", "distill", "evaluate", "load"]

# Libraries send telemetry unless told otherwise, ONNX Runtime from its import on: set before any of
# them is imported, and inherited by every process that is started from here.
for _variable in ("DO_NOT_TRACK", "HF_HUB_DISABLE_TELEMETRY", "ORT_DISABLE_TELEMETRY"):
    os.environ.setdefault(_variable, "1")


def __getattr__(name: str) -> Any:
    if name in ("Model", "load"):
        import zoo.api

        return getattr(zoo.api, name)
    if name == "distill":
        from zoo.distillation.function import distill

        return distill
    if name == "evaluate":
        from zoo.api.evaluation import evaluate

        return evaluate
    raise AttributeError(f"module 'zoo' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
