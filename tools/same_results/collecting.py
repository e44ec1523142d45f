"""The collection of a record: parts, one after another or in threads."""

import json
import platform
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tools.same_results.context import Context, Names, Results
from tools.same_results.environment import Environment
from tools.same_results.parts import (
    adapters,
    commands,
    conversions,
    distillation,
    embeddings,
    exports,
    families,
    measurements,
    objectives,
    plugins,
    resumed,
    tasks,
)

PARTS: Mapping[str, Callable[[Context], Results]] = {
    "exports": exports.collect,  # the longest are first, so that jobs end at the same time
    "families": families.collect,
    "tasks": tasks.collect,
    "adapters": adapters.collect,
    "distillation": distillation.collect,
    "embeddings": embeddings.collect,
    "conversions": conversions.collect,
    "objectives": objectives.collect,
    "measurements": measurements.collect,
    "plugins": plugins.collect,
    "commands": commands.collect,
}
CHECKS: Mapping[str, Callable[[Names], None]] = {
    "exports": exports.check,
    "families": families.check,
    "tasks": tasks.check,
    "adapters": adapters.check,
    "distillation": distillation.check,
    "embeddings": embeddings.check,
    "objectives": objectives.check,
    "measurements": measurements.check,
}
RESUMED = "resumed"
TRAINED = ("tasks", "adapters", "distillation", "embeddings")  # their runs are resumed
FACTS = """
import importlib.metadata, json, torch, zoo
names = ("torch", "numpy", "tokenizers", "onnx", "onnxruntime", "openvino", "ctranslate2", "click")
versions = {name: importlib.metadata.version(name) for name in names}
cpu = torch.backends.cpu.get_cpu_capability()
print(json.dumps({"file": zoo.__file__, "versions": versions, "cpu": cpu}))
"""


def facts_of(env: Environment) -> dict[str, Any]:
    """Return the directory of the project that an environment has installed, and versions."""
    command = [env.python, "-P", "-c", FACTS]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/")
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


def commit_of(source: Path) -> str:
    """Return the commit of a working tree, with ``+`` if files differ from it."""
    git = ("git", "-C", str(source))
    done = subprocess.run([*git, "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True)
    changed = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True)
    return done.stdout.strip() + ("+" if changed.stdout.strip() else "")


def installed_commit(python: str) -> str:
    """Return the commit of the project that an interpreter has installed."""
    with Environment(python) as env:
        return commit_of(Path(facts_of(env)["file"]).parents[1])


def collect_part(context: Context, name: str, part: Callable[[Context], Results]) -> dict[str, Any]:
    """Return the results of a part."""
    results: dict[str, Any] = {}
    start = time.perf_counter()
    last = start
    try:
        for key, result in part(context):
            assert key not in results, f"{name} has {key} twice"
            results[key] = result
            now = time.perf_counter()
            print(f"{now - last:6.1f} s  {name}: {key}", file=sys.stderr, flush=True)
            last = now
    except Exception as error:  # The other parts go on.
        traceback.print_exc()
        context.failures[name] = context.clean(f"{type(error).__name__}: {error}")
    print(f"{last - start:6.1f} s  {name}, {len(results)} results", file=sys.stderr, flush=True)
    return results


def collect(
    python: str,
    names: Sequence[str],
    *,
    jobs: int,
    runs: Path | None = None,
    resume: Path | None = None,
) -> dict[str, Any]:
    """Return the record of an installed version.

    Args:
        python: interpreter of the environment that has it installed.
        names: names of the parts.
        jobs: number of parts at a time.
        runs: new directory that keeps all runs; by default a temporary one has them.
        resume: such a directory of another version, whose runs are resumed.
    """
    if runs is not None:
        runs.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as temporary:
        work = (runs or Path(temporary)).resolve()
        with Environment(python, work / resumed.HOME) as env:
            facts = facts_of(env)
            source = Path(facts.pop("file")).parents[1]
            context = Context(env, work, source)
            for name in CHECKS.keys() & set(names):
                CHECKS[name](context.names)
            collected = [(name, PARTS[name]) for name in names]
            with ThreadPoolExecutor(jobs) as pool:
                results = pool.map(lambda item: collect_part(context, *item), collected)
                parts = dict(zip(names, results, strict=True))
            if runs is not None and set(TRAINED) <= set(names):
                parts[RESUMED] = collect_part(context, RESUMED, resumed.finished)
            if resume is not None:
                parts[RESUMED] = resume_runs(python, context, resume.resolve())
        machine = {"machine": platform.machine(), "python": platform.python_version()}
        return {
            "commit": commit_of(source),
            "environment": {**machine, **facts},
            "failed": context.failures,
            "parts": parts,
        }


def resume_runs(python: str, context: Context, runs: Path) -> dict[str, Any]:
    """Return the results of runs of another version; its corpora are among them."""
    context.clean.folders.insert(0, ("WORK", runs))
    with Environment(python, runs / resumed.HOME) as env:
        resuming = context.on(env)
        return collect_part(resuming, RESUMED, lambda each: resumed.collect(each, runs))
