"""The tokenizer of a corpus: an existing one, or one that is trained on its texts."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any

import msgspec

from zoo.checkpoint import TOKENIZER, is_checkpoint, load_checkpoint
from zoo.errors import UsageError
from zoo.io.limits import MAX_NEW_VOCABULARY
from zoo.io.scratch import scratch_directory
from zoo.tokenizers.info import TokenizerInfo
from zoo.tokenizers.normalizer_text import normalizer_text

if TYPE_CHECKING:
    from zoo.data.corpus import Corpus
    from zoo.families.base import Family
    from zoo.hub.reference import Reference
    from zoo.tokenizers.train import TokenizerTrainSpec

TRAIN = "train"
WORDS = "words"  # The type of a tokenizer whose tokens are whole words.
SAMPLE_CHARS = 100_000_000  # Characters that a tokenizer is trained on.
Texts = Callable[[], Iterable[Sequence[str]]]
SMALL_VOCABULARY = 512  # Tokens of the smallest tokenizer that every type can train.
PIECE_CHARS = 1 << 14  # The largest number of characters per piece.


@dataclass(frozen=True)
class ExistingTokenizer:
    """The tokenizer of a model or of another corpus."""

    json: bytes
    info: TokenizerInfo  # special tokens of the tokenizer

    def shortened(self, max_tokens: int) -> "ExistingTokenizer":
        """Return the tokenizer for a model whose texts have at most so many tokens."""
        limit = min(max_tokens, self.info.max_tokens or max_tokens)
        return replace(self, info=msgspec.structs.replace(self.info, max_tokens=limit))

    def in_language(self, token: str) -> "ExistingTokenizer":
        """Return the tokenizer for texts in another language."""
        from zoo.tokenizers.languages import in_language
        from zoo.tokenizers.tokenizer_json import parse

        tokenizer, info = in_language(parse(self.json, Path(TOKENIZER)), self.info, token)
        return ExistingTokenizer(tokenizer.to_str(pretty=True).encode(), info)

    def settings(self) -> dict[str, Any]:
        """Return the settings that identify the tokenizer in ``corpus.json``."""
        from blake3 import blake3

        return {"blake3": blake3(self.json).hexdigest()}

    def vocab_size(self) -> int:
        """Return the highest token id plus 1."""
        from tokenizers import Tokenizer

        from zoo.data.encoding import vocabulary_size

        return vocabulary_size(Tokenizer.from_buffer(self.json))

    def keeps_ids_of(self, other: "ExistingTokenizer") -> bool:
        """Return whether each token of another tokenizer has the same id in this one."""
        if self.json == other.json:
            return True
        from tokenizers import Tokenizer

        ids = Tokenizer.from_str(self.json.decode()).get_vocab()
        other_ids = Tokenizer.from_str(other.json.decode()).get_vocab()
        return other_ids.items() <= ids.items()

    def description(self) -> str:
        """Return the number of tokens, and what the tokenizer does to texts."""
        splitter = self.info.splitter
        if splitter is None:
            changes = normalizer_text(self.json)
        else:
            changes = ", ".join((f"split by {splitter.tool}", *splitter.changes))
        return f"{self.vocab_size():,} tokens; {changes}"

    def make(self, texts: Texts) -> "ExistingTokenizer":
        """Return the tokenizer itself."""
        return self


@dataclass(frozen=True)
class TokenizerToTrain:
    """A tokenizer to train on the texts of a corpus."""

    family: "Family"
    type: str  # type of the tokenizer, see ``Family.new_tokenizers``
    spec: "TokenizerTrainSpec"  # normalization, special tokens and template
    vocab_size: int  # vocabulary size, special tokens included
    # number of characters to train on, evenly sampled from longer texts
    sample_chars: int = SAMPLE_CHARS

    @classmethod
    def for_family(
        cls,
        family: "Family",
        *,
        vocab_size: int,
        tokenizer_type: str | None = None,
        lowercase: bool | None = None,
        strip_accents: bool | None = None,
        sample_chars: int = SAMPLE_CHARS,
    ) -> "TokenizerToTrain":
        """Return the settings of a family's tokenizer.

        Args:
            family: family whose models have the tokenizer.
            vocab_size: vocabulary size, special tokens included.
            tokenizer_type: type of the tokenizer; by default the family's first.
            lowercase: whether texts are lower-cased; ``None`` to keep their case, also for families
                whose published models lower-case.
            strip_accents: whether accents are removed; ``None`` to do as ``lowercase``.
            sample_chars: number of characters to train on.

        Raises:
            UsageError: the family has no such tokenizer, or it cannot be trained so.
        """
        specs = family.new_tokenizers
        tokenizer_type = tokenizer_type or next(iter(specs), "tokenizer")
        if tokenizer_type not in specs:
            hint = "give the tokenizer of a model"
            if specs:
                hint = f"its kinds are {', '.join(specs)}"
            raise UsageError(f"no {tokenizer_type} can be trained for {family.name}", hint)
        if vocab_size > MAX_NEW_VOCABULARY:
            raise UsageError(
                f"a tokenizer of {vocab_size:,} tokens is requested",
                f"at most {MAX_NEW_VOCABULARY:,} is accepted",
            )
        lowercase = bool(lowercase)
        if strip_accents is None:
            strip_accents = lowercase
        spec = replace(specs[tokenizer_type], lowercase=lowercase, strip_accents=strip_accents)
        if tokenizer_type == WORDS and spec.normalizes:
            raise UsageError(
                "a tokenizer of words keeps case and accents",
                "leave out --lowercase and --strip-accents",
            )
        return cls(family, tokenizer_type, spec, vocab_size, sample_chars)

    def settings(self) -> dict[str, Any]:
        """Return the settings that identify the tokenizer; the default sample size is omitted."""
        settings = {
            "trained": self.type,
            "family": self.family.name,
            "vocab_size": self.vocab_size,
            "lowercase": self.spec.lowercase,
            "strip_accents": self.spec.strip_accents,
        }
        if self.sample_chars != SAMPLE_CHARS:
            settings["sample"] = self.sample_chars
        return settings

    def description(self) -> str:
        """Return what is trained, and what the tokenizer will do to texts."""
        # A tokenizer of a few letters has the same normalizer, and is trained in milliseconds.
        special_tokens = len(self.spec.first) + len(self.spec.last) + self.spec.sentinels
        small = replace(self, vocab_size=SMALL_VOCABULARY + special_tokens)
        changes = normalizer_text(small.make(lambda: [[ascii_lowercase]]).json)
        return f"{self.type} of at most {self.vocab_size:,} tokens, to be trained; {changes}"

    def make(self, texts: Texts) -> ExistingTokenizer:
        """Train the tokenizer on a sample of the texts."""
        from zoo.tokenizers import SourceFiles, tokenizer_info
        from zoo.tokenizers.tokenizer_json import load
        from zoo.tokenizers.train import train
        from zoo.tokenizers.wordpiece import DEFAULTS

        roles = self.family.special_tokens or DEFAULTS
        with scratch_directory() as scratch:
            files = SourceFiles(scratch)
            train(
                self.type,
                self.spec,
                subsample(texts, self.sample_chars),
                files.directory,
                size=self.vocab_size,
                unknown=roles["unk"],
            )
            # Families read the formats of published models, which include no list of words.
            if self.type == WORDS:
                tokenizer = load(files)
            else:
                tokenizer = self.family.tokenizer(files)
            info = tokenizer_info(files, tokenizer, roles)
        return ExistingTokenizer(tokenizer.to_str(pretty=True).encode(), info)


def load_tokenizer(text: str, family: "Family | None" = None, **hub: Any) -> ExistingTokenizer:
    """Return the tokenizer of a model, or of another corpus."""
    from zoo.data.corpus import Corpus
    from zoo.data.readers.documents import CORPUS_MANIFEST
    from zoo.hub.reference import resolve
    from zoo.hub.source import locate_or_download
    from zoo.plugins import family_of_tokenizer
    from zoo.tokenizers import has_tokenizer, tokenizer_info
    from zoo.tokenizers.tokenizer_json import read_checked

    reference = resolve(text)
    if reference.path is not None and (reference.path / CORPUS_MANIFEST).is_file():
        corpus = Corpus(reference.path)
        return ExistingTokenizer(corpus.tokenizer_json, corpus.record.tokenizer)
    if reference.path is not None and is_checkpoint(reference.path):
        checkpoint = load_checkpoint(reference.path)
        info = checkpoint.model.tokenizer
        path = checkpoint.tokenizer_file
        adapter = checkpoint.manifest.adapter
        if adapter is not None and info is not None and not path.is_file():
            base = load_tokenizer(adapter.base.reference, family, **hub)
            return ExistingTokenizer(base.json, info)
        if info is None or not path.is_file():
            raise UsageError(
                f"{reference.path} has no {TOKENIZER}",
                "give another model's: --tokenizer REF, or --set data.tokenizer=REF",
            )
        return ExistingTokenizer(read_checked(path), info)
    source = locate_or_download(reference, **hub, tokenizer_alone=True)
    family = family or _family(reference)
    has_files = (
        has_tokenizer(source.files) if family is None else family.has_tokenizer(source.files)
    )
    if not has_files:
        hint = "give another --tokenizer"
        if reference.path is not None and is_checkpoint(reference.path / "model"):
            hint = f"give {reference.path / 'model'}, the model of this run"
        raise UsageError(f"{text} has no tokenizer files", hint)
    if family is None:
        raise UsageError(f"nothing says what family {reference.text} is of", "give --family")
    reader = family_of_tokenizer(source.files, family)
    tokenizer = reader.tokenizer(source.files)
    targets = reader.target_tokenizer(source.files)
    splitter = reader.splitter(source.files)
    info = tokenizer_info(source.files, tokenizer, reader.special_tokens, targets, splitter)
    return ExistingTokenizer(tokenizer.to_str(pretty=True).encode(), info)


def corpus_tokenizer_description(corpus: "Corpus") -> str:
    """Return the number of tokens of a corpus's tokenizer, and what it changes in the texts."""
    tokenizer = ExistingTokenizer(corpus.tokenizer_json, corpus.record.tokenizer)
    if corpus.record.normalization is None:
        return tokenizer.description()
    return f"{tokenizer.description()}; {corpus.record.normalization.description()}"


def _family(reference: "Reference") -> "Family | None":
    """Return the family that the registry or the model's configuration names, if any."""
    from zoo.hub.registry import line_of
    from zoo.plugins import family_of_model_type, get_family
    from zoo.tokenizers import SourceFiles

    if reference.row is not None:
        return get_family(reference.row.family, line_of(reference.text))
    family = None
    if reference.path is not None:
        model_type = SourceFiles(reference.path).json_if_any("config.json").get("model_type")
        family = family_of_model_type(str(model_type))
    return family


def subsample(texts: Texts, max_chars: int) -> Texts:
    """Return all texts if they are few, else evenly spaced pieces of them.

    The selection only depends on the texts. It is held in memory, since training reads it several
    times. Texts that are subsampled are read twice: the selection depends on their total length.
    """
    batches: list[Sequence[str]] = []
    total = 0
    for batch in texts():
        total += sum(map(len, batch))
        if total <= max_chars:
            batches.append(batch)
        else:
            batches.clear()
    if total <= max_chars:
        return lambda: batches
    sample: list[str] = []
    seen_chars = 0
    sampled_chars = 0
    for piece in _pieces(texts()):
        seen_chars += len(piece)
        # A piece is selected where the selected fraction is below the target.
        if sampled_chars * total < seen_chars * max_chars:
            sample.append(piece)
            sampled_chars += len(piece)
    return lambda: [sample]


def count_characters(texts: Texts) -> int:
    """Return the number of characters of texts."""
    return sum(sum(map(len, batch)) for batch in texts())


def mix_texts(
    texts: Mapping[str, Texts],
    characters: Mapping[str, int],
    shares: Mapping[str, float],
    max_chars: int,
) -> Texts:
    """Return texts of several sources, of which each has its share of the characters.

    Of a source with more text than its share, evenly spaced pieces are selected; one with less is
    repeated, as in a run. All together have as many characters as the sources, or ``max_chars``.

    Args:
        texts: source -> its texts.
        characters: source -> number of their characters.
        shares: source -> share of the characters; all add up to 1.
        max_chars: largest number of characters.
    """
    total = min(max_chars, sum(characters.values()))
    parts: list[Texts] = []
    for name, source_texts in texts.items():
        if not characters[name]:
            continue
        passes, remainder = divmod(round(shares[name] * total), characters[name])
        parts.extend([source_texts] * passes)
        if remainder:
            parts.append(subsample(source_texts, remainder))
    return lambda: chain.from_iterable(part() for part in parts)


def _pieces(batches: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield texts, long ones in pieces that end before a space if possible."""
    for text in chain.from_iterable(batches):
        start = 0
        while len(text) - start > PIECE_CHARS:
            end = text.rfind(" ", start + 1, start + PIECE_CHARS)
            if end <= 0:
                end = start + PIECE_CHARS
            yield text[start:end]
            start = end
        yield text[start:]
