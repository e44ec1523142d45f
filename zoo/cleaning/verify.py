"""Checks of cleaned texts on disk: the record, the digests of the files, and their texts."""

from functools import partial
from pathlib import Path

import msgspec

from zoo.cleaning.records import REMEDY, CleaningRecord, read_cleaning_record
from zoo.data.readers.text_io import read_lines
from zoo.errors import VerificationError
from zoo.io.digests.checks import Check, run_check
from zoo.io.digests.files import check_files, check_strays
from zoo.io.output.overwrite import CLEANING_RECORD


class CleanedText(msgspec.Struct):
    """A row of a part."""

    text: str
    id: str


def verify_cleaned_texts(path: Path) -> list[Check]:
    """Check the record of cleaned texts, the digest of every file, and the number of texts.

    Every byte of every file is read. Files that the record does not list are errors, except for
    hidden ones.
    """
    checks = [run_check("record", partial(check_record, path))]
    for name, check in (("digests", check_digests), ("contents", check_contents)):
        if checks[-1].outcome == "ok":
            record = read_cleaning_record(path)
            checks.append(run_check(name, partial(check, path, record)))
        else:
            checks.append(Check(name, "not run", "see above"))
    return checks


def check_record(path: Path) -> str:
    """Read the record, which compares it with its digest."""
    record = read_cleaning_record(path)
    if not record.stages:
        raise VerificationError(f"{path / CLEANING_RECORD} has no stages", REMEDY)
    return "as it was written"


def check_digests(path: Path, record: CleaningRecord) -> str:
    """Check that the files match the record, and that there are no others."""
    detail = check_files(path, record.files, CLEANING_RECORD, hint=REMEDY)
    check_strays(path, record.files, CLEANING_RECORD, hint="remove them")
    return detail


def check_contents(path: Path, record: CleaningRecord) -> str:
    """Check that the files have as many texts and characters as were left after the last stage."""
    texts = 0
    characters = 0
    for name in record.files:
        for number, line in enumerate(read_lines(path / name, rows=True), 1):
            if not line:
                continue
            try:
                row = msgspec.json.decode(line, type=CleanedText)
            except msgspec.DecodeError as error:
                raise VerificationError(f"{path / name}:{number}: {error}", REMEDY) from error
            texts += 1
            characters += len(row.text)
    left = record.stages[-1]
    if (texts, characters) != (left.texts, left.characters):
        raise VerificationError(
            f"{path} has {texts:,} texts of {characters:,} characters, and {CLEANING_RECORD} says "
            f"{left.texts:,} of {left.characters:,}",
            REMEDY,
        )
    return f"{texts:,} texts"
