"""One thread of torch, and what of the families' many combinations is left to ``make test-all``."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.families.every import REPRESENTATIVES
from zoo.families.base import Family

OTHER_LABELS = ("token-classification", "question-answering", "multiple-choice")
OF_WORDS = ("masked-lm", "causal-lm", "seq2seq-lm")  # heads that every setting concerns
# Properties of a backbone, which the head for the labels of a text shows as well as those for
# labels of tokens, of spans and of choices. One family runs all heads.
OF_BACKBONES = (
    "test_bfloat16",
    "test_cached_decoding",
    "test_default_inputs",
    "test_dropout",
    "test_initialization",
    "test_longest_input",
    "test_packed_rows",
    "test_padding_changes_nothing",
    "test_row_of_padding",
    "test_state_dict_round_trip",
)
# Properties of a family's rules and of its output layer, which one head for labels shows.
OF_HEADS = (
    "test_constants",
    "test_decoder_start",
    "test_exported_names_are_read",
    "test_generation",
    "test_gradients_reach_every_parameter",
    "test_output_shapes",
    "test_rules_read_tensors_once",
    "test_tensor_round_trip",
    "test_ties",
    "test_unequal_sizes",
)
# Properties of blocks, which the family that represents a block shows for all that have it. Of the
# others, the default run compares outputs with the reference library, and checks what a family
# declares: tensors, ties, caches, and rows of several texts.
OF_BLOCKS = (
    "test_bfloat16",
    "test_default_inputs",
    "test_dropout",
    "test_gradients_reach_every_parameter",
    "test_half_precision_round_trip",
    "test_initialization",
    "test_longest_input",
    "test_output_shapes",
    "test_padding_changes_nothing",
    "test_row_of_padding",
    "test_state_dict_round_trip",
    "test_unequal_sizes",
)
# Those of them that no head has a part in, which the head for words shows.
OF_ANY_HEAD = (
    "test_bfloat16",
    "test_default_inputs",
    "test_dropout",
    "test_initialization",
    "test_longest_input",
    "test_row_of_padding",
    "test_state_dict_round_trip",
)
KITS = REPRESENTATIVES.values()
# Settings that every family hands to the same layers, which the representatives compare.
OF_SHARED_LAYERS = frozenset(
    {
        "activation",
        "labels",
        "layer_norm_eps",
        "num_heads",
        "pad_token_id",
        "problem",
        "tie_embeddings",
        "type_vocab_size",
    }
)
WITH_ALL_HEADS = ("TestBert",)
# tests/training/test_objectives_in_runs.py trains the objectives of the other kits
WITH_OBJECTIVES = ("TestModernBert",)
# Tests of training show that runs resume exactly, and tests/conformance/test_objective_checks.py
# that labels do not leak, with all objectives but those that a single family brings.
OWN_OBJECTIVE = ("TestElmo",)
KITS_THAT_RUN = {
    "test_imports": KITS,  # the rules of imports are those of all packages
    "test_invalid_sizes": KITS,  # and so are the checks of sizes
    "test_label_leaks": OWN_OBJECTIVE,
    "test_loss_decreases": (),  # the tests of objectives and of training train all blocks
    "test_objectives_train": WITH_OBJECTIVES,
    "test_resume": (*OWN_OBJECTIVE, "TestGpt2"),
}
WITH_RATES = ("TestGpt2",)  # it has a rate for each place of dropout


@pytest.fixture(autouse=True, scope="package")
def one_thread() -> Iterator[None]:
    """Limit torch to one thread: the models are small, and other processes may share the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True, scope="package")
def few_exchanges() -> Iterator[None]:
    """Exchange as many tokens as tests/conformance, which shows that they are enough."""
    from zoo.conformance import objective_checks

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(objective_checks, "EXCHANGES", 48)
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as long what repeats a test with another head, size, task or version."""
    of_families = [item for item in items if item.path.is_relative_to(Path(__file__).parent)]
    for item in of_families:
        if item.name == "test_export":  # tests/exporting has the graphs of every head
            item.add_marker(pytest.mark.long)
        params = item.callspec.params if hasattr(item, "callspec") else {}
        kit = item.cls if isinstance(item, pytest.Function) else None
        if _repeats(item.name.partition("[")[0], kit, params):
            item.add_marker(pytest.mark.long)


def head_for_words(family: Family) -> str:
    """Return the first head of a family that predicts words, or the backbone alone."""
    heads = [head for head in family.heads() if head in OF_WORDS]
    return heads[0] if heads else "none"


def _repeats(name: str, tests: Any, params: dict[str, Any]) -> bool:
    """Return whether a test, of a class of the conformance kit or of none, repeats another."""
    head = params.get("head")
    if name == "test_rules_cover_parameters":
        return bool(params["size"] != "tiny")  # sizes differ in numbers
    if name == "test_settings_equal_the_reference" and head is not None:
        if tests and tests.__name__ not in KITS and OF_SHARED_LAYERS.issuperset(params["changes"]):
            return True
        # labels are of classifiers, and all else of the backbone or the output embeddings
        return (
            head != "sequence-classification"
            if "labels" in params["changes"]
            else (head not in OF_WORDS)
        )
    return tests is not None and _repeats_in_kit(name, tests.__name__, tests.family, head)


def _repeats_in_kit(name: str, kit: str, family: Family, head: str | None) -> bool:
    """Return whether a test of the conformance kit repeats that of another head or family."""
    if name in OF_BACKBONES and head in OTHER_LABELS:
        return kit not in WITH_ALL_HEADS
    if name in OF_HEADS and head in OTHER_LABELS:
        return kit not in KITS
    if name == "test_hub_round_trip" and head in OTHER_LABELS:
        return kit not in WITH_ALL_HEADS  # their rules are those of the other head for labels
    if name in OF_BLOCKS and kit not in KITS:
        return True
    if name in OF_ANY_HEAD and kit not in WITH_ALL_HEADS:
        return head != head_for_words(family)
    if name in (*OF_BACKBONES, *OF_HEADS, "test_hub_round_trip") and kit not in KITS:
        # a head for words shows what the backbone alone and this head show
        has_words = head_for_words(family) != "none"
        return head == "sequence-classification" or (head == "none" and has_words)
    if name == "test_dropout_rates":
        # this head has the backbone's dropout and one of its own; heads for words have none
        return kit not in WITH_RATES or head != "sequence-classification"
    if name == "test_keys_change_the_outputs":
        return head not in OF_WORDS
    if name in KITS_THAT_RUN:
        return kit not in KITS_THAT_RUN[name]
    # Tests of tasks train an encoder, an encoder-decoder, a decoder and ELMo; that each head has
    # the outputs and gradients of the reference is shown by other tests.
    return name == "test_fine_tuning"
