"""A plugin-based model zoo and conversion CLI for pretrained language models.

``import zoo`` is cheap: nothing heavy is imported until a model is loaded.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoo.api import Model, load

__version__ = "0.1.0"
__all__ = ["Model", "__version__", "load"]


def __getattr__(name: str) -> Any:
    if name in ("Model", "load"):
        import zoo.api

        return getattr(zoo.api, name)
    raise AttributeError(f"module 'zoo' has no attribute {name!r}")
