"""The mixture of a run on several sources: their corpora, one tokenizer, and stages of weights."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from blake3 import blake3

from zoo.checkpoint import TOKENIZER
from zoo.data.corpus import DEFAULT_EVAL_FRACTION, TRAIN, Corpus
from zoo.data.rng import key_bytes
from zoo.data.shares import MixtureStage, cycle_counts, shares_by_epochs, shares_by_temperature
from zoo.data.tokenizer import (
    ExistingTokenizer,
    Texts,
    TokenizerToTrain,
    count_characters,
    mix_texts,
)
from zoo.errors import UsageError
from zoo.io.json import JsonStruct, encode_json, read_json_record
from zoo.io.output.atomic import atomic_directory
from zoo.io.paths import home
from zoo.tokenizers.info import TokenizerInfo
from zoo.tokenizers.tokenizer_json import read_checked
from zoo.training.config.schema import DataConfig, TrainConfig
from zoo.training.config.sources import SourceConfig, given_weights
from zoo.training.state.run_manifest import RunManifest, TextSourceRecord
from zoo.training.streaming.data import StreamData, open_stream, require_tokenizer
from zoo.version import __version__

if TYPE_CHECKING:
    from zoo.data.build import CorpusSpec

LOG = logging.getLogger("zoo")
INFO = "tokenizer-info.json"
# Above this number of passes, further ones add little (Muennighoff et al. 2023, arXiv:2305.16264,
# section 6: up to 4 are almost as good as new text).
MANY_PASSES = 4.0


class TrainedTokenizer(JsonStruct, kw_only=True):
    """``tokenizer-info.json``: what a cached tokenizer has besides ``tokenizer.json``."""

    info: TokenizerInfo
    blake3: str  # Digest of ``tokenizer.json``.


class OpenSources(NamedTuple):
    """The sources of a run."""

    corpora: dict[str, Corpus]  # Source -> its corpus; of a stream, its held-out documents.
    streams: dict[str, StreamData]  # Source that is a stream -> its shards.


def open_sources(
    data: DataConfig, tokenizer: ExistingTokenizer | TokenizerToTrain, *, seed: int
) -> OpenSources:
    """Return the corpus of each source, built now if the cache does not have it, and the streams.

    Args:
        data: settings of the data.
        tokenizer: the tokenizer of all sources. One to train is trained on all of them together; a
            source that is a built corpus has its own, which is then used for the others. Streams
            need one that exists.
        seed: seed of the run.

    Raises:
        UsageError: two sources have different tokenizers.
    """
    from zoo.data.cache import cached_corpus, is_built_corpus

    assert data.sources is not msgspec.UNSET, "called for runs with sources"
    corpora: dict[str, Corpus] = {}
    stream_names = data.streamed_sources()
    for name, source in data.sources.items():
        if name in stream_names:
            continue
        if is_built_corpus(source.paths):
            corpora[name] = cached_corpus(
                source.paths, tokenizer, reader=data.reader, eval_paths=source.eval_paths
            )
    if isinstance(tokenizer, TokenizerToTrain):
        if corpora:
            built_corpus = next(iter(corpora.values()))
            tokenizer = ExistingTokenizer(
                built_corpus.tokenizer_json, built_corpus.record.tokenizer
            )
        elif stream_names:
            tokenizer = require_tokenizer(tokenizer)
        else:
            tokenizer = _train_on_all(data, data.sources, tokenizer)
    streams: dict[str, StreamData] = {}
    for name, source in data.sources.items():
        if name in stream_names:
            streams[name], corpora[name] = _open_source_stream(
                data, name, source, tokenizer, seed=seed
            )
        elif name not in corpora:
            corpora[name] = cached_corpus(
                source.paths, tokenizer, reader=data.reader, eval_paths=source.eval_paths
            )
    corpora = {name: corpora[name] for name in data.sources}
    _require_one_tokenizer(corpora)
    return OpenSources(corpora, streams)


def _open_source_stream(
    data: DataConfig, name: str, source: SourceConfig, tokenizer: ExistingTokenizer, *, seed: int
) -> tuple[StreamData, Corpus]:
    """Return a source that is a stream, and the corpus of its held-out documents."""
    # The streams of a run have different orders.
    source_seed = int.from_bytes(key_bytes(seed, ("source", name), 7), "little")
    try:
        stream, corpus = open_stream(
            data, tokenizer, seed=source_seed, paths=source.paths, eval_paths=source.eval_paths
        )
    except UsageError as error:
        raise UsageError(f"the source {name}: {error.what}", error.hint) from error
    return replace(stream, streams=len(data.streamed_sources())), corpus


def _require_one_tokenizer(corpora: Mapping[str, Corpus]) -> None:
    first_name, first_corpus = next(iter(corpora.items()))
    for name, corpus in corpora.items():
        if corpus.record.tokenizer_digest != first_corpus.record.tokenizer_digest:
            output = f"{corpus.path}-{first_name}"
            command = corpus.build_command(str(first_corpus.path), output)
            raise UsageError(
                f"the sources {first_name} and {name} have different tokenizers: "
                f"{first_corpus.path} has {first_corpus.record.vocab_size:,} tokens, and "
                f"{corpus.path} has {corpus.record.vocab_size:,}",
                f"`{command}` builds one with the same",
            )


def _train_on_all(
    data: DataConfig, sources: Mapping[str, SourceConfig], tokenizer: TokenizerToTrain
) -> ExistingTokenizer:
    """Return the tokenizer that is trained on the texts of all sources, from a cache.

    Sources that have shares other than those of their sizes have them in its texts as well.
    """
    from zoo.data.build import CorpusSpec, training_texts

    specs = {}
    for name, source in sources.items():
        fraction = 0.0 if source.eval_paths else DEFAULT_EVAL_FRACTION
        paths: Sequence[str | Path] = source.paths
        specs[name] = CorpusSpec(paths, tokenizer, data.reader, fraction, source.eval_paths)
    target = home() / "tokenizers" / _cache_key(data, specs)
    if not (target / INFO).is_file():
        LOG.info("training a tokenizer on %s", ", ".join(sources))
        texts = {name: partial(training_texts, spec) for name, spec in specs.items()}
        trained = tokenizer.make(_mixed_texts(data, texts, tokenizer.sample_chars))
        record = TrainedTokenizer(info=trained.info, blake3=blake3(trained.json).hexdigest())
        try:
            with atomic_directory(target) as staging:
                (staging / TOKENIZER).write_bytes(trained.json)
                (staging / INFO).write_bytes(encode_json(record))
        except UsageError:
            if not (target / INFO).is_file():  # Otherwise another process has trained it.
                raise
    record = read_json_record(target / INFO, TrainedTokenizer)
    content = read_checked(target / TOKENIZER)
    if blake3(content).hexdigest() != record.blake3:
        raise UsageError(f"{target / TOKENIZER} is damaged", f"remove {target}")
    return ExistingTokenizer(content, record.info)


def _mixed_texts(data: DataConfig, texts: Mapping[str, Texts], max_chars: int) -> Texts:
    """Return the texts of all sources, with the shares of the run if these are set."""
    if not _sets_shares(data):
        return lambda: chain.from_iterable(source_texts() for source_texts in texts.values())
    characters = {name: count_characters(source_texts) for name, source_texts in texts.items()}
    stages = [source_shares(data, characters)]
    stages += [stage.weights for stage in data.curriculum or ()]
    shares = {}
    for name in texts:
        shares[name] = sum(stage[name] for stage in stages) / len(stages)
    return mix_texts(texts, characters, shares, max_chars)


def _sets_shares(data: DataConfig) -> bool:
    """Return whether a setting decides the shares of the sources, and not only their sizes."""
    has_weights = bool(given_weights(data.sources or {}))
    return has_weights or bool(data.curriculum) or data.mixing in ("epochs", "temperature")


def _cache_key(data: DataConfig, specs: "Mapping[str, CorpusSpec]") -> str:
    """Return a digest of everything that a tokenizer of several sources depends on."""
    parts: list[Any] = [__version__]
    if _sets_shares(data):
        settings = [data.mixing, data.temperature, data.mixing_limit, data.curriculum]
        for source in (data.sources or {}).values():
            settings += [source.weight, source.epochs]
        parts.append(repr(settings))
    for spec in specs.values():
        digests = {}
        for split, files in spec.files.items():
            digests[split] = [spec.sources[str(file)].blake3 for file in files]
        parts.append([digests, spec.settings()])
    return blake3(msgspec.json.encode(parts)).hexdigest(16)


def source_shares(data: DataConfig, sizes: Mapping[str, int]) -> dict[str, float]:
    """Return the share of the rows of each source at the beginning of a run.

    Args:
        data: settings of the data.
        sizes: source -> number of its tokens; not used if the sources have weights.
    """
    assert data.sources is not msgspec.UNSET, "called for runs with sources"
    weights = given_weights(data.sources)
    if weights:  # Streams, whose sizes are not known, always have weights.
        return weights
    if data.mixing == "epochs":
        epochs = {}
        for name, source in data.sources.items():
            epochs[name] = 1.0 if source.epochs is msgspec.UNSET else source.epochs
        return shares_by_epochs(sizes, epochs)
    if data.mixing == "temperature":
        return shares_by_temperature(sizes, data.temperature or 1.0, data.mixing_limit or None)
    return shares_by_temperature(sizes, 1.0)


def new_stages(config: TrainConfig, corpora: Mapping[str, Corpus]) -> list[MixtureStage]:
    """Return the stages of a new run."""
    stages = []
    for step, counts in _planned_counts(config.data, corpora):
        stages.append(MixtureStage(step=step, rows=rows_at_step(config, step), counts=counts))
    return stages


def continued_stages(
    config: TrainConfig, corpora: Mapping[str, Corpus], record: RunManifest, step: int, rows: int
) -> list[MixtureStage]:
    """Return the stages of a run that continues another one.

    Args:
        config: configuration of the run.
        corpora: its sources.
        record: manifest of the other run.
        step: number of steps that it has done.
        rows: number of rows that it has read, of the length of that step.
    """
    stages = [stage for stage in record.mixture or () if stage.step <= step]
    planned_counts = _planned_counts(config.data, corpora)
    begun_counts = [counts for first_step, counts in planned_counts if first_step <= step]
    if not stages or _without_zeros(stages[-1].counts) != _without_zeros(begun_counts[-1]):
        stages = [stage for stage in stages if stage.step < step]
        stages.append(MixtureStage(step=step, rows=rows, counts=begun_counts[-1]))
    for first_step, counts in planned_counts:
        if first_step <= step:
            continue
        first_row = rows_at_step(config, first_step)
        warmup_steps = config.seq_len_warmup_steps
        if (first_step < warmup_steps) == (step < warmup_steps):  # Rows of the same length.
            first_row = rows + (first_row - rows_at_step(config, step))
        stages.append(MixtureStage(step=first_step, rows=first_row, counts=counts))
    return stages


def _without_zeros(counts: Mapping[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count}


def _planned_counts(
    data: DataConfig, corpora: Mapping[str, Corpus]
) -> list[tuple[int, dict[str, int]]]:
    """Return the first step of each stage, and the rows of each source in a cycle."""
    sizes = {name: corpus.record.splits[TRAIN].tokens for name, corpus in corpora.items()}
    planned = [(0, cycle_counts(source_shares(data, sizes), "data.sources"))]
    for stage in data.curriculum or ():
        subject = f"data.curriculum, step {stage.step:,}"
        planned.append((stage.step, cycle_counts(stage.weights, subject)))
    return planned


def rows_at_step(config: TrainConfig, step: int) -> int:
    """Return how many rows of its length a run without a parent has read before a step."""
    warmup_steps = config.seq_len_warmup_steps
    if step < warmup_steps:
        assert config.seq_len_warmup is not None
        return step * config.batch_size(config.seq_len_warmup.seq_len)
    return (step - warmup_steps) * config.global_batch_size


def stages_of_loader(
    stages: Sequence[MixtureStage], first_step: int, last_step: int
) -> list[tuple[int, Mapping[str, int]]]:
    """Return the stages as positions in the rows of one length, which some steps read.

    Args:
        stages: the stages of the run.
        first_step: first step with rows of that length.
        last_step: step after the last one.
    """
    positions: list[tuple[int, Mapping[str, int]]] = []
    for stage in stages:
        if stage.step <= first_step:
            positions = [(0, stage.counts)]
        elif stage.step < last_step:
            positions.append((stage.rows, stage.counts))
    return positions


def tokens_by_source(
    config: TrainConfig, stages: Sequence[MixtureStage], steps: int
) -> dict[str, float]:
    """Return how many tokens of each source a run reads in its first steps."""
    tokens: dict[str, float] = {}
    for number, stage in enumerate(stages):
        last_step = steps
        if number + 1 < len(stages):
            last_step = min(steps, stages[number + 1].step)
        stage_tokens = _tokens_of_steps(config, stage.step, last_step)
        for name, share in stage.shares.items():
            tokens[name] = tokens.get(name, 0.0) + share * stage_tokens
    return tokens


def _tokens_of_steps(config: TrainConfig, first_step: int, last_step: int) -> int:
    """Return the number of tokens that some steps read."""
    warmup_steps = config.seq_len_warmup_steps
    long_steps = max(0, last_step - max(first_step, warmup_steps))
    tokens = long_steps * config.global_batch_size * config.seq_len
    if config.seq_len_warmup is not None:
        length = config.seq_len_warmup.seq_len
        short_steps = max(0, min(last_step, warmup_steps) - first_step)
        tokens += short_steps * config.batch_size(length) * length
    return tokens


def source_record(corpus: Corpus, stream: StreamData | None = None) -> TextSourceRecord:
    """Return the record of a source in the manifest of a run.

    Args:
        corpus: its corpus; of a stream, its held-out documents.
        stream: its shards, if it is a stream.
    """
    from zoo.data.readers.documents import CORPUS_MANIFEST
    from zoo.io.digests.files import hash_file

    # Equal contents have the same digest, whatever their files are called.
    record = corpus.record
    parts = [record.splits, record.tokenizer, record.tokenizer_digest]
    return TextSourceRecord(
        corpus=str(corpus.path.resolve()),
        corpus_digest=hash_file(corpus.path / CORPUS_MANIFEST).blake3,
        corpus_contents=blake3(msgspec.json.encode(parts, order="sorted")).hexdigest(),
        stream=None if stream is None else stream.record(),
    )
