"""How fast commands answer mistakes: wrong commands, with time, exit code and message.

    python -m tools.wrong_commands

Each runs in a process of its own, in an empty folder with a table, a text and a directory.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks._common import table

# command -> exit code and regular expression of the message
MISTAKES: dict[str, tuple[int, str]] = {
    "convert nothing": (2, "no model is called 'nothing'"),
    "convert ./missing -o out": (2, "./missing does not exist"),
    "convert bert-base-uncased -o taken": (2, "taken exists; give --force"),
    "verify ./missing": (2, "./missing does not exist"),
    "info bert-base-uncase": (2, "did you mean bert-base-uncased"),
    "run embed bert-base-uncase text": (2, "did you mean bert-base-uncased"),
    "run embd bert-base-uncased text": (2, "no task is called 'embd'; did you mean embed"),
    "run embed bert-base-uncased --input missing.txt": (2, "missing.txt"),
    "eval nothing --task text-classification --eval table.tsv": (2, "no model is called"),
    "eval ./taken --task text-classification --eval missing.tsv": (4, "missing.tsv does not exist"),
    "finetune bert --task nothing --train table.tsv": (2, "no task .*is called 'nothing'"),
    "finetune bert --task text-classification --train missing.tsv": (
        4,
        "missing.tsv does not exist",
    ),
    "finetune bert --task text-classification --train table.tsv --set lr=0.1": (
        2,
        "there is no setting lr; did you mean optimizer.learning_rate",
    ),
    "finetune bert --train table.tsv": (
        2,
        "no task is named; these fit bert and table.tsv: --task text-classification",
    ),
    "eval bert-base-uncased --eval text.txt": (2, "no task is named; .*: --task perplexity"),
    "pretrain brt": (2, "no family is called 'brt'.*bert"),
    "pretrain bert --size huge": (2, "bert has no size 'huge'"),
    "pretrain bert --set batch=8": (2, "no setting batch; did you mean batch_size"),
    "pretrain bert -o taken": (2, "taken exists; `zoo pretrain --resume taken`, or another -o"),
    "distill --teacher nothing --student distilbert --train text.txt": (2, "no model is called"),
    "export nothing --onnx -o out": (2, "no model is called 'nothing'"),
    "bench nothing": (2, "no model is called 'nothing'"),
    "distill bert-base-uncased": (2, "give a model as --teacher bert-base-uncased"),
    "run embed bert-base-uncased text --dim 0": (2, "'--dim': 0 is not in the range"),
    "eval bert-base-uncased --task sentence-embedding --eval table.tsv --dim 0": (
        2,
        "'--dim': 0 is not in the range",
    ),
    "run embed bert-base-uncased text -o x.pkl": (2, "x.pkl: the format is unknown.*[.]npy"),
    "run fill-mask bert-base-uncased text -o x.pkl": (2, "end the name in .*[.]parquet$"),
    "run fill-mask bert-base-uncased text -o x.npy": (2, "fill-mask does not compute"),
    "run embed bert-base-uncased text --resume": (2, "--resume is for --output FILE"),
    "run rerank bert-base-uncased text": (2, "give --query TEXT"),
    "run search bert-base-uncased --corpus text.txt": (2, "give a text, --queries FILE"),
    "run search bert-base-uncased question": (2, "give --corpus FILE"),
    "run search bert-base-uncased question --corpus table.tsv --corpus-text body": (
        2,
        "no column 'body'; there are text, label",
    ),
    "run embed bert-base-uncased text.txt": (2, "the name of a file; --input text.txt reads it"),
    "look bert-base-uncased text.txt": (2, "the name of a file"),
    "tokenize bert-base-uncased text.txt": (2, "the name of a file"),
    "run rerank bert-base-uncased a b --query text.txt": (2, "the name of a file"),
    "mine-negatives bert-base-uncased --train table.tsv": (2, "did you mean --input"),
    "finetune --task text-classification --train table.tsv text.txt": (
        2,
        "write --train table.tsv --train text.txt",
    ),
    "run zero-shot bert-base-uncased text": (2, "name each with --label"),
    "run embed -i text.txt": (2, "no option is called -i; did you mean --input"),
    "export bert-base-uncased --quantize": (2, "did you mean --int8"),
    "quantize bert": (2, "use `zoo export REF --int8`"),
    "help": (2, "use `zoo --help`"),
    "list": (2, "use `zoo models`"),
    "eval bert-base-uncased --task perplexity --eval text.txt --report x.pdf": (
        2,
        "end the name in .html",
    ),
    "finetune whisper --train table.tsv": (
        2,
        "no model is called 'whisper'; see `zoo models`",
    ),
    "finetune bert --train table.tsv --text txt": (2, "no column 'txt'; did you mean text"),
}
HEAVY = ("torch", "onnxruntime", "transformers")
PROGRAM = f"""
import atexit, sys
atexit.register(lambda: print(*[name for name in {HEAVY} if name in sys.modules]))
from zoo.cli import main
main(sys.argv[1:])
"""


@dataclass(frozen=True)
class Answer:
    """The answer to a command.

    Attributes:
        code: exit code.
        message: standard error.
        heavy: heavy modules that were imported.
        seconds: wall time of the process.
    """

    code: int
    message: str
    heavy: Sequence[str]
    seconds: float


def prepare(folder: Path) -> None:
    """Write what the commands name."""
    (folder / "table.tsv").write_text("text\tlabel\ngood\tyes\nbad\tno\n")
    (folder / "text.txt").write_text("It was a dark and stormy night.\n")
    (folder / "taken").mkdir()
    (folder / "taken" / "file").touch()


def answer(command: str, folder: Path) -> Answer:
    """Run a command in a folder."""
    argv = [sys.executable, "-c", PROGRAM, *shlex.split(command)]
    home = str(folder / "home")
    environment = {**os.environ, "ZOO_HOME": home, "HF_HOME": home, "HF_HUB_OFFLINE": "1"}
    start = time.perf_counter()
    done = subprocess.run(
        argv, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - start
    return Answer(done.returncode, done.stderr.strip(), done.stdout.split(), seconds)


def problems(command: str, found: Answer) -> list[str]:
    """Return what is wrong with an answer."""
    code, pattern = MISTAKES[command]
    return [
        *([f"exit code {found.code} instead of {code}"] if found.code != code else []),
        *([] if re.search(pattern, found.message) else [f"message: {found.message}"]),
        *(f"imports {name}" for name in found.heavy),
    ]


def main() -> int:
    """Print the table; return 1 if an answer is wrong."""
    rows = []
    wrong = []
    with tempfile.TemporaryDirectory() as name:
        prepare(Path(name))
        for command in MISTAKES:
            found = answer(command, Path(name))
            wrong += [f"zoo {command}: {problem}" for problem in problems(command, found)]
            message = found.message.removeprefix("error: ").replace("|", "\\|")
            rows.append([f"`zoo {command}`", f"{found.seconds:.2f}", str(found.code), message])
    print(table(["command", "s", "exit code", "message"], rows))
    print("\n".join(["", *wrong]))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
