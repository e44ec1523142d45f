"""Sentence encoders with modules, rerankers and pairs of texts in other runtimes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.checkpoints import Make, hub_checkpoint
from tests.exporting.conftest import with_tokenizer
from tests.exporting.making import model, outputs
from zoo.api import Model
from zoo.checkpoint import load_checkpoint
from zoo.errors import UsageError
from zoo.exporting.gate import export_model
from zoo.exporting.targets import find_target
from zoo.exporting.targets.base import ExportSettings
from zoo.exporting.targets.session import TargetSession

__all__ = ["hub_checkpoint"]


@pytest.mark.parametrize("name", [pytest.param("openvino", marks=pytest.mark.long), "ctranslate2"])
def test_weights_of_modules_are_part_of_the_comparison(
    name: str, hub_checkpoint: Make, tmp_path: Path
) -> None:
    late = model("late", hub_checkpoint, tmp_path)  # with a Dense module
    report = export_model(find_target(name), late, tmp_path / name, ExportSettings())
    assert report.agreement is not None and report.agreement.measure == "ranking"
    found = outputs(load_checkpoint(tmp_path / name), "late", name)
    np.testing.assert_allclose(found, outputs(late, "late", "cpu"), atol=1e-5)


def test_a_reranker_is_refused_where_texts_of_a_pair_are_not_told_apart(
    hub_checkpoint: Make, tmp_path: Path
) -> None:
    reranker = model("cross-encoder", hub_checkpoint, tmp_path)
    with pytest.raises(UsageError, match=r"llama\.cpp cannot hold .* reads no token types"):
        export_model(
            find_target("gguf"), reranker, tmp_path / "gguf", ExportSettings(unverified=True)
        )


class WithoutTypes(TargetSession):
    """A runtime that takes no token types, as llama.cpp."""

    reads_token_types = False

    def compute(self, arrays: "Mapping[str, Any]", names: "Sequence[str]") -> "Mapping[str, Any]":
        return {name: np.ones((len(arrays["input_ids"]), 3)) for name in names}


def test_pairs_are_refused_by_a_runtime_without_token_types(tmp_path: Path) -> None:
    checkpoint = with_tokenizer(tmp_path / "classifier", "sequence-classification")
    classifier = Model(checkpoint, WithoutTypes(checkpoint, "gguf", "float32"))
    assert len(classifier.run("classify", ["a"])) == 1
    with pytest.raises(UsageError, match="does not read token types"):
        classifier.run("classify", [("a", "b")])
