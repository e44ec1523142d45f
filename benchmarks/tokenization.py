"""Tokenizers of every family on real text, compared with transformers and sentencepiece.

    python -m benchmarks.tokenization --corpus FOLDER [--lines 10000] [TYPE=FILE[,FILE...] ...]

FOLDER holds text files, of which the first non-empty lines are used. TYPE is a ``model_type`` of
the Hub, and FILEs are its vocabulary files, whose names must end like those of the Hub. Without
any, vocabularies are trained on the following lines of the corpus, one for each type below. The
cases of tests/fixtures/torture.txt are added. Ids of texts and pairs, and decoded text, must equal
those of transformers or, if transformers deviates from a model file, the ids must equal those of
sentencepiece. Splits of equal probability may differ. Two behaviours of older releases of
transformers and of the original code, which version 5 does not have, are reproduced and counted: a
mask token includes the space before it, and pairs have one separator between the texts.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks._common import machine, versions
from benchmarks.wordpiece import read
from zoo.plugins import family_of_model_type
from zoo.tokenizers import SourceFiles

TORTURE = Path(__file__).parents[1] / "tests" / "fixtures" / "torture.txt"
NAMES = {"vocab.txt": "vocab.txt", "vocab.json": "vocab.json", "merges.txt": "merges.txt"}
NAMES |= {"tokenizer.json": "tokenizer.json", "tokenizer_config.json": "tokenizer_config.json"}
MODELS = {"xlm-roberta": "sentencepiece.bpe.model", "camembert": "sentencepiece.bpe.model"}
MODELS |= {"deberta-v2": "spm.model"}
ANGLES = ["<s>", "<pad>", "</s>", "<unk>"]
SQUARES = ["[UNK]", "[CLS]", "[SEP]", "[PAD]"]
BYTE_LEVEL = {
    "roberta": [*ANGLES, "<mask>"],
    "gpt2": ["<|endoftext|>"],
    "deberta": [*SQUARES, "[MASK]"],
}
PIECES: dict[str, dict[str, Any]] = {
    "xlm-roberta": {},
    "camembert": {},
    "t5": {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1},
    "albert": {
        "pad_id": 0,
        "unk_id": 1,
        "bos_id": -1,
        "eos_id": -1,
        "control_symbols": "[CLS],[SEP],[MASK]",
    },
    "deberta-v2": {
        "pad_id": 0,
        "bos_id": 1,
        "eos_id": 2,
        "unk_id": 3,
        "pad_piece": "[PAD]",
        "bos_piece": "[CLS]",
        "eos_piece": "[SEP]",
        "unk_piece": "[UNK]",
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", type=Path, required=True, help="folder of .txt files")
    parser.add_argument("--lines", type=int, default=10_000)
    parser.add_argument("vocabularies", nargs="*", help="TYPE=FILE[,FILE...]")
    options = parser.parse_args()
    # vocabularies are trained on other lines than those that are compared
    total = options.lines if options.vocabularies else 2 * options.lines
    lines = read(options.corpus, total)
    texts = [*lines[: options.lines], *TORTURE.read_bytes().decode("utf-8").split("\n")]
    print(f"{machine()}. {versions('tokenizers', 'transformers', 'sentencepiece')}.\n")
    with tempfile.TemporaryDirectory() as scratch:
        for number, named in enumerate(options.vocabularies):
            model_type, _, files = named.partition("=")
            directory = Path(scratch) / str(number)
            compare(model_type, placed(model_type, files.split(","), directory), texts)
        if not options.vocabularies:
            for model_type, train in trainers(lines[options.lines :]).items():
                directory = Path(scratch) / model_type
                directory.mkdir()
                train(directory)
                compare(model_type, directory, texts)


def placed(model_type: str, files: Sequence[str], directory: Path) -> Path:
    """Copy files to a directory under the names of the Hub."""
    directory.mkdir()
    names = {**NAMES, ".model": MODELS.get(model_type, "spiece.model")}
    for file in files:
        targets = [name for end, name in names.items() if file.endswith(end)]
        if not targets:
            sys.exit(f"{file}: its name ends in none of {', '.join(names)}")
        shutil.copy(file, directory / targets[0])
    return directory


def trainers(lines: Sequence[str]) -> dict[str, Callable[[Path], None]]:
    made: dict[str, Callable[[Path], None]] = {}
    for name, specials in BYTE_LEVEL.items():
        made[name] = lambda directory, specials=specials: bytes_into(directory, specials, lines)  # type: ignore[misc]
    for name, options in PIECES.items():
        file = MODELS.get(name, "spiece.model")
        made[name] = lambda directory, file=file, options=options: pieces_into(  # type: ignore[misc]
            directory / file, options, lines
        )
    return made


def bytes_into(directory: Path, specials: list[str], lines: Sequence[str]) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    options: Any = {"vocab_size": 8000, "initial_alphabet": alphabet, "show_progress": False}
    trainer = trainers.BpeTrainer(special_tokens=specials, **options)
    tokenizer.train_from_iterator(lines, trainer)
    tokenizer.model.save(str(directory))


def pieces_into(file: Path, options: dict[str, Any], lines: Sequence[str]) -> None:
    import sentencepiece

    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_prefix=str(file.with_suffix("")),
        vocab_size=8000,
        minloglevel=2,
        **options,
    )


def compare(model_type: str, directory: Path, texts: Sequence[str]) -> None:
    from transformers import AutoTokenizer

    family = family_of_model_type(model_type)
    if family is None:
        sys.exit(f"no family answers for {model_type}")
    if not (directory / "config.json").exists():
        (directory / "config.json").write_text(json.dumps({"model_type": model_type}))
    ours = family.tokenizer(SourceFiles(directory))
    peer = AutoTokenizer.from_pretrained(directory)
    model = next(iter(directory.glob("*.model")), None)
    original = Original(model, model_type) if model else None
    counts: Counter[str] = Counter()
    pairs = list(zip(texts[::2], texts[1::2], strict=False))
    for kind, some in (("texts", texts), ("pairs", pairs)):
        theirs = peer(list(some), return_offsets_mapping=True)
        for text, mine, ids, offsets in zip(
            some,
            ours.encode_batch(list(some)),
            theirs["input_ids"],
            theirs["offset_mapping"],
            strict=True,
        ):
            if mine.ids == ids:
                counts[f"{kind} equal to transformers'"] += 1
                counts[f"{kind} with equal offsets"] += mine.offsets == offsets
            elif original is not None:
                if isinstance(text, str):
                    counts[original.verdict(text, ours)] += 1
            elif peer.mask_token and peer.mask_token in "".join(text):
                counts[f"{kind} in which the mask takes the space before it along"] += 1
            elif isinstance(text, tuple) and mine.ids == undoubled(ids, peer.sep_token_id):
                counts["pairs with one separator where transformers has two"] += 1
            else:
                sys.exit(f"{model_type}: the ids differ: {text!r}")
            if ours.decode(mine.ids) != peer.decode(mine.ids, skip_special_tokens=True):
                counts[f"{kind} decoded in another way"] += 1
    report = "; ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    print(f"{model_type}: {len(texts):,} texts, {len(pairs):,} pairs: {report}", flush=True)


def undoubled(ids: list[int], separator: int | None) -> list[int]:
    """Remove the second of two adjacent separators."""
    twice = (number for number, pair in enumerate(pairwise(ids)) if set(pair) == {separator})
    place = next(twice, None)
    return ids if place is None else ids[:place] + ids[place + 1 :]


class Original:
    """A sentencepiece model, for texts on which transformers deviates from it."""

    def __init__(self, file: Path, model_type: str) -> None:
        import sentencepiece

        self.model = sentencepiece.SentencePieceProcessor(model_file=str(file))
        self.model_type = model_type

    def verdict(self, text: str, ours: Any) -> str:
        """Return the result of the comparison of a text's tokens with sentencepiece."""
        tokens = ours.encode(text, add_special_tokens=False).tokens
        wanted = self.model.encode(text, out_type=str)
        known = ours.get_vocab()
        numbers = [self.model.piece_to_id(token) for token in tokens]
        same = [known.get(token) for token in tokens] == [known.get(token) for token in wanted]
        if same or numbers == self.model.encode(text, out_type=int):
            return "texts equal to sentencepiece's alone"
        scores = [
            sum(map(self.model.get_score, ids))
            for ids in (numbers, self.model.encode(text, out_type=int))
        ]
        if len(tokens) == len(wanted) and abs(scores[0] - scores[1]) < 1e-4 * abs(scores[0]):
            return "texts split in an equally probable way"
        print(f"  {self.model_type}, equal to neither: {text!r}"[:160])
        return "texts equal to neither"


if __name__ == "__main__":
    main()
