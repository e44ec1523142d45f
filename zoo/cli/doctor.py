"""``zoo doctor``."""

import os
import platform
import sys
from importlib import metadata

import click

from zoo.cli.options import json_option
from zoo.cli.output import result

PACKAGES = (
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


@click.command()
@json_option
def command(as_json: bool) -> None:
    """Check the installation: versions, backends, formats, places, plugins.

    Exits with 5 if a plugin is broken.
    """
    from zoo.errors import PluginError
    from zoo.paths import home, store

    found = {
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "packages": {name: _version(name) for name in PACKAGES},
        "backends": _backends(),
        "formats": _formats(),
        "home": str(home()),
        "home_writable": _writable(str(home())),
        "store": str(store()),
        "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith("ZOO_")},
    }
    broken = _broken_plugins()
    lines = [f"python        {found['python']} on {found['machine']} ({sys.executable})"]
    lines += [f"{name:<13} {version or 'not installed'}" for name, version in _packages(found)]
    lines += [f"backend {name:<5} {state}" for name, state in _backends().items()]
    lines += [f"formats       {', '.join(_formats())}"]
    lines += [f"home          {home()}{'' if found['home_writable'] else ' (not writable)'}"]
    lines += [f"plugin        {line}" for line in broken] or ["plugins       all load"]
    result({**found, "broken_plugins": broken}, lines, as_json=as_json and not broken)
    if broken:
        raise PluginError(f"{len(broken)} plugins are broken", "see above or `zoo plugins`")


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _packages(found: dict[str, object]) -> list[tuple[str, str | None]]:
    return [(name, _version(name)) for name in PACKAGES]


def _backends() -> dict[str, str]:
    from zoo.backends import available

    return available()


def _formats() -> list[str]:
    from zoo.plugins import all_formats

    return [each.name for each in all_formats()]


def _broken_plugins() -> list[str]:
    from zoo.errors import PluginError
    from zoo.plugins import installed, load

    lines = []
    for name in installed():
        try:
            load(name)
        except PluginError as error:
            lines.append(str(error))
    return lines


def _writable(path: str) -> bool:
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return os.access(path, os.W_OK)
