"""Errors of requests for exceptions."""

import pytest

from zoo.errors import UsageError
from zoo.inference.processing.records import validate_text
from zoo.io.limits import MAX_TEXT_CHARACTERS
from zoo.serving.errors import request_error


def test_a_text_of_too_many_characters_is_too_large() -> None:
    with pytest.raises(UsageError) as raised:
        validate_text("a" * (MAX_TEXT_CHARACTERS + 1), "text 1")
    assert request_error(raised.value).status == 413
    with pytest.raises(UsageError) as raised:
        validate_text("\ud800", "text 1")
    assert request_error(raised.value).status == 400
