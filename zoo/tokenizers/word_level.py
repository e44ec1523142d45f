"""Tokenizers whose tokens are the words of a file of word vectors."""

from collections.abc import Mapping
from typing import Any

from zoo.io.json import dump_json
from zoo.tokenizers.source_files import TOKENIZER_JSON


def word_level_files(metadata: Mapping[str, Any]) -> dict[str, bytes]:
    """Return ``tokenizer.json`` of a tokenizer that looks words up in a list.

    A text is split into runs of letters, digits and underscores, and runs of other characters that
    are not spaces. It is lower-cased if no word has a capital letter: most published vectors are of
    lower-cased text, whose words others never match.

    Args:
        metadata: ``words`` in the order of their ids, and ``unknown_word``, which has the id after
            them and stands for all others.
    """
    words = [*metadata["words"], metadata["unknown_word"]]
    has_capitals = any(word != word.lower() for word in metadata["words"])
    definition: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None if has_capitals else {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {word: number for number, word in enumerate(words)},
            "unk_token": metadata["unknown_word"],
        },
    }
    return {TOKENIZER_JSON: dump_json(definition).encode()}
