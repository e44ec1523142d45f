"""The tokenizer of a model, without its weights."""

from zoo.tokenizers import TextTokenizer


def text_tokenizer(ref: str, *, offline: bool = False) -> TextTokenizer:
    """Return the tokenizer of a model or a corpus; weights on the Hub are not downloaded.

    Raises:
        ZooError: the reference is unknown, or its model has no tokenizer.
    """
    from tokenizers import Tokenizer

    from zoo.checkpoint import is_checkpoint, load_text_tokenizer
    from zoo.conversion.cache import resolve_checkpoint
    from zoo.data.readers.documents import CORPUS_MANIFEST
    from zoo.data.tokenizer import load_tokenizer
    from zoo.hub.reference import resolve

    reference = resolve(ref)
    is_corpus = reference.path is not None and (reference.path / CORPUS_MANIFEST).is_file()
    if is_corpus:
        tokenizer_file = load_tokenizer(ref)
    elif reference.path is not None or is_checkpoint(reference.stored):
        return load_text_tokenizer(resolve_checkpoint(ref, offline=offline))
    else:
        tokenizer_file = load_tokenizer(ref, offline=offline)
    return TextTokenizer(Tokenizer.from_buffer(tokenizer_file.json), tokenizer_file.info)
