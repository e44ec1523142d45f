"""``zoo doctor``."""

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import click

from zoo.cli.options import json_option
from zoo.cli.output import result

PACKAGES = (
    "plm-zoo",
    "torch",
    "numpy",
    "safetensors",
    "tokenizers",
    "huggingface-hub",
    "onnx",
    "onnxscript",
    "onnxruntime",
    "transformers",
)


@click.command(epilog="Example: zoo doctor")
@json_option
def command(as_json: bool) -> None:
    """Check the installation: versions, backends, formats, places, plugins.

    Exits with 5 if a plugin is broken.
    """
    from zoo.errors import PluginError
    from zoo.inference import available
    from zoo.io.paths import home, store
    from zoo.plugins import all_formats

    broken = _broken_plugins()
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "packages": {name: _version(name) for name in PACKAGES},
        "backends": available(),
        "formats": [each.name for each in all_formats()] if not broken else [],
        "home": str(home()),
        "home_writable": _writable(home()),
        "store": str(store()),
        "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith("ZOO_")},
        "broken_plugins": broken,
    }
    if not (as_json and broken):
        result(found, _lines(found), as_json=as_json)
    if broken:
        raise PluginError(f"{len(broken)} of the plugins are broken: {broken[0]}")


def _lines(found: dict[str, Any]) -> list[str]:
    named = {
        "python": found["python"],
        "machine": found["machine"],
        **{name: version or "not installed" for name, version in found["packages"].items()},
        **{f"backend {name}": state for name, state in found["backends"].items()},
        "formats": ", ".join(found["formats"]),
        "home": found["home"] + ("" if found["home_writable"] else " (not writable)"),
        **found["environment"],
        "plugins": f"{len(found['broken_plugins'])} broken" if found["broken_plugins"] else "ok",
    }
    width = max(map(len, named))
    return [f"{name:<{width}}  {value}" for name, value in named.items()]


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _broken_plugins() -> list[str]:
    from zoo.errors import PluginError
    from zoo.plugins import entry_points_by_name, load

    lines = []
    for name in entry_points_by_name():
        try:
            load(name)
        except PluginError as error:
            lines.append(str(error))
    return lines


def _writable(path: Path) -> bool:
    while not path.exists():
        path = path.parent
    return os.access(path, os.W_OK)
