import io
import json
import shlex
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from tests.inference.conftest import Small
from zoo.api import Model
from zoo.checkpoint import load_checkpoint
from zoo.cli import cli
from zoo.errors import UsageError, VerificationError
from zoo.inference.embed import Embed
from zoo.inference.processing.inputs import read_records
from zoo.inference.processing.records import TextExample, as_records
from zoo.inference.task import CHUNK_CHARACTERS_PER_TOKEN
from zoo.inference.torch_session import TorchSession
from zoo.plugins.tasks import commands
from zoo.tasks import make_task
from zoo.tokenizers import TextTokenizer


def test_json_records_keep_their_keys(encoder: Model) -> None:
    lines = b'{"id": "x", "text": "one", "tags": [1, {"a": null}]}\n{"text": "two", "n": 1.5}\n'
    task = Embed(encoder.checkpoint, encoder.session)
    first, second = task.run(read_records(["-"], stdin=io.BytesIO(lines)))
    assert list(first) == ["id", "text", "tags", "embedding"]
    assert (first["id"], first["tags"]) == ("x", [1, {"a": None}])
    assert (second["text"], second["n"], len(second["embedding"])) == ("two", 1.5, 384)
    json.dumps([first, second], allow_nan=False)


@pytest.mark.parametrize("key", ["embedding", "truncated"])
def test_a_key_that_the_task_writes_itself_is_refused(encoder: Model, key: str) -> None:
    task = Embed(encoder.checkpoint, encoder.session)
    with pytest.raises(UsageError, match=f"f:3 has the key '{key}', which embed writes itself"):
        list(task.run([TextExample("a", extra={key: 1}, location="f:3")]))


@pytest.mark.filterwarnings("ignore::zoo.inference.task.TaskWarning")
def test_input_is_read_a_window_ahead_and_no_further(
    small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, _ = small("BertModel")
    monkeypatch.setattr(Embed, "chunk_size", 8)
    taken = 0

    def endless() -> Iterator[str]:
        nonlocal taken
        for taken in count(1):
            yield "a" * (taken % 5)

    results = make_task("embed", model.checkpoint, model.session).run(as_records(endless()))
    assert taken == 0
    assert [r["text"] for r in islice(results, 8)] == ["a" * (k % 5) for k in range(1, 9)]
    assert taken == 8
    next(results)
    assert taken == 16


@pytest.mark.filterwarnings("ignore::zoo.inference.task.TaskWarning")
def test_long_texts_are_returned_after_a_few_batches(small: Small) -> None:
    """A chunk ends by characters, and progress is reported for each of its batches."""
    model, _ = small("BertModel")
    task = Embed(model.checkpoint, model.session, max_batch_tokens=128)
    texts = ["unknown " * 31 for _ in range(100)]
    taken = 0

    def counted() -> Iterator[str]:
        nonlocal taken
        for text in texts:
            taken += 1
            yield text

    reports: list[int] = []
    task.on_progress = reports.append
    results = task.run(as_records(counted()))
    next(results)
    assert taken * len(texts[0]) < 128 * CHUNK_CHARACTERS_PER_TOKEN + 2 * len(texts[0])
    assert len(reports) > 4
    assert sum(reports) == taken
    assert max(reports) <= 4
    assert len(list(results)) == 99
    assert sum(reports) == 100


def test_a_text_is_tokenized_once_without_offsets(
    encoder: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[list[str], bool]] = []
    encode = TextTokenizer.encode

    def counted(self: Any, texts: Any, *, offsets: bool = True, **options: Any) -> Any:
        calls.append((list(texts), offsets))
        return encode(self, texts, offsets=offsets, **options)

    monkeypatch.setattr(TextTokenizer, "encode", counted)
    encoder.embed(["one"])
    assert calls == [(["one"], False)]


def test_what_stands_before_a_bad_record_is_returned_first(encoder: Model) -> None:
    lines = b'{"text": "one"}\n{"text": "two"}\n{"txt": "three"}\n{"text": "four"}\n'
    results = Embed(encoder.checkpoint, encoder.session).run(
        read_records(["-"], stdin=io.BytesIO(lines))
    )
    assert [next(results)["text"], next(results)["text"]] == ["one", "two"]
    with pytest.raises(UsageError, match="standard input:3 has no text"):
        next(results)


def test_what_stands_before_a_text_that_the_task_refuses_is_returned_first(small: Small) -> None:
    model, _ = small("BertForMaskedLM")
    task = make_task("fill-mask", model.checkpoint, model.session)
    for bad in (["a", "[MASK]"], ["b", 3]):
        results = task.run(as_records(["[MASK] a", *bad]))
        assert next(results)["text"] == "[MASK] a"
        with pytest.raises(UsageError, match="text 2 has no mask token"):
            next(results)


@pytest.mark.by_default("8")
@pytest.mark.parametrize("count", [0, 7, 8, 9, 16])
def test_every_record_of_every_window_is_returned(encoder: Model, count: int) -> None:
    task = Embed(encoder.checkpoint, encoder.session)
    task.chunk_size = 8
    assert len(list(task.run(as_records(["a"] * count)))) == count


@pytest.mark.filterwarnings("ignore::zoo.inference.task.TaskWarning")
def test_numbers_that_are_none_name_the_text(small: Small) -> None:
    model, _ = small("BertModel")
    session = model.session
    assert isinstance(session, TorchSession)
    with torch.no_grad():
        session.model.get_parameter("embeddings.tokens.weight")[7] = float("nan")  # the token c
    assert len(model.embed(["a b", "d"])) == 2
    for name in ("embed", "features"):
        task = make_task(name, model.checkpoint, session)
        with pytest.raises(
            VerificationError, match=r"model.*: text 2: the model returned NaN or infinity"
        ):
            list(task.run(as_records(["a", "b c", "a a a a"])))


@pytest.mark.parametrize(
    ("architecture", "task", "hint"),
    [
        ("BertModel", "fill-mask", "--head masked-lm or pretraining"),
        ("BertModel", "classify", "train the head sequence-classification or token-classification"),
        ("BertForMaskedLM", "embed", "--head none"),
    ],
)
def test_a_head_that_does_not_serve_a_task_is_named(
    small: Small, architecture: str, task: str, hint: str
) -> None:
    model, _ = small(architecture)
    with pytest.raises(UsageError) as caught:
        make_task(task, model.checkpoint, model.session)
    assert f"has the head {model.checkpoint.head_name}, which serves" in caught.value.what
    assert hint in caught.value.hint


def test_the_command_that_leaves_a_head_out_works(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, _ = small("BertForMaskedLM")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        make_task("embed", model.checkpoint, model.session)
    words = shlex.split(caught.value.hint.split("`")[1])
    done = CliRunner().invoke(cli, words[1:])
    assert done.exception is None, done.exception
    assert load_checkpoint(Path(words[-1])).head_name == "none"


def test_an_unknown_task_lists_the_nearest(encoder: Model) -> None:
    with pytest.raises(UsageError, match=r"no task is called 'fillmask'; did you mean fill-mask"):
        make_task("fillmask", encoder.checkpoint, encoder.session)
    assert set(commands()) >= {"embed", "fill-mask", "features", "classify", "generate", "seq2seq"}


@pytest.mark.parametrize("max_tokens", [0, 257])
def test_a_length_that_the_model_cannot_take_is_refused(encoder: Model, max_tokens: int) -> None:
    with pytest.raises(UsageError, match="the model takes 1 to 256"):
        make_task("embed", encoder.checkpoint, encoder.session, max_tokens=max_tokens)


def test_a_length_without_room_for_text_is_refused(encoder: Model) -> None:
    task = make_task("embed", encoder.checkpoint, encoder.session, max_tokens=2)
    with pytest.raises(UsageError, match="no room for text"):
        list(task.run(as_records(["one two"])))
