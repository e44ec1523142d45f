"""Checkpoints of one file that describes its model: the side files that its header stands for."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from zoo.errors import UsageError, VerificationError
from zoo.families.runtimes import RuntimeHeader
from zoo.hub.reference import self_contained_format
from zoo.hub.select_files import CONFIG
from zoo.hub.source import CheckpointDir
from zoo.io.json import dump_json
from zoo.plugins import iter_families
from zoo.sentence_models import hub_pooling_files
from zoo.sentence_models.cross_encoder_files import LogitScore, reranker_files
from zoo.sentence_models.pooling import Pooling
from zoo.sentence_models.sentence_transformers_files import MODULES
from zoo.tokenizers import has_tokenizer
from zoo.tokenizers.gguf import PREFIX, pooling_mode, tokenizer_files
from zoo.tokenizers.word_level import word_level_files


def with_derived_files(source: CheckpointDir) -> CheckpointDir:
    """Return a directory with the files that its weights or its registry entry describe.

    These are the configuration and the tokenizer of a self-contained file of weights, and the
    files of sentence-transformers of a reranker. Files of the directory have precedence; a
    reference to the file itself reads no others.
    """
    source = _with_reranker_files(source)
    names = source.names()
    file_format = self_contained_format(names)
    if file_format is None:
        return source
    has_config = source.file is None and (source.model_directory / CONFIG).is_file()
    if has_config and has_tokenizer(source.files):
        return source
    with file_format.open(source.model_directory, file_format.find(names)) as reader:
        header = RuntimeHeader.from_reader(reader)
        _check_tables(header)
        derived_files = dict[str, bytes]()
        if not has_tokenizer(source.files):
            derived_files |= _tokenizer_files(header)
        if not has_config:
            derived_files[CONFIG] = _configuration(header, file_format.name)
            derived_files |= _pooling_files(header)
    return replace(source, derived=derived_files)


def _with_reranker_files(source: CheckpointDir) -> CheckpointDir:
    """Return a repository with the files of a reranker that its registry entry describes."""
    entry = None if source.row is None else source.row.reranker
    if entry is None or source.files.has(MODULES):
        return source
    score = LogitScore(
        true_token_id=entry.true_token_id,
        false_token_id=entry.false_token_id,
        message_format="flat",
    )
    derived = {**source.derived, **reranker_files(score, entry.chat_template)}
    return replace(source, derived=derived)


def _tokenizer_files(header: RuntimeHeader) -> dict[str, bytes]:
    """Return the Hub's files of the tokenizer."""
    if "words" in header.metadata:
        return word_level_files(header.metadata)
    return tokenizer_files(header.metadata, header.location)


def _pooling_files(header: RuntimeHeader) -> dict[str, bytes]:
    """Return the Hub's files of the pooling."""
    mode = pooling_mode(header.metadata)
    if mode is None:
        return {}
    pooling = msgspec.convert({"mode": mode}, Pooling)
    return hub_pooling_files(pooling, header.count("embedding_length"))


def _configuration(header: RuntimeHeader, format_name: str) -> bytes:
    """Return the Hub's configuration of the model."""
    for family in iter_families():
        hub = family.config_of_runtime(format_name, header)
        if hub is not None:
            return dump_json(dict(hub)).encode()
    raise UsageError(
        f"{header.location} holds a model of the architecture {header.architecture!r:.100}, which "
        "no installed family reads",
        "`zoo plugins install` adds families, `zoo plugins new` writes one",
    )


def _check_tables(header: RuntimeHeader) -> None:
    """Check that tokens and positions of the header have embeddings."""
    tokens = header.metadata.get(f"{PREFIX}tokens")
    vocab_size = 0
    if isinstance(tokens, Sequence) and not isinstance(tokens, str):
        vocab_size = len(tokens)
    header_sizes = {
        "token_embd.weight": vocab_size,
        "position_embd.weight": header.count("context_length", 0),
    }
    for name, size in header_sizes.items():
        shape = header.shapes.get(name)
        if shape and shape[0] < size:
            raise VerificationError(
                f"{header.location}: {name} has {shape[0]} rows, and the header states {size}",
                "fetch it again",
            )
