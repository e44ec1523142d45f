"""Training of a tokenizer with the ``tokenizers`` library, deterministically."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.errors import UsageError
from zoo.io.json import dump_json
from zoo.io.progress import Advance, progress
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
    from tokenizers.normalizers import Normalizer

Batches = Callable[[], Iterable[Sequence[str]]]
MAX_CHARACTERS = 1000  # The size of the alphabet.
SCORE_DECIMALS = 4
SCORE_STEP = 1e-4  # The difference between the scores of rare characters in the library.


@dataclass(frozen=True)
class TokenizerTrainSpec:
    """Layout of a new tokenizer of one kind for a family.

    Attributes:
        first: special tokens before all other tokens, in the order of their ids.
        last: special tokens after all other tokens.
        sentinels: number of tokens ``<extra_id_N>`` after those, in descending order.
        lowercase: lower-case texts. A family says whether its published models do; a user decides
            for a new tokenizer (``TokenizerToTrain.for_family``), which keeps case by default.
        strip_accents: the same for accents, which are removed.
        plain_quotes: replace double grave accents and double apostrophes by quotes, if the kind
            supports it.
    """

    first: tuple[str, ...] = ()
    last: tuple[str, ...] = ()
    sentinels: int = 0
    lowercase: bool = False
    strip_accents: bool = False
    plain_quotes: bool = False

    @property
    def normalizes(self) -> bool:
        """Whether case or accents are dropped."""
        return self.lowercase or self.strip_accents


@dataclass(frozen=True)
class _TrainParams:
    """Parameters of the training of a tokenizer."""

    new: TokenizerTrainSpec  # layout of the tokenizer
    batches: Batches  # function that returns the texts in lists; called several times
    size: int  # vocabulary size, special tokens included
    unknown: str  # unknown token

    @property
    def last(self) -> list[str]:
        """Special tokens after all other tokens."""
        sentinels = [f"<extra_id_{number}>" for number in reversed(range(self.new.sentinels))]
        return [*self.new.last, *sentinels]

    @property
    def room(self) -> int:
        """Number of ids before those."""
        return self.size - len(self.last)

    def texts(self) -> Iterator[list[str]]:
        """Yield the texts, with spellings of special tokens replaced by spaces."""
        special = (*self.new.first, *self.last)
        for batch in self.batches():
            texts = list(batch)
            for token in special:
                texts = [text.replace(token, " ") for text in texts]
            yield texts

    def common(self) -> "_TrainParams":
        """Return parameters whose texts have rare characters replaced by spaces."""
        counts: Counter[str] = Counter()
        for batch in self.texts():
            for text in batch:
                counts.update(text)
        if len(counts) <= MAX_CHARACTERS:
            return self
        ranking = sorted(counts, key=lambda character: (-counts[character], character))
        table = str.maketrans(dict.fromkeys(ranking[MAX_CHARACTERS:], " "))

        def batches() -> Iterator[list[str]]:
            for batch in self.texts():
                yield [text.translate(table) for text in batch]

        return _TrainParams(self.new, batches, self.size, self.unknown)


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

    The result is the tokenizer files of a checkpoint, which ``Family.tokenizer`` reads like any
    others, and to which it adds the template. Two results of the library depend on the order of
    hash maps and threads, and are made deterministic here:

    * Word-internal characters of WordPiece get ids in any order, and ties of merges are broken by
      ids. These characters are therefore determined in a first pass, and their ids fixed.
    * Unigram assigns scores to the rarest characters in any order, and adds in any order. These
      characters therefore get equal scores, and all scores are rounded.

    The alphabet is limited to the 1,000 most frequent characters.
    """
    files = _TRAINERS[kind](_TrainParams(new, batches, size, unknown))
    for name, content in files.items():
        (directory / name).write_bytes(content.encode())


def _count_characters(
    batches: Iterable[Sequence[str]], advance: Advance
) -> Iterator[Sequence[str]]:
    for batch in batches:
        yield batch
        advance(sum(map(len, batch)))


def _fit(tokenizer: "Tokenizer", trainer: Any, params: _TrainParams) -> None:
    """Train a tokenizer; convert exceptions of the library."""
    try:
        with progress("training the tokenizer", unit="characters") as advance:
            tokenizer.train_from_iterator(_count_characters(params.texts(), advance), trainer)
    except Exception as error:
        if type(error) is not Exception:  # The library raises no more specific type.
            raise
        reason = " ".join(str(error).split())[:200]
        raise UsageError(
            f"no tokenizer of {params.size} tokens can be trained on these texts: {reason}",
            "choose another vocab_size",
        ) from error


def _check_size(least_size: int, params: _TrainParams) -> None:
    if least_size > params.size:
        raise UsageError(
            f"{params.size} tokens are too few: characters and special tokens are {least_size}",
            "choose a larger vocab_size",
        )


def _sort_tokens(vocabulary: Mapping[str, int]) -> list[str]:
    return sorted(vocabulary, key=vocabulary.__getitem__)


def _wordpiece(params: _TrainParams) -> dict[str, str]:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    lowercase = params.new.lowercase
    strip_accents = params.new.strip_accents

    def train_tokens(size: int, special_tokens: Sequence[str]) -> list[str]:
        tokenizer = Tokenizer(models.WordPiece(unk_token=params.unknown))
        tokenizer.normalizer = normalizers.BertNormalizer(
            lowercase=lowercase, strip_accents=strip_accents
        )
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        options: Any = {"special_tokens": list(special_tokens), "show_progress": False}
        _fit(tokenizer, trainers.WordPieceTrainer(vocab_size=size, **options), params)
        return _sort_tokens(tokenizer.get_vocab())

    special_tokens = list(params.new.first)
    params = params.common()
    alphabet = train_tokens(0, special_tokens)
    _check_size(len(alphabet) + len(params.last), params)
    inner_characters = []
    for token in sorted(alphabet):
        if len(token) > 1 and token not in special_tokens:
            inner_characters.append(token)
    tokens = train_tokens(params.room, [*special_tokens, *inner_characters])
    tokens += params.last
    settings = {"do_lower_case": lowercase}
    if strip_accents != lowercase:  # Without the key, accents are removed with upper case.
        settings["strip_accents"] = strip_accents
    return {
        VOCABULARY: "".join(f"{token}\n" for token in tokens),
        TOKENIZER_CONFIG: _json(settings),
    }


def _byte_level(params: _TrainParams) -> dict[str, str]:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    _check_size(256 + len(params.new.first) + len(params.last), params)

    def with_pipeline(tokenizer: Tokenizer) -> Tokenizer:
        if params.new.normalizes:
            tokenizer.normalizer = _case_and_accents(params.new)
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        return tokenizer

    tokenizer = with_pipeline(Tokenizer(models.BPE()))
    options: Any = {"special_tokens": list(params.new.first), "show_progress": False}
    options["initial_alphabet"] = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=params.room, **options)
    _fit(tokenizer, trainer, params)
    model = json.loads(tokenizer.to_str())["model"]
    tokens = [*_sort_tokens(model["vocab"]), *params.last]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    merges = [pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"]]
    if params.new.normalizes:  # The other files cannot say so.
        pairs = [(first, second) for first, second in merges]
        normalizing = with_pipeline(Tokenizer(models.BPE(vocab=vocabulary, merges=pairs)))
        return {TOKENIZER_JSON: normalizing.to_str(pretty=True)}
    lines = ["#version: 0.2", *map(" ".join, merges)]
    return {
        VOCAB_JSON: _json(vocabulary),
        MERGES: "".join(f"{line}\n" for line in lines),
    }


def _case_and_accents(new: TokenizerTrainSpec) -> "Normalizer":
    """Return the normalizer that lower-cases texts, or removes their accents, or both."""
    from tokenizers import normalizers

    steps: list[Normalizer] = []
    if new.strip_accents:
        # Letters of scripts such as Hangul are composed again.
        steps += [normalizers.NFD(), normalizers.StripAccents(), normalizers.NFC()]
    if new.lowercase:
        steps.append(normalizers.Lowercase())
    return normalizers.Sequence(steps)


def _unigram(params: _TrainParams) -> dict[str, str]:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    new = params.new
    params = params.common()
    spelling = NormalizationOptions(new.lowercase, new.strip_accents, new.plain_quotes)
    normalizer = normalizers.Sequence(
        [*spelling.steps(b"", ""), normalizers.Nmt(), normalizers.NFKC()]
    )
    metaspace = pre_tokenizers.Metaspace(SPACE, prepend_scheme="always")
    splitter = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace])

    def with_pipeline(tokenizer: Tokenizer) -> Tokenizer:
        tokenizer.normalizer = normalizer
        tokenizer.pre_tokenizer = splitter
        tokenizer.decoder = decoders.Metaspace(SPACE, prepend_scheme="always")
        return tokenizer

    special_tokens = len(new.first) + len(params.last)
    options: Any = {"special_tokens": [params.unknown], "unk_token": params.unknown}
    size = max(params.size - special_tokens, 1) + 1
    trainer = trainers.UnigramTrainer(vocab_size=size, show_progress=False, **options)
    trained_tokenizer = with_pipeline(Tokenizer(models.Unigram()))
    _fit(trained_tokenizer, trainer, params)
    vocabulary = json.loads(trained_tokenizer.to_str())["model"]["vocab"]
    scores = {text: score for text, score in vocabulary if text != params.unknown}
    characters = [text for text in scores if len(text) == 1]
    lowest_score = min(scores.values(), default=0.0)
    for text in characters:
        if scores[text] < lowest_score + SCORE_STEP * len(characters):
            scores[text] = lowest_score
    rounded_scores = {text: round(score, SCORE_DECIMALS) for text, score in scores.items()}
    ranking = sorted(rounded_scores, key=lambda text: (-rounded_scores[text], text))
    pieces = [Piece(text, rounded_scores[text], NORMAL) for text in ranking]
    _check_size(len(pieces) + special_tokens, params)
    model = PieceModel(tuple(pieces), UNIGRAM, 0, b"", True, True, False)
    layout = VocabLayout(new.first, 0, new.last, new.sentinels, params.unknown, False)
    tokenizer = with_pipeline(build_model(model, layout, "the trained tokenizer"))
    # The family adds the other special tokens.
    tokenizer.add_special_tokens(params.last[len(new.last) :])
    return {TOKENIZER_JSON: tokenizer.to_str(pretty=True)}


def _words(params: _TrainParams) -> dict[str, str]:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.WordLevel(unk_token=params.unknown))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    options: Any = {"special_tokens": list(params.new.first), "show_progress": False}
    _fit(tokenizer, trainers.WordLevelTrainer(vocab_size=params.size, **options), params)
    return {TOKENIZER_JSON: tokenizer.to_str(pretty=True)}


def _json(value: Any) -> str:
    return dump_json(value, ensure_ascii=False) + "\n"


_TRAINERS: Mapping[str, Callable[[_TrainParams], dict[str, str]]] = {
    "wordpiece": _wordpiece,
    "byte-level-bpe": _byte_level,
    "unigram": _unigram,
    "words": _words,
}
KINDS = tuple(_TRAINERS)
