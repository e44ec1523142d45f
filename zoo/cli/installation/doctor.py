"""The command ``zoo doctor``."""

import os
import platform
from typing import Any

import click

from zoo.cli.options import common_options
from zoo.cli.output import fields, result
from zoo.version import package_version

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
@common_options
def command(as_json: bool) -> None:
    """Check the installation: versions, backends, formats, folders and plugins.

    The exit code is 5 if a plugin is broken.
    """
    from zoo.errors import PluginError
    from zoo.inference import available
    from zoo.io.paths import home, store
    from zoo.plugins import all_formats, entry_points_by_name, load

    broken = []
    for name in entry_points_by_name():
        try:
            load(name)
        except PluginError as error:
            broken.append(str(error))
    folder = home()
    while not folder.exists():
        folder = folder.parent
    report: dict[str, Any] = {
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "packages": {name: package_version(name) for name in PACKAGES},
        "backends": available() | _runtimes(),
        "formats": [file_format.name for file_format in all_formats()] if not broken else [],
        "home": str(home()),
        "home_writable": os.access(folder, os.W_OK),
        "store": str(store()),
        "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith("ZOO_")},
        "broken_plugins": broken,
    }
    if not (as_json and broken):
        facts = {"python": report["python"], "machine": report["machine"]}
        for name, version in report["packages"].items():
            facts[name] = version or "not installed"
        for name, state in report["backends"].items():
            facts[f"backend {name}"] = state
        facts["formats"] = ", ".join(report["formats"])
        facts["home"] = report["home"]
        if not report["home_writable"]:
            facts["home"] += " (not writable)"
        facts |= report["environment"]
        facts["plugins"] = f"{len(broken)} broken" if broken else "ok"
        result(report, fields(facts), as_json=as_json)
    if broken:
        raise PluginError(f"{len(broken)} of the plugins are broken: {broken[0]}")


def _runtimes() -> dict[str, str]:
    """Return the built-in export targets that are backends -> how they run here, or why not."""
    from zoo.exporting.targets import BUILT_IN, ONNX, find_target

    states = {}
    for target_name in BUILT_IN:
        if target_name == ONNX:
            continue
        target = find_target(target_name)
        versions = target.versions()  # Importing all packages would take seconds.
        if target.package and target.package not in versions:
            states[target.name] = f"not available; {target.install}"
            continue
        parts = [target.title]
        parts += [f"{name} {version}" for name, version in versions.items()]
        if target.runtime_install() != target.install:
            problem = target.runtime_problem()
            if problem:
                parts.append(f"not run: {problem}; {target.runtime_install()}")
        states[target.name] = ", ".join(parts)
    return states
