"""The plugins of ``examples/plugins``: families, and all that a plugin brings besides a family."""

import shutil
import tomllib
from pathlib import Path
from typing import Any

from tools.same_results.context import (
    CPU,
    EVERY_STEP,
    SHORT,
    Context,
    Results,
    small_settings,
)
from tools.same_results.environment import Environment
from tools.same_results.parts.families import files_digest, outputs
from tools.same_results.records import (
    digest,
    digest_of,
    layout,
    require_cases,
    rounded,
    run_record,
    sorted_keys,
    tensors_digest,
)

# plugin -> objective of its own, if it has one
FAMILIES = {
    "rembert": "masked-lm",
}
TOOLBOX = "toolbox"


def install(project: Path, site: Path) -> None:
    """Write the metadata of a project's distribution, as pip does, without its files."""
    facts = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    name = facts["name"].replace("-", "_")
    folder = site / f"{name}-{facts['version']}.dist-info"
    folder.mkdir(parents=True)
    metadata = ("Metadata-Version: 2.1", f"Name: {facts['name']}", f"Version: {facts['version']}")
    (folder / "METADATA").write_text("\n".join(metadata) + "\n")
    (folder / "RECORD").write_text("")
    lines = []
    for group, entries in facts["entry-points"].items():
        lines.append(f"[{group}]")
        lines += [f"{entry} = {target}" for entry, target in entries.items()]
    (folder / "entry_points.txt").write_text("\n".join(lines) + "\n")


def collect(context: Context) -> Results:
    """Yield the results of all plugins together in one environment."""
    projects = sorted((context.source / "examples" / "plugins").iterdir())
    require_cases("the plugin", (project.name for project in projects), (*FAMILIES, TOOLBOX))
    site = context.work / "site"
    for project in projects:
        install(project, site)
    home = context.work / "home-of-plugins"
    with Environment(context.env.python, home, [site, *projects]) as env:
        with_plugins = context.on(env)
        listed = env.json("plugins", "list")
        yield "list", digest_of(sorted_keys(listed))
        for project in projects:
            facts = env.json("plugins", "info", project.name)["plugins"][0]
            yield f"info {project.name}", {name: facts[name] for name in ("health", "provides")}
        families = env.json("families")["families"]
        for family in FAMILIES:
            yield from family_results(with_plugins, family, families[family])
        yield from toolbox(with_plugins)


def family_results(context: Context, family: str, facts: dict[str, Any]) -> Results:
    """Yield the results of a family."""
    yield f"facts {family}", facts
    yield f"pretrain {family}", run_record(context.pretrained(family), context.clean)
    yield f"hub {family}", tensors_digest(context.hub(family))
    yield f"hub files {family}", files_digest(context.hub(family))
    yield from outputs(context, family, facts["tasks"])
    out = context.work / "plugins" / f"{family}-onnx"
    key = f"export {family}"
    refusal = context.attempt("export", context.model(family), "-o", out)
    yield key, refusal or digest_of(layout(out, context.clean))


def toolbox(context: Context) -> Results:
    """Yield the results of a plugin with a part of each other kind."""
    folder = context.work / "plugins"
    bert = context.model("bert")
    gpt = context.model("gpt")
    texts = context.files["texts"]
    small = (*small_settings(), *EVERY_STEP, *SHORT)
    key = "objective and logger"
    run = folder / "word-order"
    words: tuple[object, ...] = (
        "--objective",
        "masked-lm+word-order",
        "--report-to",
        "csv",
        "--train",
        texts,
    )
    yield key, context.trained(run, "pretrain", "bert", *words, *small)
    yield "csv", digest((run / "metrics.csv").read_text())
    key = "recipe"
    words = ("--teacher", bert, "--student", "bert", "--recipe", "soft-labels", "--train", texts)
    settings = small_settings(without="vocab_size")
    more = ("--no-score", "--max-steps", 2, *CPU, *settings)
    yield key, context.trained(folder / "soft-labels", "distill", *words, *more)
    yield "command", context.output("tokens", bert, "the good day")
    words = ("next-token", gpt, "Alice was", "the", "--top-k", 3)
    yield "task of zoo run", context.output("run", *words)
    yield from counts(context, folder)
    key = "target"
    out = folder / "program"
    backbone = context.backbone("bert")
    result = context.json("export", backbone, "--to", "program", "-o", out)
    yield key, result if "exit code" in result else digest_of(layout(out, context.clean))
    words = ("embed", out, "the good day")
    yield "run of the target", context.output("run", *words)
    yield "format", npz(context, folder)
    for command in ("", "run", "export", "finetune", "eval", "pretrain"):
        words = (command, "--help") if command else ("--help",)
        key = f"help {command}".strip()
        yield key, context.output(*words)


def counts(context: Context, folder: Path) -> Results:
    """Yield the results of a task with all parts."""
    table = folder / "counts.tsv"
    lines = [f"{'dog ' * (number % 4)}in garden {number}\t{number % 4}\n" for number in range(24)]
    table.write_text("text\tlabel\n" + "".join(lines))
    run = folder / "counts"
    key = "task of zoo finetune"
    words: tuple[object, ...] = (
        "finetune",
        context.model("bert"),
        "--task",
        "count-regression",
        "--train",
        table,
    )
    yield key, context.trained(run, *words, *EVERY_STEP, *SHORT, "--set", "batch_size=8")
    model = run / "model"
    key = "task of zoo eval"
    result = context.json("eval", model, "--task", "count", "--eval", table, "--no-record")
    yield key, rounded(result.get("metrics", result))
    key = "run of the task"
    yield key, context.output("run", "count-regression", model, "dog dog", "dog")
    key = "export of the task"
    out = folder / "counts-onnx"
    words = ("export", model, "--onnx", "--int8", "--eval", table, "--max-drop", 1, "-o", out)
    result = context.json(*words)
    yield key, digest_of(sorted_keys(result))


def npz(context: Context, folder: Path) -> Any:
    """Return a digest of a model that is read in a plugin's format."""
    import numpy as np
    from safetensors.numpy import load_file

    hub = folder / "hub"
    shutil.copytree(context.hub("bert"), hub)
    weights: dict[str, Any] = load_file(hub / "model.safetensors")
    (hub / "model.safetensors").unlink()
    np.savez(hub / "model.npz", **weights)
    out = folder / "from-npz"
    return context.attempt("convert", hub, "-o", out) or tensors_digest(out)
