"""Files of OpenVINO that are not an IR: refused before its parsers of other formats print them."""

from pathlib import Path

import pytest

from zoo.errors import VerificationError
from zoo.exporting.targets.openvino.write import read_model

CONTROLS = b"\x01\x11\x1b[31m"
TEXT_OF_TENSORFLOW = b'node { name: "a' + CONTROLS + b"\n"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'"*R=' + CONTROLS + b"\n",
        TEXT_OF_TENSORFLOW,
        b"<html/>",
        b"<net/>",
        b'<net version="x"/>',
        b'<?xml version="1.0"?>' + TEXT_OF_TENSORFLOW,
        b"<!--" + b"-" * 5000 + b"--><net/>",
    ],
)
def test_other_files_are_refused_without_a_word_of_theirs(
    content: bytes, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "openvino_model.xml"
    path.write_bytes(content)
    with pytest.raises(VerificationError, match=r"openvino_model\.xml is not an IR of OpenVINO"):
        read_model(path)
    assert capfd.readouterr() == ("", "")


def test_a_damaged_ir_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "openvino_model.xml"
    path.write_bytes(b'<?xml version="1.0"?><net version="11"><layers>' + CONTROLS)
    with pytest.raises(VerificationError, match=r"OpenVINO .* refuses it"):
        read_model(path)
    assert capfd.readouterr() == ("", "")
