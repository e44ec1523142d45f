"""The tables of large jobs are calculated from constants, and the page has the current ones."""

import pytest

from tools.scale import CONSTANTS, PAGE, duration, size, texts_rows, tokens_rows, written


def test_the_page_is_current() -> None:
    page = PAGE.read_text("utf-8")
    assert written(page) == page


def test_a_row_by_hand() -> None:
    _, texts = texts_rows(CONSTANTS)
    # 10^9 texts in 64 cores at 146 a second: 107,000 s. 4 bytes for each of 384 numbers.
    assert texts[:2] == ["10^9", "30 h"]
    assert texts[3] == "1.5 TB"
    *_, tokens = tokens_rows(CONSTANTS)
    # 3.99e11 bytes at 2.1 MB a second in 64 cores: 2,970 s. 8 bytes for each of 2e8 documents.
    assert tokens == ["10^11", "400 GB", "49 min", "240 GB", "1.6 GB", "6.6 h"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0763, "76 ms"), (7.63, "7.6 s"), (1070, "18 min"), (5.3 * 3600, "5.3 h"), (1e6, "12 days")],
)
def test_times_have_two_digits(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("gigabytes", "text"), [(0.016, "16 MB"), (15.4, "15 GB"), (640, "640 GB")]
)
def test_sizes_have_two_digits(gigabytes: float, text: str) -> None:
    assert size(gigabytes) == text
