"""Pictures of ``zoo look``: what they show, and that their texts are legible and safe."""

import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy as np
import pytest

from tests.inspection.test_page import made_up
from zoo.errors import UsageError
from zoo.inspection.formats import PictureSettings
from zoo.inspection.inspection import AttentionMaps, Look
from zoo.inspection.picture import draw

SVG = "{http://www.w3.org/2000/svg}"
# Widths of DejaVu Sans Mono at 11 pixels, the widest of the fonts that the style names.
CHARACTER = 0.602 * 11
Box = tuple[float, float, float, float]


def cells(picture: str) -> list[tuple[str, float, float]]:
    """Return name, value and opacity of each cell."""
    found = []
    for cell in ElementTree.fromstring(picture).iter(f"{SVG}rect"):
        title = cell.find(f"{SVG}title")
        if title is not None and title.text is not None:
            name, _, value = title.text.rpartition(": ")
            found.append((name, float(value), float(cell.get("fill-opacity", ""))))
    return found


def texts(picture: str, name: str) -> list[str]:
    """Return the texts of a class."""
    elements = ElementTree.fromstring(picture).iter(f"{SVG}text")
    return [each.text or "" for each in elements if name in (each.get("class") or "").split()]


def token_boxes(picture: str) -> list[tuple[str, Box]]:
    """Return the texts of tokens with left, top, right and bottom, within their panel."""
    boxes = []
    for element in ElementTree.fromstring(picture).iter(f"{SVG}text"):
        classes = (element.get("class") or "").split()
        if "token" not in classes:
            continue
        text = element.text or ""
        width = CHARACTER * len(text)
        transform = element.get("transform")
        if transform:  # It is turned, and goes up from its place.
            place = transform.partition("(")[2].partition(")")[0]
            across, down = map(float, place.split())
            boxes.append((text, (across - 9, down - width, across + 2, down)))
            continue
        across, down = float(element.get("x", "")), float(element.get("y", ""))
        if "end" in classes:
            across -= width
        if "middle" in classes:
            across -= width / 2
        boxes.append((text, (across, down - 9, across + width, down + 2)))
    return boxes


LONG = "Donaudampfschifffahrtsgesellschaftskapitän"
CASES = [
    PictureSettings("attention"),
    PictureSettings("similarity", layer=0),
    PictureSettings("predictions"),
    PictureSettings("predictions", layer=1),
]


@pytest.mark.parametrize("settings", CASES, ids=str)
def test_long_tokens_do_not_overlap_and_stay_inside(settings: PictureSettings) -> None:
    look = made_up([LONG, "a", *[f"{LONG}{number}" for number in range(20)], "[SEP]"])
    look.texts[0].stacks[0].predictions[0].tokens[1][2][0] = LONG
    picture = draw(look, settings)
    _, _, width, height = map(float, ElementTree.fromstring(picture).get("viewBox", "").split())
    boxes = token_boxes(picture)
    assert len(boxes) > 40
    for number, (text, (left, top, right, bottom)) in enumerate(boxes):
        assert left >= -1 and top >= -1 and right <= width and bottom <= height, text
        for other, (other_left, other_top, other_right, other_bottom) in boxes[:number]:
            is_beside = right <= other_left or left >= other_right
            is_above = bottom <= other_top or top >= other_bottom
            assert is_beside or is_above, (text, other)
    # A wide table continues below, so that a page can hold it.
    assert width < 1300


def test_a_token_cannot_leave_its_place_in_a_picture() -> None:
    evil = '</text><script>alert("x")</script>\x1b[31m'
    for settings in CASES:
        picture = draw(made_up([evil, "b", "c"]), settings)
        root = ElementTree.fromstring(picture)
        assert list(root.iter(f"{SVG}script")) == [] and "\x1b" not in picture
        titles = [title.text or "" for title in root.iter(f"{SVG}title")]
        if settings.view != "predictions":
            assert len([title for title in titles if evil[:-5] in title]) == 5


def test_similarity_of_two_texts_is_the_cosine_of_their_words() -> None:
    look = made_up(["[CLS]", "un", "##likely", "bank"], ["the", "bank", "##er"])
    shown = {name: value for name, value, _ in cells(draw(look, CASES[1]))}
    one, other = (view.stacks[0].hidden[0] for view in look.texts)
    unlikely, banker = one[1] + one[2], other[1] + other[2]  # A mean has the direction of the sum.
    expected = unlikely @ banker / np.sqrt((unlikely @ unlikely) * (banker @ banker))
    assert shown["unlikely \N{RIGHTWARDS ARROW} banker"] == pytest.approx(expected, abs=1e-4)
    assert len(shown) == 3 * 2


def test_predictions_are_those_of_all_layers_or_all_of_one() -> None:
    look = made_up(["a", "b"])
    predictions = look.texts[0].stacks[0].predictions[0]
    all_layers = draw(look, PictureSettings("predictions"))
    names = texts(all_layers, "end")
    assert names == ["layer 3", "layer 2", "layer 1", "embeddings"]
    values = sorted(value for _, value, _ in cells(all_layers))
    np.testing.assert_allclose(values, np.sort(predictions.probabilities[:, :, 0], None), atol=1e-4)
    one_layer = draw(look, PictureSettings("predictions", layer=2))
    values = sorted(value for _, value, _ in cells(one_layer))
    np.testing.assert_allclose(values, np.sort(predictions.probabilities[2], None), atol=1e-4)


def without_attention(look: Look) -> Look:
    (view,) = look.texts
    (stack,) = view.stacks
    return replace(look, texts=[replace(view, stacks=[replace(stack, attention=[])])])


def test_a_model_without_attention_shows_similarity() -> None:
    look = without_attention(made_up(["a", "b"]))
    assert texts(draw(look, PictureSettings()), "heading") == ["Cosine of words, layer 3"]
    for settings in (PictureSettings("attention"), PictureSettings(head=1)):
        with pytest.raises(UsageError, match="no attention"):
            draw(look, settings)


def test_an_encoder_decoder_shows_all_its_maps() -> None:
    look = made_up(["a", "b", "c"])
    (view,) = look.texts
    (encoder,) = view.stacks
    cross = AttentionMaps("cross", [1, 2, 3], np.full((3, 4, 2, 3), 1 / 3))
    own = AttentionMaps("self", [1, 2, 3], np.full((3, 4, 2, 2), 1 / 2))
    decoder = replace(
        encoder, name="decoder", shown=["x", "y"], attention=[own, cross], predictions=[]
    )
    stacks = [replace(encoder, name="encoder"), decoder]
    picture = draw(replace(look, texts=[replace(view, stacks=stacks)]), PictureSettings(layer=2))
    mean = "Attention, layer 2, mean of 4 heads"
    headings = [f"{mean}: encoder", f"{mean}: decoder", f"{mean}: decoder to encoder"]
    assert texts(picture, "heading") == headings
    arrow = "\N{RIGHTWARDS ARROW}"
    assert (f"y {arrow} c", 0.3333, 0.577) in cells(picture)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (PictureSettings("attention", layer=4), "layers with attention are 1, 2, 3"),
        (PictureSettings("attention", head=5), "no head 5 in layer 3; its heads are 1 to 4"),
        (PictureSettings("similarity", layer=4), "no layer 4; its layers are 0 to 3"),
        (PictureSettings("predictions", layer=9), "no layer 9; its layers are 0 to 3"),
    ],
)
def test_a_missing_layer_or_head_names_those_that_exist(
    settings: PictureSettings, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        draw(made_up(["a", "b"]), settings)
