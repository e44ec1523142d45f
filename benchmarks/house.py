"""Counts of the source tree: files, lines, the largest folders, and long functions.

    python -m benchmarks.house [ROOT]

``ROOT`` is another checkout of the project, to compare two commits. The exit code is 1 if a folder
has more than ``MOST_FILES``, or if there are more long functions than ``MOST_LONG``: what is left
are lists of options, rules and fields, and outlines.
"""

import ast
import io
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

FOLDERS = ("zoo", "plugins", "converters", "tests", "benchmarks", "docs", "examples")
# library -> (last commit without it, files of our own then, files that use it)
REPLACED = {
    "huggingface_hub, downloads": (
        "c516654",
        ["zoo/hub/cache.py", "zoo/hub/patience.py", "zoo/hub/transfer.py"],
        ["zoo/hub/download.py", "zoo/hub/retry.py"],
    ),
    "torch.utils.tensorboard": (
        "0445c88",
        ["zoo/training/events.py"],
        ["zoo/training/logging/tensorboard.py"],
    ),
    "Jinja2": (
        "366b051",
        ["zoo/report/html.py", "zoo/training/logging/report.py"],
        ["zoo/report/html.py", "zoo/training/logging/report.py"],
    ),
}
MOST_FILES = 15  # of a folder, without its folders
MOST_LONG = 16  # functions over LONG lines
LONG = 30  # number of lines of a function's body, without its docstring


def modules(root: Path, folder: str) -> list[Path]:
    """Return the Python files of a folder."""
    return sorted(path for path in (root / folder).rglob("*.py") if ".venv" not in path.parts)


def long_functions(path: Path) -> Iterator[tuple[str, int]]:
    """Yield name and length of the functions whose bodies are longer than ``LONG`` lines."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            if body and (length := (body[-1].end_lineno or 0) - body[0].lineno + 1) > LONG:
                yield node.name, length


def code_lines(path: Path) -> tuple[int, int]:
    """Return the number of lines with code, and the number of lines with a comment."""
    code: set[int] = set()
    comments: set[int] = set()
    nothing = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    for token in tokenize.generate_tokens(io.StringIO(path.read_text("utf-8")).readline):
        if token.type == tokenize.COMMENT:
            comments.add(token.start[0])
        elif token.type not in nothing:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code), len(comments)


def replaced_lines(root: Path) -> Iterator[str]:
    """Yield the Python lines before and after a library took over; needs the history of git."""
    for library, (commit, before, after) in REPLACED.items():
        shown = [
            subprocess.run(
                ["git", "-C", root, "show", f"{commit}:{path}"], capture_output=True, check=False
            )
            for path in before
        ]
        if any(result.returncode for result in shown):
            yield f"  {library}: {commit} is not in this history"
            continue
        old = sum(result.stdout.count(b"\n") for result in shown)
        new = sum((root / path).read_bytes().count(b"\n") for path in after)
        yield f"  {library}: {old} lines, now {new}"


def main(root: Path) -> int:
    for folder in FOLDERS:
        paths = modules(root, folder)
        counts = [code_lines(path) for path in paths]
        lines = sum(len(path.read_text("utf-8").splitlines()) for path in paths)
        code, comments = sum(c for c, _ in counts), sum(c for _, c in counts)
        print(
            f"{folder:<12}{len(paths):>5} files{lines:>8} lines{code:>8} without blank ones", end=""
        )
        print(f"{comments:>6} with a comment")
    source = [path for folder in FOLDERS[:3] for path in modules(root, folder)]
    full = Counter(path.parent for path in source).most_common(3)
    print("fullest folders:", ", ".join(f"{p.relative_to(root)} {n}" for p, n in full))
    print("own code replaced by libraries:", *replaced_lines(root), sep="\n")
    long = [(path, *item) for path in source for item in long_functions(path)]
    print(f"functions with a body over {LONG} lines: {len(long)}")
    for path, name, length in long:
        print(f"  {path.relative_to(root)} {name} {length}")
    if len(long) > MOST_LONG:
        print(f"more than {MOST_LONG}: split one that has two jobs, or raise MOST_LONG")
    if full[0][1] > MOST_FILES:
        print(f"a folder has more than {MOST_FILES} files: group some in a folder of their own")
    return int(len(long) > MOST_LONG or full[0][1] > MOST_FILES)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
