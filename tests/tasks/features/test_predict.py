from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from tests.inference.conftest import Small
from zoo.errors import UsageError
from zoo.tasks.features.predict import ExtractFeatures

TEXTS: list[str | tuple[str, str]] = ["a b ab", "", ("c d", "e")]


def expected(source: Path, text: Any) -> list["np.ndarray[Any, Any]"]:
    tokenizer, network = AutoTokenizer.from_pretrained(source), AutoModel.from_pretrained(source)
    pair = (text,) if isinstance(text, str) else text
    inputs = tokenizer(*pair, return_tensors="pt")
    with torch.inference_mode():
        states = network.eval()(**inputs, output_hidden_states=True).hidden_states
    return [state[0].numpy() for state in states]


def test_layers_are_the_references(small: Small) -> None:
    model, source = small("BertModel")
    for text, result in zip(TEXTS, model.features(TEXTS, layers=[0, 1, -1]), strict=True):
        assert list(result["layers"]) == ["0", "1", "2"]
        for ours, theirs in zip(result["layers"].values(), expected(source, text), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_tokens_and_offsets_belong_to_the_text(small: Small) -> None:
    model, _ = small("BertModel")
    first, empty, pair = model.features(TEXTS)
    assert first["tokens"] == ["[CLS]", "a", "b", "a", "##b", "[SEP]"]
    assert first["offsets"] == [[0, 0], [0, 1], [2, 3], [4, 5], [5, 6], [0, 0]]
    assert empty["tokens"] == ["[CLS]", "[SEP]"]
    assert pair["text_pair"] == "e"
    assert pair["offsets"] == [[0, 0], [0, 1], [2, 3], [0, 0], [0, 1], [0, 0]]
    assert first["layers"]["2"].shape == (6, 32)


def test_a_head_does_not_matter(small: Small) -> None:
    model, source = small("BertForMaskedLM")
    (result,) = model.features(["a b"])
    np.testing.assert_allclose(result["layers"]["2"], expected(source, "a b")[2], atol=1e-5)


@pytest.mark.parametrize("layer", [3, -4])
def test_a_layer_that_is_not_there_is_refused(small: Small, layer: int) -> None:
    model, _ = small("BertModel")
    with pytest.raises(UsageError, match=f"no layer {layer}; layers are 0"):
        model.features(["a"], layers=[layer])
    # The configuration has the number of layers: a command needs no weights to refuse.
    with pytest.raises(UsageError, match=f"no layer {layer}; layers are 0"):
        ExtractFeatures.check_options(model.checkpoint, {"layers": [layer]})
    ExtractFeatures.check_options(model.checkpoint, {"layers": [0, 2, -3]})
    with pytest.raises(UsageError, match="no layers"):
        model.features(["a"], layers=[])
