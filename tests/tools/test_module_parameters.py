"""docs/module-parameters.md: names and shapes of the modules that families build."""

import re

import pytest

from tools.module_parameters import PAGE, page
from zoo.plugins import get_family


def test_the_page_is_that_of_the_modules() -> None:
    assert PAGE.read_text("utf-8") == page(), "run `python -m tools.module_parameters`"


@pytest.mark.parametrize(
    ("family", "heads"),
    [
        ("bert", ("masked-lm", "sequence-classification", "question-answering")),
        ("bart", ("none", "seq2seq-lm", "sequence-classification")),
    ],
)
def test_rules_of_families_have_the_names_of_the_page(family: str, heads: tuple[str, ...]) -> None:
    declared = get_family(family)
    names = set(re.findall(r"\| `([^` ]+)` \| `\(", PAGE.read_text("utf-8")))
    names.add("logits_bias")  # a buffer, which the text of the page has
    for head in heads:
        for target in declared.weights(declared.sizes()["tiny"], head).targets().values():
            name = re.sub(r"(?<=layers\.)\d+", "{i}", target)
            any_part = re.sub(r"(weight|bias)$", "{p}", name)
            assert {name, any_part} & names, target
