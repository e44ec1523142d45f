"""What notebooks show: models, results, tokenizations, and progress."""

import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zoo
from tests import checkpoints
from tests.inference import conftest
from tests.inference.conftest import Small
from zoo.errors import UsageError
from zoo.evaluation.base import Result
from zoo.report.cells import MAX_ROWS, table_cell

small, hub_checkpoint = conftest.small, checkpoints.hub_checkpoint
EVIL = "<script>alert(1)</script>\x1b[31m"


class Tags(HTMLParser):
    """The tags of a page, and whether each that was opened is closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.names.add(tag)
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def cell(value: Any) -> str:
    """Return the HTML of a value, which is a whole piece without scripts."""
    page: str = value._repr_html_()
    tags = Tags(page)
    assert tags.open == [] and "script" not in tags.names
    return page


@pytest.mark.filterwarnings("ignore::zoo.inference.task.TaskWarning")
def test_one_text_has_one_vector(small: Small) -> None:
    model, _ = small("BertModel")
    vector = model.embed("a b")
    assert vector.shape == (32,)
    np.testing.assert_array_equal(vector, model.embed(["a b"])[0])


def test_a_model_says_what_it_is(small: Small) -> None:
    model, source = small("BertModel")
    import transformers

    count = transformers.BertModel.from_pretrained(source).num_parameters()
    assert repr(model) == (
        f"<zoo model model: bert, head none, 2 layers of 32, {count:,} parameters, "
        "cpu on cpu, float32>"
    )
    assert f">{count:,}<" in cell(model)
    size = len(transformers.AutoTokenizer.from_pretrained(source))
    limit = model.tokenizer.max_tokens
    assert repr(model.tokenizer).startswith(f"<WordPiece tokenizer of {size:,} tokens, texts of ")
    assert limit is None or f"{limit:,} tokens>" in repr(model.tokenizer)


def test_a_tokenization_lists_its_tokens(small: Small) -> None:
    model, _ = small("BertModel")
    (encoded,) = model.tokenizer.encode(["a b"], max_tokens=None)
    assert repr(encoded) == "<4 tokens: [CLS] a b [SEP]>"
    cells = re.findall(r"<td>(.*?)</td>", cell(encoded))
    assert cells[::3] == encoded.tokens
    assert cells[1::3] == [str(number) for number in encoded.ids]
    assert cells[2::3] == ["0 to 0", "0 to 1", "2 to 3", "0 to 0"]


def test_a_look_is_its_page_in_a_frame(small: Small) -> None:
    model, _ = small("BertForMaskedLM")
    look = model.look(["a b", "c"], max_seq_len=8)
    page = cell(look)
    (source,) = re.findall(r'srcdoc="([^"]*)"', page)
    assert unescape(source) == look.to_html()
    assert 'sandbox="allow-scripts"' in page
    assert (
        look.to_json()["texts"]
        == zoo.look(model.checkpoint.path, ["a b", "c"], max_seq_len=8).to_json()["texts"]
    )
    assert repr(look) == "<look of model at 'a b', 'c'>"
    wrong_arguments: list[dict[str, Any]] = [
        {"texts": []},
        {"texts": "a", "top_k": 0},
        {"texts": "a", "max_seq_len": 0},
    ]
    for arguments in wrong_arguments:
        with pytest.raises(UsageError):
            model.look(**arguments)


def test_results_are_tables(small: Small, tmp_path: Path) -> None:
    model, source = small("BertModel")
    path = model.checkpoint.path
    assert "round trip" in cell(zoo.convert(source, output=tmp_path / "again"))
    assert "digests" in cell(zoo.verify(path, parity=False))
    rows = zoo.run("features", path, ["a", "b"])
    assert cell(rows).count("<tr>") == 3
    result = Result({"accuracy": 0.5, "f1": 2 / 3}, {"intervals": {"accuracy": (0.25, 0.75)}})
    assert "0.2500 to 0.7500" in cell(result) and "0.666667" in cell(result)


def test_texts_of_strangers_are_texts() -> None:
    page = table_cell(EVIL, (EVIL,), [(EVIL,)] * (MAX_ROWS + 1))
    assert "<script" not in page and "\x1b" not in page
    assert page.count("&lt;script&gt;") == MAX_ROWS + 2
    assert f"the first {MAX_ROWS} of {MAX_ROWS + 1} rows" in page
