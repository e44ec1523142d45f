"""The stages that remove what occurs more than once."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from zoo.cleaning.parts import ReadPart, WritePart
from zoo.overrides import override

# A text that loses lines or spans must keep so many sentences, as in C4.
MIN_NUM_SENTENCES = 3
SPAN_SENTENCES = 3


@dataclass(frozen=True, kw_only=True)
class CleaningStage:
    """Tasks that do not depend on each other.

    Attributes:
        name: name of its directory, and of its progress.
        pipeline: steps of datatrove, or functions of the texts, the task and the number of tasks.
        tasks: number of tasks.
    """

    name: str
    pipeline: Sequence[Any]
    tasks: int


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Where a deduplication reads and writes.

    Attributes:
        source: directory of the parts that it reads.
        target: directory of the parts that it writes.
        work: directory for everything else.
        tasks: number of parts.
        language: code of the language whose words and sentences are counted.
    """

    source: Path
    target: Path
    work: Path
    tasks: int
    language: str

    def read(self) -> ReadPart:
        """Return the step that reads."""
        return ReadPart(self.source)

    def write(self) -> WritePart:
        """Return the step that writes."""
        return WritePart(self.target)


class Deduplication(ABC):
    """A way to find what occurs more than once; all but the first occurrence are removed.

    Attributes:
        name: value of ``--deduplicate``.
        summary: what it removes, in a few words, for help.
    """

    name: ClassVar[str]
    summary: ClassVar[str]

    @abstractmethod
    def stages(self, parts: Parts) -> list[CleaningStage]:
        """Return the stages, in their order."""


class _SentenceDeduplication(Deduplication):
    """Deduplication by datatrove's hashes of lines or sentences, of which the first is kept."""

    sentences: ClassVar[int]
    splits_sentences: ClassVar[bool]

    @override
    def stages(self, parts: Parts) -> list[CleaningStage]:
        from datatrove.pipeline.dedup import SentenceDedupFilter, SentenceDedupSignature
        from datatrove.pipeline.dedup.sentence_dedup import SentDedupConfig
        from datatrove.utils.text import TextNormConfig

        from zoo.cleaning.repeats import FindRepeats, bucket_count
        from zoo.cleaning.words import KeepingTokenizer

        # They are compared as in the released code of C4: in lower case, without white space around
        # them. datatrove would also ignore numbers, accents and punctuation.
        spelling = TextNormConfig(
            remove_punctuation=False, norm_unicode_diacritics=False, norm_numbers=False
        )
        config = SentDedupConfig(
            norm_config=spelling,
            n_sentences=self.sentences,
            split_sentences=self.splits_sentences,
            only_dedup_in_index=False,
            min_doc_words=0,
            min_num_sentences=MIN_NUM_SENTENCES,
        )
        signatures = parts.work / "signatures"
        repeats = parts.work / "repeats"
        buckets = bucket_count(parts.source)
        options = {"config": config, "language": KeepingTokenizer(parts.language)}
        make = SentenceDedupSignature(str(signatures), finder_workers=buckets, **options)
        find = FindRepeats(signatures, repeats)
        remove = SentenceDedupFilter(str(repeats), **options)
        return [
            CleaningStage(name="signatures", pipeline=[parts.read(), make], tasks=parts.tasks),
            CleaningStage(name="repeats", pipeline=[find], tasks=buckets),
            CleaningStage(
                name="texts", pipeline=[parts.read(), remove, parts.write()], tasks=parts.tasks
            ),
        ]


class Lines(_SentenceDeduplication):
    """Lines, as in the released code of C4."""

    name = "lines"
    summary = "lines that occurred before (C4's released code)"
    sentences = 1
    splits_sentences = False


class Spans(_SentenceDeduplication):
    """Spans of three sentences, as in the paper on C4."""

    name = "spans"
    summary = "spans of three sentences that occurred before (C4's paper)"
    sentences = SPAN_SENTENCES
    splits_sentences = True


class NearDuplicates(Deduplication):
    """Texts that are nearly equal, by MinHash.

    14 bands of 8 hashes of runs of 5 words, as in FineWeb: two texts that share a fraction s of
    their runs are found with a probability of 1 - (1 - s^8)^14.
    """

    name = "documents"
    summary = "texts that are nearly equal to one before, by MinHash"

    @override
    def stages(self, parts: Parts) -> list[CleaningStage]:
        from datatrove.pipeline.dedup import (
            MinhashDedupBuckets,
            MinhashDedupCluster,
            MinhashDedupFilter,
            MinhashDedupSignature,
        )
        from datatrove.pipeline.dedup.minhash import MinhashConfig

        from zoo.cleaning.words import KeepingTokenizer

        config = MinhashConfig()
        signatures = str(parts.work / "signatures")
        pairs = str(parts.work / "pairs")
        removals = str(parts.work / "removals")
        language = KeepingTokenizer(parts.language)
        make = MinhashDedupSignature(signatures, config=config, language=language)
        find = MinhashDedupBuckets(signatures, pairs, config=config)
        group = MinhashDedupCluster(pairs, removals, config=config)
        remove = MinhashDedupFilter(removals)
        return [
            CleaningStage(name="signatures", pipeline=[parts.read(), make], tasks=parts.tasks),
            CleaningStage(name="pairs", pipeline=[find], tasks=config.num_buckets),
            CleaningStage(name="clusters", pipeline=[group], tasks=1),
            CleaningStage(
                name="texts", pipeline=[parts.read(), remove, parts.write()], tasks=parts.tasks
            ),
        ]


class Substrings(Deduplication):
    """Runs of 50 words, wherever they begin (Lee et al. 2022, arXiv:2107.06499)."""

    name = "substrings"
    summary = "runs of 50 words that occurred before, wherever they begin"

    @override
    def stages(self, parts: Parts) -> list[CleaningStage]:
        from zoo.cleaning.substrings import BUCKETS, FindRuns, HashRuns, RemoveRuns

        hashes = parts.work / "hashes"
        repeats = parts.work / "repeats"
        return [
            CleaningStage(
                name="hashes",
                pipeline=[parts.read(), HashRuns(hashes)],
                tasks=parts.tasks,
            ),
            CleaningStage(name="repeats", pipeline=[FindRuns(hashes, repeats)], tasks=BUCKETS),
            CleaningStage(
                name="texts",
                pipeline=[parts.read(), RemoveRuns(repeats), parts.write()],
                tasks=parts.tasks,
            ),
        ]


DEDUPLICATIONS: dict[str, type[Deduplication]] = {
    deduplication.name: deduplication
    for deduplication in (Lines, Spans, Substrings, NearDuplicates)
}
