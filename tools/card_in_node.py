"""Run the JavaScript of an export's model card in Node.js, and compare its result with zoo's.

    python -m tools.card_in_node EXPORT [FOLDER]

Transformers.js is installed by npm into FOLDER, by default a temporary one; a folder that has it is
used as it is. It takes 500 MB.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import zoo
from zoo.hub.upload.plan import PLACEHOLDER

PACKAGE = "@huggingface/transformers"
LOCAL = """\
import {{ env }} from "{package}";
env.localModelPath = "{folder}/";
env.allowRemoteModels = false;
"""
TEXT = "A text."  # of the snippet
TOLERANCE = 2e-3  # of probabilities: quantized graphs run on another version of ONNX Runtime


def main(arguments: list[str]) -> None:
    """Run the snippet."""
    export = Path(arguments[0]).resolve()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(arguments[1] if len(arguments) > 1 else scratch).resolve()
        install(folder)
        found = run(export, folder)
    model = zoo.load(export, backend="onnx")
    if model.checkpoint.head_name != "sequence-classification":
        print(f"it ran, and returned {str(found)[:200]}")
        return
    (ours,) = model.classify([TEXT])
    (theirs,) = found
    print(f"Transformers.js: {theirs}\nzoo:             {ours}")
    is_close = abs(theirs["score"] - ours["score"]) <= TOLERANCE  # Not with NaN.
    if theirs["label"] != ours["label"] or not is_close:
        sys.exit("the results differ")


def install(folder: Path, package: str = PACKAGE) -> None:
    """Install Transformers.js or another package, unless the folder has it."""
    if not (folder / "node_modules" / package).is_dir():
        command = ["npm", "install", "--no-fund", "--no-audit", "--ignore-scripts", package]
        subprocess.run(command, cwd=folder, check=True)


def run(export: Path, folder: Path) -> Any:
    """Return what the snippet logs."""
    (folder / "snippet.mjs").write_text(snippet_of(export), "utf-8")
    command = ["node", "snippet.mjs"]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def snippet_of(export: Path) -> str:
    """Return the snippet of a card, with the export in place of a repository of the Hub."""
    snippet = (export / "README.md").read_text("utf-8").split("```js\n")[1].split("```")[0]
    snippet = snippet.replace(PLACEHOLDER, export.name)
    call = "console.log(await model("
    if call not in snippet:
        sys.exit(f"the card of {export} calls no model")
    logged = f'console.log(JSON.stringify(await model("{TEXT}")));'
    snippet = snippet.replace(f'{call}"{TEXT}"));', logged)
    return LOCAL.format(package=PACKAGE, folder=export.parent) + snippet


if __name__ == "__main__":
    main(sys.argv[1:])
