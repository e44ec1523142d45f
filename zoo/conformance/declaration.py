"""Check of what the declaration of a plugin imports, in a process of its own."""

import json
import os
import subprocess
import sys

from zoo.errors import VerificationError
from zoo.plugins.discovery import entry_points_by_name

LOGGERS = "zoo.training.logging"  # a part of zoo
HEAVY = ("torch", "transformers", "onnxruntime", "onnx", "tensorflow", "jax")
SECONDS = 2.0  # of a declaration, which every command that lists plugins waits for
# imports what a declaration may need first, so that only its own time counts
PROGRAM = """
import importlib, json, sys, time
import zoo.families.causal, zoo.families.encoder, zoo.families.seq2seq
import zoo.families.distillation, zoo.io.tensors.formats, zoo.plugins.hookspecs, zoo.plugins.logger
start = time.perf_counter()
module = importlib.import_module(sys.argv[1])
for name in vars(zoo.plugins.hookspecs):
    if name.startswith("zoo_"):
        list(getattr(module, name, tuple)())
seconds = time.perf_counter() - start
print(json.dumps({"seconds": seconds, "modules": sorted(sys.modules)}))
"""


def check_declaration(module: str) -> float:
    """Check that a plugin is declared quickly and silently, without torch and other plugins."""
    # The module is imported, and its hooks are called.
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, module],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=False,
    )
    if done.returncode:
        last = (done.stderr.splitlines() or [f"exit code {done.returncode}"])[-1]
        raise VerificationError(f"{module} cannot be imported: {last}")
    *printed, last = done.stdout.splitlines()
    if printed:
        raise VerificationError(f"{module} prints {printed[0]!r:.60} when it is declared")
    result = json.loads(last)
    heavy = sorted(set(HEAVY).intersection(result["modules"]))
    if heavy:
        raise VerificationError(f"{module} imports {heavy[0]} when it is declared")
    # The built-in ones are there wherever zoo is, so third parties may derive from them
    plugins = [plugin for rivals in entry_points_by_name().values() for plugin in rivals]
    modules = {plugin.module.partition(":")[0].strip(): plugin for plugin in plugins}
    plugin_of_module = modules.get(module)
    third_party = plugin_of_module is None or not plugin_of_module.built_in
    others = sorted(
        {
            name
            for name, plugin in modules.items()
            if name not in (module, LOGGERS) and not (third_party and plugin.built_in)
        }.intersection(result["modules"])
    )
    if others:
        raise VerificationError(f"{module} imports another plugin, {others[0]}")
    seconds: float = result["seconds"]
    if seconds > SECONDS:
        raise VerificationError(f"{module} takes {seconds:.1f} s to import")
    return seconds
