"""The page of ``zoo look``: its size, its rounding, and its use with the keyboard alone."""

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tools.browser import BROWSER, Browser
from zoo.inspection.inspection import (
    AttentionMaps,
    InspectedWord,
    LayerPredictions,
    Look,
    Mix,
    StackView,
    TextView,
)
from zoo.inspection.page import encode_cosines, encode_probabilities, render

SHAPES = ((3, 4), (2, 2), (5, 2))  # layers and heads of models that are compared


def made_up(
    *texts: list[str],
    layers: int = 3,
    heads: int = 4,
    width: int = 8,
    mix: bool = False,
    causal: bool = False,
) -> Look:
    """Return numbers of a model, drawn at random; tokens that begin with ## continue a word."""
    rng = np.random.default_rng(0)

    def view(tokens: list[str]) -> TextView:
        count = len(tokens)
        scores = np.exp(rng.normal(size=(layers, heads, count, count)))
        scores = np.tril(scores) if causal else scores
        predictions = LayerPredictions(
            "token",
            list(range(layers + 1)),
            [[[f"word{k}" for k in range(5)] for _ in tokens] for _ in range(layers + 1)],
            rng.random((layers + 1, count, 5)),
        )
        names = ["embeddings", *(f"layer {k + 1}" for k in range(layers))]
        hidden: list[Any] = list(rng.normal(size=(layers + 1, count, width)))
        maps = AttentionMaps(
            "self", list(range(1, layers + 1)), scores / scores.sum(-1, keepdims=True)
        )
        stack = StackView("model", tokens, tokens, names, hidden, [maps], [predictions])
        words: list[InspectedWord] = []
        for place, token in enumerate(tokens):
            if token.startswith("##"):
                words[-1] = InspectedWord(words[-1].text + token[2:], [*words[-1].tokens, place])
            else:
                words.append(InspectedWord(token, [place]))
        return TextView(" ".join(tokens), 0, [] if causal else [1], [stack], words)

    mixes = [Mix([0.1, 0.2, 0.3, 0.4], 1.5)] if mix else []
    return Look("a/model", "bert", "masked-lm", [view(tokens) for tokens in texts], mixes)


def test_two_texts_of_64_tokens_and_a_large_model_fit_into_5_mb() -> None:
    tokens = [f"token{k}" for k in range(64)]
    page = render(made_up(tokens, tokens, layers=24, heads=16, width=1024))
    assert len(page.encode()) < 5_000_000


def test_bytes_stand_for_probabilities_and_cosines() -> None:
    values = np.linspace(0, 1, 1001)
    bytes_ = np.frombuffer(base64.b64decode(encode_probabilities(values)), np.uint8)
    assert np.abs((bytes_ / 255.0) ** 2 - values).max() < 0.004
    assert np.abs((bytes_ / 255.0) ** 2 - values)[:20].max() < 0.0006  # small ones are rounded less
    values = np.linspace(-1, 1, 1001)
    bytes_ = np.frombuffer(base64.b64decode(encode_cosines(values)), np.uint8)
    assert np.abs((bytes_.astype(float) - 127) / 127 - values).max() <= 0.5 / 127 + 1e-9


def test_a_text_cannot_leave_its_place_in_the_page() -> None:
    evil = "</script><script>alert('x')</script><!--"
    page = render(made_up([evil, "b", "c"]))
    assert evil not in page and page.count("<script") == 2
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert json.loads(data)["texts"][0]["stacks"][0]["tokens"] == [evil, "b", "c"]


def test_the_page_names_no_other_file() -> None:
    page = render(made_up(["a", "b"]))
    found = re.findall(r"""(?:src|href)=|url\(|@import|https?://(?!www\.w3\.org/2000/svg)""", page)
    assert found == []


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if BROWSER is None:
        pytest.skip("there is no Chromium on this machine")
    started = Browser()
    yield started
    started.close()


def focused(browser: Browser) -> str:
    return str(browser.evaluate("document.activeElement.getAttribute('title') || ''"))


def heading(browser: Browser) -> list[str]:
    found = "[...document.querySelectorAll('main h2')].map((h) => h.textContent)"
    return list(browser.evaluate(found))


@pytest.mark.by_default("light")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_keyboard_reaches_everything(browser: Browser, dark: bool, tmp_path: Path) -> None:
    page = tmp_path / "look.html"
    look = made_up(["[CLS]", "[MASK]", "bank"], ["[CLS]", "the", "bank", "is"], mix=True)
    page.write_text(render(look), "utf-8")
    browser.open(page, dark=dark)
    background = "getComputedStyle(document.body).backgroundColor"
    themes = ["rgb(252, 252, 251)", "rgb(22, 24, 27)"]
    assert browser.evaluate(background) == themes[dark]
    browser.press("t")
    assert browser.evaluate(background) == themes[not dark]
    browser.press("t")

    # from the tabs to the grid of heads, and to layer 2, head 3
    browser.press("1", "Tab", "ArrowRight", "ArrowRight", "ArrowDown")
    assert focused(browser) == "layer 2, head 3"
    assert heading(browser)[1].startswith("Layer 2, head 3")
    # the weights of the token that is chosen by arrows are the numbers of the model
    browser.press("Tab", "ArrowRight")
    assert "from bank" in heading(browser)[1]
    shown = browser.evaluate(
        "[...document.querySelectorAll('.tokens button[disabled]')].map((b) => b.title)"
    )
    weights = look.texts[0].stacks[0].attention[0].values[1, 2, 2]
    for title, weight in zip(shown, weights, strict=True):
        assert float(title.rpartition(": ")[2]) == pytest.approx(weight, abs=0.003)

    browser.press("x")  # the other text
    assert browser.evaluate("document.querySelectorAll('#query button').length") == 4
    browser.press("2", "Tab", "ArrowRight", "ArrowDown")
    assert heading(browser)[1] == "layer 2at bank"
    best = browser.evaluate("document.querySelector('.bars b').textContent")
    predictions = look.texts[1].stacks[0].predictions[0]
    assert float(best) == pytest.approx(predictions.probabilities[2, 2, 0], abs=0.006)

    # two tokens of both texts: their cosine in the chosen layer
    browser.press("3", "Tab", "ArrowLeft", "Tab", "ArrowLeft", "Tab", "ArrowRight")
    label = "document.querySelector('svg[aria-label^=embeddings]').getAttribute('aria-label')"
    similarity = look.similarities()
    chosen = browser.evaluate(
        "[...document.querySelectorAll('main .tokens')].map((row) =>"
        "[...row.children].findIndex((b) => b.getAttribute('aria-pressed') === 'true'))"
    )
    values = [float(part.split()[-1]) for part in browser.evaluate(label).split(", ")]
    expected = [layer[chosen[0], 3 + chosen[1]] for layer in similarity]
    np.testing.assert_allclose(values, expected, atol=0.01)

    assert browser.evaluate("document.getElementById('views').textContent") == "4"
    browser.press("4")
    shares = browser.evaluate("[...document.querySelectorAll('.bars b')].map((b) => b.textContent)")
    assert [float(share) for share in shares] == [0.1, 0.2, 0.3, 0.4]
    assert browser.problems() == []


def test_each_view_fits_on_a_phone(browser: Browser, tmp_path: Path) -> None:
    look = made_up(["[CLS]", "[MASK]", "bank"], heads=12, mix=True)
    page = tmp_path / "look.html"
    page.write_text(render(look), "utf-8")
    browser.open(page, width=390, mobile=True)
    heads = "document.querySelector('main .grid')"
    assert browser.evaluate(f"{heads}.scrollWidth - {heads}.clientWidth") == 0
    for key in "1234":
        browser.press(key)
        assert browser.evaluate("document.documentElement.scrollWidth") == 390, key


def test_words_of_several_tokens_are_compared(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "look.html"
    look = made_up(["[CLS]", "un", "##likely", "bank"], ["[CLS]", "the", "bank", "##er"])
    page.write_text(render(look), "utf-8")
    browser.open(page)
    browser.press("3")
    rows = "[...document.querySelectorAll('main .tokens')].map((r) => r.textContent)"
    assert browser.evaluate(rows) == ["[CLS]unlikelybank", "[CLS]thebanker"]
    browser.evaluate("document.querySelectorAll('#one button')[1].click()")
    browser.evaluate("document.querySelectorAll('#other button')[2].click()")
    label = "document.querySelector('svg[aria-label^=embeddings]').getAttribute('aria-label')"
    shown = [float(part.split()[-1]) for part in browser.evaluate(label).split(", ")]
    expected = []
    for one, other in zip(
        look.texts[0].stacks[0].hidden, look.texts[1].stacks[0].hidden, strict=True
    ):
        a, b = one[1] + one[2], other[2] + other[3]  # a mean has the direction of the sum
        expected.append(float(a @ b / np.sqrt((a @ a) * (b @ b))))
    np.testing.assert_allclose(shown, expected, atol=0.01)
    browser.evaluate(
        "(() => { const kind = document.getElementById('kind');"
        " kind.value = '1'; kind.onchange(); })()"
    )
    assert browser.evaluate(rows) == ["[CLS]un##likelybank", "[CLS]thebank##er"]
    assert browser.problems() == []


def test_there_is_nothing_to_choose_where_words_are_tokens(
    browser: Browser, tmp_path: Path
) -> None:
    page = tmp_path / "look.html"
    page.write_text(render(made_up(["a", "b", "c"])), "utf-8")
    browser.open(page)
    browser.press("3")
    assert browser.evaluate("document.getElementById('kind')") is None
    assert heading(browser)[1].startswith("All tokens")


@pytest.mark.by_default("light")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_decoder_begins_with_the_last_token(browser: Browser, dark: bool, tmp_path: Path) -> None:
    """The first one attends to itself only, with a text that stands out from its shade."""
    page = tmp_path / "look.html"
    page.write_text(render(made_up(["a", "b", "c"], causal=True)), "utf-8")
    browser.open(page, dark=dark)
    assert heading(browser)[1] == "Layer 1, head 1from c"
    browser.evaluate("document.querySelectorAll('#query button')[0].click()")
    listed = "[...document.querySelectorAll('.bars code')].map((code) => code.textContent)"
    assert browser.evaluate(listed) == ["a"], "what it cannot attend to is left out"
    first = "getComputedStyle(document.querySelector('.tokens button[disabled]'))"
    assert browser.evaluate(f"{first}.color") == (
        "rgb(13, 17, 23)" if dark else "rgb(255, 255, 255)"
    )
    assert browser.problems() == []


@pytest.mark.long
def test_several_models_share_a_page(browser: Browser, tmp_path: Path) -> None:
    look = made_up(["the", "bank"])
    (view,) = look.texts
    no_attention = [replace(view.stacks[0], attention=[])]
    elmo = replace(look, model="an/elmo", texts=[replace(view, stacks=no_attention)])
    decoder = made_up(["the", "river"], causal=True)
    page = tmp_path / "look.html"
    page.write_text(render(replace(look, compared=[elmo, decoder])), "utf-8")
    browser.open(page)
    selected = (
        "[...document.querySelectorAll('iframe')].map((frame) => "
        "frame.contentDocument.querySelector('[role=tab][aria-selected=true]').textContent)"
    )
    assert browser.evaluate(selected) == ["Attention", "Predictions", "Attention"]
    names = "[...document.querySelectorAll('#views button')].map((b) => b.textContent)"
    assert browser.evaluate(names) == ["Attention", "Predictions", "Similarity"]
    choose = "[...document.querySelectorAll('#views button')].find((b) => b.textContent === '{}')"
    browser.evaluate(f"{choose.format('Similarity')}.click()")
    assert browser.evaluate(selected) == ["Similarity"] * 3
    browser.evaluate(f"{choose.format('Attention')}.click()")
    assert browser.evaluate(selected) == ["Attention", "Similarity", "Attention"]
    shown = (
        "[...document.querySelectorAll('iframe')].map((frame) => {{ const page = "
        "frame.contentDocument.documentElement; return {}; }})"
    )
    # A frame has the height of its page once the next picture is drawn.
    browser.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
    cut = shown.format("page.scrollHeight > frame.clientHeight + 1")
    assert browser.evaluate(cut) == [False] * 3, "no frame scrolls"
    browser.evaluate("document.getElementById('theme').click()")
    assert browser.evaluate(shown.format("page.dataset.theme")) == ["dark"] * 3
    browser.open(page, width=390, mobile=True)
    assert browser.evaluate("document.documentElement.scrollWidth") == 390
    assert browser.problems() == []


def test_a_layer_and_a_head_are_chosen_in_all_models(browser: Browser, tmp_path: Path) -> None:
    """A model without the layer or the head keeps its own; each may be set alone."""
    page = tmp_path / "models.html"
    models = [made_up(["a", "b", "c"], layers=layers, heads=heads) for layers, heads in SHAPES]
    page.write_text(render(replace(models[0], compared=models[1:])), "utf-8")
    browser.open(page)

    def frames(value: str) -> Any:
        documents = "[...document.querySelectorAll('iframe')].map((frame) => frame.contentDocument)"
        return browser.evaluate(f"{documents}.map((page) => {value})")

    def attention() -> Any:
        return frames("page.querySelectorAll('main h2')[1].firstChild.textContent")

    def choose(name: str, value: str) -> None:
        browser.evaluate(
            f"(() => {{ const list = document.getElementById('{name}');"
            f" list.value = '{value}'; list.onchange(); }})()"
        )

    click = "document.querySelectorAll('iframe')[{}].contentDocument.querySelector('{}').click()"
    browser.evaluate(click.format(0, '[aria-label="layer 3, head 4"]'))
    assert attention() == ["Layer 3, head 4", "Layer 1, head 1", "Layer 3, head 1"]
    assert browser.evaluate("[layer.value, head.value]") == ["3", "4"]
    browser.evaluate(click.format(2, '[aria-label="layer 2, mean of heads"]'))
    assert attention() == ["Layer 2, mean of heads"] * 3
    choose("head", "2")
    assert attention() == ["Layer 2, head 2"] * 3
    choose("layer", "5")
    assert attention() == ["Layer 2, head 2"] * 2 + ["Layer 5, head 2"]
    browser.evaluate("same.click()")
    browser.evaluate(click.format(1, '[aria-label="layer 1, head 1"]'))
    assert attention() == ["Layer 2, head 2", "Layer 1, head 1", "Layer 5, head 2"]
    assert browser.evaluate("[layer.value, head.value]") == ["", ""]
    browser.evaluate("same.click()")
    view = "[...document.querySelectorAll('#views button')].find((b) => b.textContent === '{}')"
    browser.evaluate(f"{view.format('Predictions')}.click()")
    browser.evaluate(click.format(2, "tbody tr:nth-child(5) td:nth-child(4) button"))
    shown = "page.querySelectorAll('main h2')[1].textContent"
    assert frames(shown) == ["layer 1at b", "layer 1at b", "layer 1at c"]
    browser.evaluate(f"{view.format('Similarity')}.click()")
    choose("layer", "0")
    assert (
        frames("page.querySelectorAll('main h2')[1].textContent")
        == ["All tokensembeddings; a stronger color is more similar"] * 3
    )
    assert browser.problems() == []
