"""A few minutes of the soak."""

import sys

import pytest

from tests.serving import soak


def test_an_answer_has_its_parts() -> None:
    plain = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    assert soak.parse_answer(plain) == (200, b"ok", b"")
    assert soak.parse_answer(plain + plain) == (200, b"ok", plain)
    chunks = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
    assert soak.parse_answer(chunks) == (200, b"abc", b"")
    for part in (b"", plain[:10], plain[:-1], chunks[:-6], chunks[:-12]):
        with pytest.raises(soak.NoAnswer):
            soak.parse_answer(part)


def test_two_answers_and_wrong_ones_are_faults() -> None:
    assert soak.require(soak.Answer(200, b"", b""), 200) == "200"
    assert soak.require(soak.Answer(429, b"", b""), 200) == "429"
    for answer in (soak.Answer(200, b"", b"x"), soak.Answer(500, b"", b"")):
        with pytest.raises(soak.Fault):
            soak.require(answer, 200)


@pytest.mark.long
def test_minutes_of_requests_and_kills(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["soak", "--minutes", "3", "--clients", "8"])
    with pytest.raises(SystemExit) as ended:
        soak.main()
    report = capsys.readouterr()
    assert ended.value.code == 0, report.err + report.out
    assert "faults: 0" in report.out
    assert "checked: " in report.out
    for action in soak.ACTIONS:
        assert action.__name__ in report.out
