"""Exceptions and terminal output of library parsers."""

import subprocess
import sys
from pathlib import Path

import pytest

from zoo.errors import UsageError, VerificationError
from zoo.io.untrusted import parsing, rust_parsing

PANIC = """
import os, sys, threading
from tokenizers import AddedToken, Tokenizer, models, normalizers
from zoo.errors import VerificationError
from zoo.io.untrusted import rust_parsing

tokenizer = Tokenizer(models.WordPiece({"?": 0}, unk_token="?"))
tokenizer.normalizer = normalizers.BertNormalizer()
tokenizer.add_tokens([AddedToken("\\0", normalized=True)])  # the empty text, once normalized

def encode(text):
    try:
        with rust_parsing("tokenizer.json", "a tokenizer"):
            tokenizer.encode(text)
    except VerificationError as error:
        print(f"{error}\\n", end="")

if sys.argv[1] == "closed":
    os.close(2)
for _ in range(20):
    threads = [threading.Thread(target=encode, args=("caf\\u00e9 \\u4e2d",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
with rust_parsing("tokenizer.json", "a tokenizer"):
    os.write(2, b"a message\\n") if sys.argv[1] == "open" else None
print("the end", file=sys.stderr)
"""


@pytest.mark.parametrize("state", ["open", "closed"])
def test_panic_becomes_an_error_of_the_file(state: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PANIC.replace("\\\\", "\\"), state], capture_output=True, text=True
    )
    lines = ended.stdout.splitlines()
    assert len(lines) == 80
    assert [
        line
        for line in lines
        if not line.startswith("tokenizer.json: not a tokenizer that can be read: ")
    ] == []
    assert ended.stderr == ("a message\nthe end\n" if state == "open" else "")


def test_system_errors_pass() -> None:
    for error in (UsageError("no"), FileNotFoundError("no"), KeyboardInterrupt()):
        with pytest.raises(type(error)), rust_parsing(Path("x"), "a tokenizer"):
            raise error
    for other in (ValueError("a\nb"), RecursionError(), MemoryError()):
        match = r"^x: not a tokenizer that"
        with pytest.raises(VerificationError, match=match) as raised, parsing("x", "a tokenizer"):
            raise other
        assert "\n" not in str(raised.value)
