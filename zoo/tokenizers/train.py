"""Training a tokenizer: the files that a checkpoint of the kind would ship.

The files are read like those of any checkpoint afterwards (``Family.tokenizer``), so that what is
put around texts, and how, is decided in one place. The algorithms are those of the ``tokenizers``
library. Of two things it leaves to chance, which order equals have, this module decides:

* The pieces with which words go on get their ids in the order in which the library happens to
  meet them, and equally frequent merges follow the ids. So these pieces are found first, and
  their ids fixed.
* Unigram's rarest characters get scores in any order, and its sums are added up in any order. So
  these characters have one score, and scores are rounded.

Of more than 1,000 different characters the most frequent are learnt.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.errors import UsageError
from zoo.tokenizers.sentencepiece.model import VocabLayout, build_model
from zoo.tokenizers.sentencepiece.normalization import SPACE, NormalizationOptions
from zoo.tokenizers.sentencepiece.proto import NORMAL, UNIGRAM, Piece, PieceModel
from zoo.tokenizers.source_files import (
    MERGES,
    TOKENIZER_CONFIG,
    TOKENIZER_JSON,
    VOCAB_JSON,
    VOCABULARY,
)

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Batches = Callable[[], Iterable[Sequence[str]]]
ALPHABET = 1000
DIGITS = 4  # of a score behind the point
STEP = 1e-4  # by which the library tells the scores of rare characters apart


@dataclass(frozen=True)
class TokenizerTrainSpec:
    """How a tokenizer of one kind is laid out that is trained for a family.

    Attributes:
        first: special tokens before all others, in the order of their ids.
        last: special tokens after all others.
        sentinels: how many tokens ``<extra_id_N>`` come after those, in falling order.
        lowercase: whether texts are lower-cased, where the kind can.
        strip_accents: whether accents are removed, where the kind can.
        plain_quotes: whether double grave accents and double apostrophes become quotes, where
            the kind can.
    """

    first: tuple[str, ...] = ()
    last: tuple[str, ...] = ()
    sentinels: int = 0
    lowercase: bool = False
    strip_accents: bool = False
    plain_quotes: bool = False


@dataclass(frozen=True)
class _Job:
    """What is asked for.

    Attributes:
        new: how the family's tokenizer is laid out.
        batches: returns the texts, in lists; it is called several times.
        size: ids in all.
        unknown: the token for what the vocabulary lacks.
    """

    new: TokenizerTrainSpec
    batches: Batches
    size: int
    unknown: str

    @property
    def last(self) -> list[str]:
        """The special tokens after all others."""
        marks = [f"<extra_id_{number}>" for number in reversed(range(self.new.sentinels))]
        return [*self.new.last, *marks]

    @property
    def room(self) -> int:
        """How many ids are left before those."""
        return self.size - len(self.last)

    def texts(self) -> Iterator[list[str]]:
        """Yield the texts; one that spells a special token teaches nothing about it."""
        special = (*self.new.first, *self.last)
        for batch in self.batches():
            texts = list(batch)
            for token in special:
                texts = [t.replace(token, " ") if token in t else t for t in texts]
            yield texts

    def common(self) -> "_Job":
        """Return the same with spaces for rare characters."""
        counts: Counter[str] = Counter()
        for batch in self.texts():
            for text in batch:
                counts.update(text)
        if len(counts) <= ALPHABET:
            return self
        rare = sorted(counts, key=lambda c: (-counts[c], c))[ALPHABET:]
        table = str.maketrans(dict.fromkeys(rare, " "))
        texts = self.texts
        spelled: Batches = lambda: ([t.translate(table) for t in batch] for batch in texts())  # noqa: E731
        return _Job(self.new, spelled, self.size, self.unknown)


def train(
    kind: str,
    new: TokenizerTrainSpec,
    batches: Batches,
    directory: Path,
    *,
    size: int,
    unknown: str,
) -> None:
    """Train a tokenizer and write its files.

    Args:
        kind: one of ``KINDS``.
        new: how the family's tokenizer is laid out.
        batches: returns the texts, in lists; it is called several times.
        directory: where to write; it exists.
        size: ids in all, special tokens included. There are fewer where the texts are too short
            to tell so many apart.
        unknown: the token for what the vocabulary lacks.

    Raises:
        UsageError: the size is too small, or the texts too short.
    """
    job = _Job(new, batches, size, unknown)
    files = _TRAINERS[kind](job)
    for name, content in files.items():
        (directory / name).write_bytes(content.encode())


def _fit(tokenizer: "Tokenizer", trainer: Any, job: _Job) -> None:
    """Train, and turn the library's complaints into one of ours."""
    try:
        tokenizer.train_from_iterator(job.texts(), trainer)
    except Exception as error:
        if type(error) is not Exception:  # the library raises nothing narrower
            raise
        why = " ".join(str(error).split())[:200]
        raise UsageError(
            f"no tokenizer of {job.size} tokens can be trained on these texts: {why}",
            "choose another --vocab-size",
        ) from error


def _check_size(found: int, job: _Job) -> None:
    if found > job.size:
        raise UsageError(
            f"{job.size} tokens are too few: characters and special tokens are {found}",
            "give a larger --vocab-size",
        )


def _in_order(vocabulary: Mapping[str, int]) -> list[str]:
    return sorted(vocabulary, key=vocabulary.__getitem__)


def _wordpiece(job: _Job) -> dict[str, str]:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    def trained(size: int, first: Sequence[str]) -> list[str]:
        tokenizer = Tokenizer(models.WordPiece(unk_token=job.unknown))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=job.new.lowercase)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        options: Any = {"special_tokens": list(first), "show_progress": False}
        _fit(tokenizer, trainers.WordPieceTrainer(vocab_size=size, **options), job)
        return _in_order(tokenizer.get_vocab())

    job, first = job.common(), list(job.new.first)
    alphabet = trained(0, first)
    _check_size(len(alphabet) + len(job.last), job)
    inner = sorted(token for token in alphabet if len(token) > 1 and token not in first)
    tokens = [*trained(job.room, [*first, *inner]), *job.last]
    return {
        VOCABULARY: "".join(f"{token}\n" for token in tokens),
        TOKENIZER_CONFIG: _json({"do_lower_case": job.new.lowercase}),
    }


def _byte_level(job: _Job) -> dict[str, str]:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    _check_size(256 + len(job.new.first) + len(job.last), job)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    options: Any = {"special_tokens": list(job.new.first), "show_progress": False}
    options["initial_alphabet"] = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=job.room, **options)
    _fit(tokenizer, trainer, job)
    model = json.loads(tokenizer.to_str())["model"]
    tokens = [*_in_order(model["vocab"]), *job.last]
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    return {
        VOCAB_JSON: _json({token: number for number, token in enumerate(tokens)}),
        MERGES: "".join(f"{line}\n" for line in ["#version: 0.2", *merges]),
    }


def _unigram(job: _Job) -> dict[str, str]:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    new, job = job.new, job.common()
    spelling = NormalizationOptions(new.lowercase, new.strip_accents, new.plain_quotes)
    normalizer = normalizers.Sequence(
        [*spelling.steps(b"", ""), normalizers.Nmt(), normalizers.NFKC()]
    )
    marked = pre_tokenizers.Metaspace(SPACE, prepend_scheme="always")
    splitter = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), marked])

    def dressed(tokenizer: Tokenizer) -> Tokenizer:
        tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, splitter
        tokenizer.decoder = decoders.Metaspace(SPACE, prepend_scheme="always")
        return tokenizer

    around = len(new.first) + len(job.last)
    options: Any = {"special_tokens": [job.unknown], "unk_token": job.unknown}
    size = max(job.size - around, 1) + 1
    trainer = trainers.UnigramTrainer(vocab_size=size, show_progress=False, **options)
    raw = dressed(Tokenizer(models.Unigram()))
    _fit(raw, trainer, job)
    pieces = _settled(json.loads(raw.to_str())["model"]["vocab"], job.unknown)
    _check_size(len(pieces) + around, job)
    model = PieceModel(tuple(pieces), UNIGRAM, 0, b"", True, True, False)
    layout = VocabLayout(new.first, 0, new.last, new.sentinels, job.unknown, False)
    tokenizer = dressed(build_model(model, layout, "the trained tokenizer"))
    tokenizer.add_special_tokens(job.last[len(new.last) :])  # the family knows the others
    return {TOKENIZER_JSON: tokenizer.to_str(pretty=True)}


def _settled(found: Sequence[tuple[str, float]], unknown: str) -> list[Piece]:
    """Return the pieces, the likeliest first, without what was left to chance."""
    scores = {text: score for text, score in found if text != unknown}
    single = [text for text in scores if len(text) == 1]
    worst = min(scores.values(), default=0.0)
    for text in single:
        if scores[text] < worst + STEP * len(single):
            scores[text] = worst
    settled = ((text, round(score, DIGITS)) for text, score in scores.items())
    ordered = sorted(settled, key=lambda each: (-each[1], each[0]))
    return [Piece(text, score, NORMAL) for text, score in ordered]


def _words(job: _Job) -> dict[str, str]:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.WordLevel(unk_token=job.unknown))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    options: Any = {"special_tokens": list(job.new.first), "show_progress": False}
    _fit(tokenizer, trainers.WordLevelTrainer(vocab_size=job.size, **options), job)
    return {TOKENIZER_JSON: tokenizer.to_str(pretty=True)}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) + "\n"


_TRAINERS: Mapping[str, Callable[[_Job], dict[str, str]]] = {
    "wordpiece": _wordpiece,
    "byte-level-bpe": _byte_level,
    "unigram": _unigram,
    "words": _words,
}
KINDS = tuple(_TRAINERS)
