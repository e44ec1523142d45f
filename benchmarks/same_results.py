"""Results of two commits of the project, compared bit for bit.

    python -m benchmarks.same_results collect OLD/.venv/bin/python old.json
    python -m benchmarks.same_results collect NEW/.venv/bin/python new.json
    python -m benchmarks.same_results compare old.json new.json

``collect`` runs the command line of the interpreter's environment. It makes Hub directories from
the golden files in ``tests/golden``, converts them to the zoo's layout and back, trains the tiny
recipe of every family for 50 steps, and runs every task and the ONNX graph of the trained models.
The record holds digests of tensors and outputs, and all losses.
"""

import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

FAMILIES = ["albert", "bert", "deberta", "distilbert", "electra", "elmo", "gpt", "roberta", "t5"]
TASKS = {
    "embed": FAMILIES,
    "features": FAMILIES,
    "fill-mask": ["albert", "bert", "deberta", "distilbert", "electra", "roberta"],
    "generate": ["gpt"],
    "seq2seq": ["t5"],
}
TEXTS = ["The cat sat on the mat.", "It was a dark and stormy night, and the rain fell.", "Alice"]
STEPS = 50


class Environment:
    """The command line of one installed version."""

    def __init__(self, python: str) -> None:
        self.python = python
        text = self.zoo("pretrain", "--help")
        self.steps = "--max-steps" if "--max-steps" in text else "--steps"
        self.every = "logging_steps=1" if self.steps == "--max-steps" else "log_every=1"
        self.log = "metrics.jsonl" if self.steps == "--max-steps" else "log" + ".jsonl"

    def zoo(self, *arguments: object) -> str:
        """Return the standard output of a command; a failure ends the program."""
        done = self.run(*arguments)
        if done.returncode:
            raise SystemExit(f"{' '.join(done.args)}: {done.returncode}\n{done.stderr}")
        return done.stdout

    def run(self, *arguments: object) -> "subprocess.CompletedProcess[str]":
        """Run a command, and return its result."""
        command = [self.python, "-m", "zoo", *map(str, arguments)]
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


def collect(python: str) -> dict[str, Any]:
    """Return the results of one version."""
    env = Environment(python)
    record: dict[str, Any] = {}
    root = Path(__file__).parents[1] / "tests" / "golden"
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
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


def compare(old: dict[str, Any], new: dict[str, Any]) -> int:
    """Print the results that differ, and return their number."""
    different = [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]
    for key in different:
        print(f"{key}: {json.dumps(old.get(key))[:300]} -> {json.dumps(new.get(key))[:300]}")
    print(f"{len(old)} results, {len(different)} of them differ")
    return len(different)


def main(arguments: list[str]) -> int:
    if len(arguments) == 3 and arguments[0] == "collect":
        Path(arguments[2]).write_text(json.dumps(collect(arguments[1]), indent=1))
        return 0
    if len(arguments) == 3 and arguments[0] == "compare":
        old, new = (json.loads(Path(name).read_text()) for name in arguments[1:])
        return min(compare(old, new), 1)
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
