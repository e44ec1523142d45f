"""Distillation of a student from one or several teachers, on the trainer of all runs.

The package is callable: ``zoo.distill(...)`` is ``zoo.distill.function.distill``. Importing a
module of it binds the package to the name ``zoo.distill``, which would hide a function.
"""

import sys
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    """The package, which calls ``zoo.distill.function.distill``."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        from zoo.distill.function import distill

        return distill(*args, **options)


sys.modules[__name__].__class__ = _CallablePackage
