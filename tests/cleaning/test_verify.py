"""Verification of cleaned texts: what was changed, added or removed is named."""

import gzip
import json
import shutil
from pathlib import Path

import pytest

from tests.cleaning.making import PROSE, write_texts
from tests.in_process import exit_code
from zoo.cleaning.verify import verify_cleaned_texts
from zoo.io.digests.files import hash_file
from zoo.io.digests.self_digest import NO_DIGEST, add_digest

PART = "texts/00000.jsonl.gz"


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cleaned")
    texts = [PROSE, "Too short to be a page of prose.", PROSE.replace("Monday", "Friday"), PROSE]
    source = write_texts(folder / "a.jsonl", texts)
    words = ["corpus", "clean", str(source), "-o", str(folder / "clean"), "--rule", "c4", "--quiet"]
    assert exit_code(words) == 0
    return folder / "clean"


@pytest.fixture
def cleaned(intact: Path, tmp_path: Path) -> Path:
    shutil.copytree(intact, tmp_path / "clean")
    return tmp_path / "clean"


def failure(path: Path) -> str:
    (failed,) = [check for check in verify_cleaned_texts(path) if check.outcome == "failed"]
    return failed.detail


def test_intact_texts_pass(cleaned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["verify", str(cleaned)]) == 0
    assert "3 texts" in capsys.readouterr().out
    assert exit_code(["info", str(cleaned), "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["stages"][-1]["texts"] == 3
    assert value["stages"][-1]["characters"] == 3 * len(PROSE)


def test_what_was_changed_is_named(cleaned: Path) -> None:
    part = cleaned / PART
    content = part.read_bytes()
    part.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    assert str(part) in failure(cleaned)
    part.unlink()
    assert f"{part} is missing" in failure(cleaned)
    part.write_bytes(content)
    (cleaned / "texts" / "more.jsonl.gz").write_bytes(content)
    assert "more.jsonl.gz" in failure(cleaned)


def test_a_changed_record_is_named(cleaned: Path) -> None:
    record = cleaned / "cleaning.json"
    content = record.read_text()
    assert '"texts": 4' in content
    record.write_text(content.replace('"texts": 4', '"texts": 5'))
    assert "cleaning.json was changed" in failure(cleaned)
    assert exit_code(["verify", str(cleaned)]) == 3


def test_the_number_of_texts_is_counted(cleaned: Path) -> None:
    """A part with a text less, whose digest is in a record with a right digest of its own."""
    part = cleaned / PART
    with gzip.open(part) as file:
        lines = file.readlines()
    part.write_bytes(gzip.compress(b"".join(lines[:-1])))
    path = cleaned / "cleaning.json"
    record = json.loads(path.read_text())
    digest = hash_file(part)
    record["files"][PART] |= {"bytes": digest.bytes, "blake3": digest.blake3}
    record["digest"] = NO_DIGEST
    path.write_bytes(add_digest(json.dumps(record).encode()))
    assert f"2 texts of {2 * len(PROSE):,} characters" in failure(cleaned)
