"""Results of two commits of the project, compared bit for bit.

    python -m tools.same_results collect OLD/.venv/bin/python old.json --runs RUNS
    python -m tools.same_results collect NEW/.venv/bin/python new.json --resume RUNS
    python -m tools.same_results compare old.json new.json

``collect`` runs the command line of the interpreter's environment. It makes Hub directories from
the golden files in ``tests/golden``, converts them to the zoo's layout and back, trains the tiny
recipe of every family for 50 steps, and runs every task and the ONNX graph of the trained models.
Then it fine-tunes, evaluates and exports a model for every task, distils with every loss, and runs
every evaluation. The record holds digests of tensors and outputs, and all losses and metrics.

``--runs`` keeps some runs, and ``--resume`` resumes them from their first checkpoint: a run that an
older version began ends as it would have. ``--only tasks`` leaves conversions and recipes out.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from tools import _same_results_tasks as tasks

FAMILIES = [
    "albert",
    "bert",
    "deberta",
    "distilbert",
    "electra",
    "elmo",
    "gpt",
    "modernbert",
    "roberta",
    "t5",
]
TASKS = {
    "embed": FAMILIES,
    "features": FAMILIES,
    "fill-mask": ["albert", "bert", "deberta", "distilbert", "electra", "modernbert", "roberta"],
    "generate": ["gpt"],
    "seq2seq": ["t5"],
}
TEXTS = ["The cat sat on the mat.", "It was a dark and stormy night, and the rain fell.", "Alice"]
STEPS = 50
TRAINING = ("pretrain", "finetune", "distill")
HOME = "home"  # $ZOO_HOME of the runs that are kept


class Environment:
    """The command line of one installed version."""

    def __init__(self, python: str) -> None:
        self.python = os.path.abspath(python)
        self.kept: list[str] = []
        text = self.zoo("pretrain", "--help")
        self.steps = "--max-steps" if "--max-steps" in text else "--steps"
        self.every = "logging_steps=1" if self.steps == "--max-steps" else "log_every=1"
        if "--keep-optimizer" in text:  # so that kept runs resume from their first checkpoint
            self.kept = ["--keep-optimizer"]
        self.log = "metrics.jsonl" if self.steps == "--max-steps" else "log" + ".jsonl"

    def zoo(self, *arguments: object) -> str:
        """Return the standard output of a command; a failure ends the program."""
        done = self.run(*arguments)
        if done.returncode:
            raise SystemExit(f"{' '.join(done.args)}: {done.returncode}\n{done.stderr}")
        return done.stdout

    def run(self, *arguments: object) -> "subprocess.CompletedProcess[str]":
        """Run a command, and return its result."""
        begins = arguments[0] in TRAINING and "--resume" not in arguments
        more = self.kept if begins else []
        command = [self.python, "-m", "zoo", *map(str, arguments), *more]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")


def tensors_digest(path: Path) -> str:
    """Return a digest of the names, dtypes, shapes and bytes of all tensors under a directory."""
    digest = hashlib.sha256()
    for file in sorted(path.glob("*.safetensors")):
        for name, tensor in sorted(load_file(file).items()):
            digest.update(f"{name} {tensor.dtype} {tensor.shape}".encode() + tensor.tobytes())
    for file in sorted(path.glob("*.hdf5")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def hub_directory(golden: Path, folder: Path) -> Path:
    """Write weights and configuration of a golden file as a Hub directory."""
    from safetensors import safe_open

    folder.mkdir(parents=True)
    with safe_open(golden, "np") as file:
        facts = file.metadata()
        names = [name for name in file.keys() if name.startswith("weights/")]  # noqa: SIM118
        weights = {n.removeprefix("weights/"): file.get_tensor(n) for n in names}
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(facts["config"])
    return folder


def converted(env: Environment, golden: Path, folder: Path) -> dict[str, str]:
    """Return digests of a golden file's model after conversion, and after export to the Hub."""
    source = hub_directory(golden, folder / "source")
    done = env.run("convert", source, "-o", folder / "ours", "--head", _head(golden))
    if done.returncode:  # for example an untied head whose configuration declares it tied
        return {"exit code": str(done.returncode)}
    env.zoo("convert", folder / "ours", "--to", "hub", "-o", folder / "hub")
    config = json.loads((folder / "hub" / "config.json").read_text())
    return {
        "zoo": tensors_digest(folder / "ours"),
        "hub": tensors_digest(folder / "hub"),
        "config": json.dumps(config, sort_keys=True),
    }


def _head(golden: Path) -> str:
    from safetensors import safe_open

    with safe_open(golden, "np") as file:
        return str(file.metadata()["head"])


def trained(env: Environment, family: str, run: Path) -> dict[str, Any]:
    """Return all losses of a run of the tiny recipe, and a digest of its weights."""
    options = (env.steps, STEPS, "--set", env.every, "--offline", "--device", "cpu")
    env.zoo("pretrain", family, *options, "-o", run)
    lines = [json.loads(line) for line in (run / env.log).read_text().splitlines()]
    losses = [
        {k: v for k, v in line.items() if isinstance(v, float) or k == "step"} for line in lines
    ]
    return {"losses": losses, "weights": tensors_digest(run / "model")}


def graphs(folder: Path) -> list[Path]:
    """Return the ONNX graphs of an export."""
    return sorted(folder.rglob("*.onnx"))


def graph_outputs(path: Path) -> str:
    """Return a digest of a graph's outputs for fixed inputs, or of its inputs with a cache."""
    import onnxruntime as ort

    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    inputs = session.get_inputs()
    if any(item.type != "tensor(int64)" for item in inputs):
        return " ".join(f"{i.name}{i.shape}" for i in inputs)  # the tasks' texts are compared
    rng = np.random.default_rng(0)
    feeds = {}
    for item in inputs:
        shape = [size if isinstance(size, int) else 2 + k for k, size in enumerate(item.shape)]
        ones = "mask" in item.name
        feeds[item.name] = np.ones(shape, np.int64) if ones else rng.integers(0, 2, shape)
    digest = hashlib.sha256()
    for output in session.run(None, feeds):
        digest.update(output.tobytes())
    return digest.hexdigest()


def outputs(env: Environment, family: str, model: Path, bare: Path) -> dict[str, str]:
    """Return digests of the output of every task for a model, in torch and in ONNX Runtime.

    Args:
        env: the installed version.
        family: family of the model.
        model: directory of the trained model.
        bare: directory of its backbone without a head, for embedding tasks.
    """
    results = {}
    for task, families in TASKS.items():
        if family not in families:
            continue
        chosen, texts = bare if task in ("embed", "features") else model, TEXTS
        if task == "fill-mask":
            mask = json.loads((model / "config.json").read_text())["tokenizer"]["special"]["mask"]
            texts = [f"The cat sat on {mask} mat.", f"It was a {mask} night."]
        for backend in ("cpu", "onnx"):
            done = env.run("run", task, chosen, "--backend", backend, *texts)
            result = hashlib.sha256(done.stdout.encode()).hexdigest()
            results[f"{task} {backend}"] = result if not done.returncode else "refused"
    return results


def exported(env: Environment, model: Path, folder: Path) -> dict[str, str]:
    """Return digests of the outputs of the ONNX graphs of a model."""
    env.zoo("export", model, "--onnx", "-o", folder)
    return {path.name: graph_outputs(path) for path in graphs(folder)}


def collect(python: str, *, only_tasks: bool, keep: Path | None, resume: Path | None) -> Any:
    """Return the results of one version.

    Args:
        python: interpreter of the environment that has it installed.
        only_tasks: leave conversions and recipes of all families out.
        keep: directory to which some runs are copied.
        resume: such a directory of another version, whose runs are resumed.
    """
    env = Environment(python)
    record: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        os.environ["ZOO_HOME"] = str(work / "home")
        if resume is not None:  # the corpora of its runs
            shutil.copytree(resume / HOME, work / "home")
        if not only_tasks:
            record |= collect_families(env, work / "families")
        record |= collect_tasks(env, work / "tasks", keep, resume)
    return record


def collect_families(env: Environment, work: Path) -> dict[str, Any]:
    """Return the results of conversions, tiny recipes, tasks and graphs of all families."""
    record: dict[str, Any] = {}
    root = Path(__file__).parents[1] / "tests" / "golden"
    for golden in sorted(root.glob("*/*.safetensors")):
        if golden.parent.name != "elmo":
            key = f"convert {golden.parent.name}/{golden.stem}"
            record[key] = converted(env, golden, work / key)
    for family in FAMILIES:
        run = work / family
        record[f"pretrain {family}"] = trained(env, family, run)
        hub, bare = work / f"{family}-hub", work / f"{family}-bare"
        env.zoo("convert", run / "model", "--to", "hub", "-o", hub)
        env.zoo("convert", hub, "--head", "none", "-o", bare)
        record[f"to hub {family}"] = tensors_digest(hub)
        record[f"bare {family}"] = tensors_digest(bare)
        record[f"tasks {family}"] = outputs(env, family, run / "model", bare)
        for path in (run / "model", bare):
            record[f"export {path.name} {family}"] = exported(env, path, work / f"{path}-onnx")
        print(family, file=sys.stderr)
    return record


def collect_tasks(
    env: Environment, work: Path, keep: Path | None, resume: Path | None
) -> dict[str, Any]:
    """Return the results of fine-tuning, distillation, evaluations and resumed runs."""
    work.mkdir()
    texts = work / "texts"
    texts.mkdir()
    for name in ("alice", "emerald_city"):
        sample = Path(__file__).parents[1] / "zoo" / "data" / "sample" / f"{name}.txt"
        (texts / f"{name}.txt").write_text(sample.read_text("utf-8")[2000:30_000], "utf-8")
    text = texts / "alice.txt"
    models = {}
    for family in ("bert", "electra", "gpt", "t5"):
        size = ("--set", "global_batch_tokens=512", "--set", "vocab_size=400")
        save = ("--set", "save_steps=4", "--set", "seq_len_warmup=null", "--set", "seq_len=64")
        env.zoo("pretrain", family, *size, *save, *tasks.SMALL, "-o", work / family)
        models[family] = work / family / "model"
    files = tasks.write_tables(work / "tables") | {"text": texts}
    record: dict[str, Any] = {}
    for results in (
        tasks.finetuned(env.zoo, models, files, work, tensors_digest),
        tasks.task_outputs(env.zoo, work, models),
        tasks.evaluations(env.zoo, models, text),
        tasks.distilled(env.zoo, models, files, work, tensors_digest),
        tasks.resumed(env.zoo, resume, files, work, tensors_digest) if resume else (),
    ):
        for key, result in results:
            record[key] = result
            print(key, file=sys.stderr)
    if keep is not None:
        shutil.copytree(os.environ["ZOO_HOME"], keep / HOME)
        for name in ("bert", "text-classification", "seq2seq", "distill-kl"):
            shutil.copytree(work / name, keep / name, symlinks=True)
            record[f"resume {name}"] = tasks.record_of(work / name, tensors_digest)
    return record


def compare(old: dict[str, Any], new: dict[str, Any]) -> int:
    """Print the results that differ, and return their number."""
    different = [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]
    for key in different:
        print(f"{key}: {json.dumps(old.get(key))[:300]} -> {json.dumps(new.get(key))[:300]}")
    print(f"{len(old)} results, {len(different)} of them differ")
    return len(different)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    collecting = commands.add_parser("collect")
    collecting.add_argument("python")
    collecting.add_argument("output", type=Path)
    collecting.add_argument("--only", choices=["tasks"])
    collecting.add_argument("--runs", type=Path)
    collecting.add_argument("--resume", type=Path)
    comparing = commands.add_parser("compare")
    comparing.add_argument("files", type=Path, nargs=2)
    options = parser.parse_args()
    if options.command == "compare":
        old, new = (json.loads(file.read_text()) for file in options.files)
        return min(compare(old, new), 1)
    result = collect(
        options.python,
        only_tasks=options.only == "tasks",
        keep=options.runs,
        resume=options.resume,
    )
    options.output.write_text(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
