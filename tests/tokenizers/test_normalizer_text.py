"""What a plan says of a new tokenizer is what the tokenizer does."""

import pytest
from tokenizers import Tokenizer

from zoo.data.tokenizer import TokenizerToTrain
from zoo.plugins import get_family
from zoo.tokenizers.normalizer_text import LOWER_CASE, WITHOUT_ACCENTS, normalizer_text

TEXTS = ["Ärger im Café, naïve Ideen", "a cafe and an idea"] * 20
CASES = [
    ("bert", None),
    ("bert", True),
    ("albert", True),
    ("gpt", True),
    ("gpt", None),
    ("albert", None),
    ("t5", None),
]


@pytest.mark.parametrize(("family", "lowercase"), CASES)
def test_it_says_what_becomes_of_case_and_accents(family: str, lowercase: bool | None) -> None:
    settings = TokenizerToTrain.for_family(get_family(family), vocab_size=400, lowercase=lowercase)
    before = settings.description()
    trained = settings.make(lambda: [TEXTS]).json
    normalizer = Tokenizer.from_buffer(trained).normalizer
    text = normalizer.normalize_str("É") if normalizer else "É"
    words = normalizer_text(trained)
    assert before == f"{settings.type} of at most 400 tokens, to be trained; {words}"
    assert (LOWER_CASE in words) is (text.lower() == text)
    assert (WITHOUT_ACCENTS in words) is (text.lower() == "e")


def test_unicode_forms_are_named() -> None:
    parts = '[{"type": "NFKC"}, {"type": "Lowercase"}]'
    contents = f'{{"normalizer": {{"type": "Sequence", "normalizers": {parts}}}}}'
    assert normalizer_text(contents.encode()) == "Unicode in NFKC, lower case"
    assert normalizer_text(b'{"normalizer": null}') == "case and accents kept"
