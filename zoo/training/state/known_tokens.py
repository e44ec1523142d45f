"""Check that a corpus has the tokens of the pretrained model whose rows it reads."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from zoo.checkpoint import TOKENIZER, Checkpoint
from zoo.errors import UsageError
from zoo.families.config import Config
from zoo.tokenizers.tokenizer_json import parse, read_checked
from zoo.tokenizers.vocabulary import describe_differences, different_tokens
from zoo.training.config.schema import DataConfig
from zoo.training.state.pretrained import PretrainedInit

if TYPE_CHECKING:
    from zoo.data.corpus import Corpus

LOG = logging.getLogger("zoo")


def require_known_tokens(init: PretrainedInit, corpus: "Corpus", data: DataConfig) -> None:
    """Check that each id of a corpus is the same string in the models that a run starts from."""
    # Without ``--tokenizer``, both vocabularies have to be equal; with it, either may be longer. A
    # resumed run has no checkpoints: its corpus is the one that it began with.
    for name, checkpoint in init.checkpoints.items():
        if not _has_rows_of_tokens(checkpoint):
            continue
        reference = str(getattr(init.init_config, name))
        file = checkpoint.path / TOKENIZER
        if not file.is_file():
            LOG.warning(
                "warning: %s has no %s, and its tokens cannot be compared with the corpus",
                reference,
                TOKENIZER,
            )
            continue
        tokens = parse(read_checked(file), file).get_vocab()
        explicit = data.tokenizer is not None
        differences = different_tokens(tokens, corpus.vocabulary(), used_by_both=explicit)
        if differences:
            raise UsageError(
                f"{reference} and the corpus in {corpus.path} have different tokenizers: "
                + describe_differences(differences, "the model", "the corpus", len(tokens)),
                _remedy(reference, corpus, data),
            )


def _remedy(reference: str, corpus: "Corpus", data: DataConfig) -> str:
    """Return how to get a corpus with the model's tokenizer."""
    from zoo.data.corpus import is_corpus

    if len(data.paths) == 1 and is_corpus(Path(data.paths[0])):
        output = f"{corpus.path}-{Path(reference).name}"
        return f"`{corpus.build_command(reference, output)}` builds one with the model's"
    return "leave out --tokenizer to read the texts with the model's"


def _has_rows_of_tokens(checkpoint: Checkpoint) -> bool:
    """Return whether a parameter has a row for each token; models of characters have none."""
    config = checkpoint.config
    larger_config = msgspec.structs.replace(config, vocab_size=config.vocab_size + 1)
    return _parameter_shapes(checkpoint, config) != _parameter_shapes(checkpoint, larger_config)


def _parameter_shapes(checkpoint: Checkpoint, config: Config) -> dict[str, tuple[int, ...]]:
    """Return the shapes that the parameters of a checkpoint's head have in a configuration."""
    weights = checkpoint.family.weights(config, checkpoint.head_name)
    return {entry.target: entry.shape for entry in weights.entries()}
