"""The tokenizer of a model, without its weights."""

from zoo.tokenizers import TextTokenizer


def text_tokenizer(ref: str, *, offline: bool = False) -> TextTokenizer:
    """Return the tokenizer of a model reference; of one on the Hub, weights are not downloaded."""
    # A reference that is unknown or has no tokenizer is a ``ZooError``.
    from tokenizers import Tokenizer

    from zoo.checkpoint import is_checkpoint, load_text_tokenizer
    from zoo.conversion.cache import resolve_checkpoint
    from zoo.data.tokenizer import load_tokenizer
    from zoo.hub.reference import resolve

    reference = resolve(ref)
    if reference.path is not None or is_checkpoint(reference.stored):
        return load_text_tokenizer(resolve_checkpoint(ref, offline=offline))
    found = load_tokenizer(ref, offline=offline)
    return TextTokenizer(Tokenizer.from_buffer(found.json), found.info)
