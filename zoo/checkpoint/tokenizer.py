"""Loading the tokenizer of a checkpoint."""

from zoo.checkpoint.load import Checkpoint
from zoo.checkpoint.records import TOKENIZER
from zoo.errors import UsageError
from zoo.tokenizers.info import check_vocabulary
from zoo.tokenizers.source_files import SourceFiles
from zoo.tokenizers.tokenizer import TextTokenizer
from zoo.tokenizers.tokenizer_json import load


def load_text_tokenizer(checkpoint: Checkpoint) -> TextTokenizer:
    """Load the tokenizer of a checkpoint.

    Raises:
        UsageError: the checkpoint has no tokenizer.
        SourceError, VerificationError: ``tokenizer.json`` is missing or damaged.
    """
    built_in = checkpoint.family.text_tokenizer(checkpoint.config)
    if built_in is not None:
        return built_in
    info = checkpoint.model.tokenizer
    if info is None:
        raise UsageError(
            f"{checkpoint.path} has no {TOKENIZER}, which text tasks need",
            "`zoo convert ... --tokenizer REF` adds one",
        )
    files = SourceFiles(checkpoint.path)
    tokenizer, path = load(files), files.path(TOKENIZER)
    check_vocabulary(tokenizer, checkpoint.config.vocab_size, str(path))
    return TextTokenizer(tokenizer, info, str(path))
