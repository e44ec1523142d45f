"""The fuzzer: a case of each newer reader, and detection of misbehaving readers."""

import faulthandler
import json
import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest

from tests import warm
from tests.fuzz.campaign import campaign, plan, summarise
from tests.fuzz.case import Outcome, Runner, place_of_check, refusal_fault
from tests.fuzz.octets import BYTES
from tests.fuzz.reader import Reader
from tests.fuzz.readers import all_readers
from tests.fuzz.records import dump_message, message_mutation, parse_message
from tests.fuzz.trees import dump, json_mutation, parse
from zoo.errors import VerificationError
from zoo.io.files import read_regular
from zoo.io.json import JsonStruct, parse_json_record


class Named(JsonStruct):
    a: str


# readers of directories and tables that other libraries write
NEWER = (
    "peft",
    "adapterhub",
    "gguf",
    "gguf-quantized",
    "model2vec",
    "modules",
    "colbert",
    "setfit",
    "trec",
    "beir",
    "parquet-lists",
    "openvino",
    "ctranslate2",
)
# The trace of a graph takes as long as all other cases, and two read what those before them read.
BY_FEW_CASES = ("openvino", "adapterhub", "gguf-quantized")

PROGRAM = """
import json, time
from dataclasses import asdict
from pathlib import Path
from tests.fuzz.campaign import work
for outcome in work({cases}, 1, time.time() + 1200, Path({keep!r})):
    print(json.dumps(asdict(outcome)), flush=True)
"""


def outcomes_of_warm_process(cases: Sequence[tuple[str, int]], keep: Path) -> Iterator[Outcome]:
    """Run cases as ``campaign`` does, in a process that has imported most of what they need."""
    done = warm.python(PROGRAM.format(cases=list(cases), keep=str(keep)), keep)
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        yield Outcome(**json.loads(line))


@pytest.mark.parametrize(
    "cases",
    [
        pytest.param(1, id="one"),
        pytest.param(4, id="few", marks=pytest.mark.long),
        pytest.param(8, id="eight", marks=pytest.mark.long),
        pytest.param(50, id="fifty", marks=pytest.mark.long),
    ],
)
def test_damaged_and_hostile_files_are_read_or_refused(cases: int, tmp_path: Path) -> None:
    names = [name for name in NEWER if cases > 1 or name not in BY_FEW_CASES]
    planned = [(name, number) for number in range(cases) for name in names]
    if cases == 1:
        outcomes = outcomes_of_warm_process(planned, tmp_path)
    else:
        outcomes = campaign(planned, seed=cases, seconds=1200, jobs=1, keep=tmp_path)
    summaries = summarise(outcomes)
    assert {name: summary.cases for name, summary in summaries.items()} == dict.fromkeys(
        names, cases
    )
    assert [
        f"python -m tests.fuzz --reader {o.reader} --seed {o.seed} --case {o.number}: {o.failure}"
        for summary in summaries.values()
        for o in summary.failures
    ] == []


# Behaviour of the fuzzer


class Misbehaving(Reader):
    """Reader whose check misbehaves."""

    name = "misbehaving"
    targets = ("settings.json",)
    unusual = False

    def __init__(self, act: str) -> None:
        self.act = act

    def make(self, folder: Path) -> None:
        (folder / "scene").mkdir(parents=True)
        (folder / "scene" / "settings.json").write_text('{"a": [1, 2]}')

    def commands(self, random: Random) -> list[list[str]]:
        return [["--version"]]

    def check(self, folder: Path) -> str:
        if self.act == "crash":
            faulthandler.disable()  # enabled by pytest
            os.kill(os.getpid(), signal.SIGSEGV)
        elif self.act == "hang":
            while True:
                time.sleep(0.01)
        elif self.act == "grow":
            held = bytearray(900 << 20)
            held[:: 1 << 12] = b"x" * len(held[:: 1 << 12])
        return "a difference" if self.act == "differ" else ""


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[tuple[Path, Path, Path]]:
    (tmp_path / "scratch").mkdir()
    yield tmp_path / "examples", tmp_path / "scratch", tmp_path / "kept"


@pytest.mark.long
@pytest.mark.parametrize(
    ("act", "failure"),
    [
        ("nothing", ""),
        ("crash", "ends by -11"),
        ("hang", "hangs"),
        ("grow", "MB of memory"),
        ("differ", "a difference"),
    ],
)
def test_a_case_that_goes_wrong_is_a_failure_and_kept(
    act: str, failure: str, folders: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.fuzz.case.WALL_SECONDS", 2 if act == "hang" else 60)
    examples, scratch, failures = folders
    reader = Misbehaving(act)
    reader.make(examples / reader.name)
    outcome = Runner(examples, scratch, failures).run(reader, 0, 0)
    assert failure in outcome.failure
    assert bool(outcome.failure) == bool(failure)
    assert (failures / "misbehaving-0-0" / "outcome.json").exists() == bool(failure)


@pytest.mark.parametrize(
    ("code", "stderr", "fault"),
    [
        (3, "error: model.bin is damaged; download it again\n", ""),
        (1, "error: this is a bug in zoo\n", "exit code 1"),
        (3, "error: model.bin\nerror: all is well\n", "2 lines"),
        (3, "", "0 lines"),
        (3, "error: model.bin\nTraceback\n", "not the last line"),
        (3, "error: 1 row of model.bin\n  model.bin:3 is empty\n", ""),
        (3, "error: model.bin \x1b[31m\n", "control characters"),
        (3, "error: something is wrong\n", "names no file"),
        (3, f"error: model.bin {'x' * 5000}\n", "characters"),
    ],
)
def test_a_refusal_is_one_line_that_names_the_file(
    code: int, stderr: str, fault: str, tmp_path: Path
) -> None:
    (tmp_path / "model.bin").touch()
    assert fault in refusal_fault(code, stderr, tmp_path)
    assert bool(fault) == bool(refusal_fault(code, stderr, tmp_path))


def test_a_check_is_told_by_its_place_and_by_what_a_library_says() -> None:
    caught = list[BaseException]()
    for content in (b"{", b"[]", b'{"a": 1}', b"\xff"):
        with pytest.raises(VerificationError) as error:
            parse_json_record(content, "file.json", Named)
        caught.append(error.value)
    checks = [place_of_check([error]) for error in caught]
    assert len(set(checks)) == 4
    assert checks[0].startswith("zoo/io/json.py:") and "parse_json: JSONDecodeError" in checks[0]
    assert place_of_check([]) == "" and place_of_check([SystemExit(2)]) == "SystemExit"


def test_checks_of_sizes_are_told_apart_by_their_callers(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(9))
    with pytest.raises(VerificationError) as error:
        read_regular(tmp_path / "large", "file", 8)
    assert place_of_check([error.value]).startswith("zoo/io/files.py:")


def test_a_case_is_the_same_each_time_it_is_run(tmp_path: Path) -> None:
    data = b'{"a": [1, 2.5, "x"], "b": {"c": null}}'
    for change in (*BYTES, json_mutation):
        assert change(data, Random("7")) == change(data, Random("7"))


def test_trees_are_written_as_they_were_read() -> None:
    text = '{"a":[1,2.5,"x"],"a":{"c":null},"d":true}'
    assert dump(parse(text)) == text


@pytest.mark.long
def test_messages_are_written_as_they_were_read() -> None:
    from tests.tokenizers.trained import plain

    data = plain()
    fields = parse_message(data)
    assert fields is not None
    assert dump_message(fields) == data
    assert len({message_mutation(data, Random(str(seed))) for seed in range(30)}) > 25


def test_any_first_part_of_a_plan_has_all_readers() -> None:
    readers = list(all_readers().values())
    planned = plan(readers, 2000)
    assert len(planned) == pytest.approx(2000, rel=0.02)
    assert {name for name, _ in planned[:200]} == set(all_readers())
    assert len(set(planned)) == len(planned)
