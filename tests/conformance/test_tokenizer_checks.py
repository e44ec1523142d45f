"""Tokenizers with other tokens than the pieces of the file, sound and faulty ones."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.faults import Checks, Faults, FaultyBert, FaultyT5, pair_template
from zoo.errors import VerificationError
from zoo.tokenizers import (
    CLS_SEP_SEP,
    EOS_ONLY,
    Template,
    sentencepiece_tokenizer,
)
from zoo.tokenizers.fairseq import FAIRSEQ_ROLES
from zoo.tokenizers.train import TokenizerTrainSpec

FAIRSEQ = ("<s>", "<pad>", "</s>", "<unk>")
MASKS = ("<mask_1>", "<mask_2>")
UNUSED = tuple(f"<unk_{number}>" for number in range(2, 103))
PEGASUS = ("<pad>", "</s>", *MASKS, *UNUSED)
PEGASUS_ROLES = {"eos": "</s>", "pad": "<pad>", "unk": "<unk>", "mask": "<mask_2>"}
# model type -> arguments of the tokenizer, as the families have them
FAMILIES: Mapping[str, Mapping[str, Any]] = {
    "xlm-roberta": {
        "roles": FAIRSEQ_ROLES,
        "template": CLS_SEP_SEP,
        "first": FAIRSEQ,
        "skip": 3,
        "last": ("<mask>",),
        "mask_takes_space": True,
    },
    "pegasus": {
        "roles": PEGASUS_ROLES,
        "template": Template("$A eos", "$A $B eos"),
        "first": PEGASUS,
        "skip": 2,
    },
    "t5": {"roles": FaultyT5.special_tokens, "template": EOS_ONLY, "sentinels": 100},
}


def find_problem(
    model_type: str, new_tokens: Sequence[str], directory: Path, **changes: Any
) -> str:
    """Return what is wrong with a family whose new tokenizers begin with some tokens."""
    options = {**FAMILIES[model_type], **changes}
    attributes = {
        "model_type": lambda config: model_type,
        "tokenizer": lambda files: sentencepiece_tokenizer(files, **options),
        "special_tokens": options["roles"],
        "new_tokenizers": {"unigram": TokenizerTrainSpec(tuple(new_tokens))},
    }
    checks = Checks(FaultyT5(), Faults(attributes=attributes))
    try:
        checks.check_reference_tokenizer(directory)
    except VerificationError as error:
        return str(error)
    return ""


@pytest.mark.by_default("t5-new_tokens3")
@pytest.mark.parametrize(
    ("model_type", "new_tokens"),
    [
        ("xlm-roberta", FAIRSEQ),
        pytest.param("pegasus", ("<pad>", "</s>", "<unk>"), marks=pytest.mark.long),
        ("pegasus", (*PEGASUS, "<unk>")),
        ("t5", ("<pad>", "</s>", "<unk>")),
    ],
)
def test_tokens_before_the_pieces_of_the_file(
    model_type: str, new_tokens: Sequence[str], tmp_path: Path
) -> None:
    assert find_problem(model_type, new_tokens, tmp_path) == ""


@pytest.mark.by_default("xlm-roberta-changes1")
@pytest.mark.parametrize(
    ("model_type", "changes", "message"),
    [
        (
            "xlm-roberta",
            {"first": ("<pad>", "<s>", "</s>", "<unk>")},
            "the bos token has the id 1, and 0",
        ),
        ("xlm-roberta", {"skip": 2}, "<unk>|</s>"),
        # roles that are found as the first one is
        pytest.param(
            "xlm-roberta",
            {"skip": 4},
            "the mask token has the id 300, and 301",
            marks=pytest.mark.long,
        ),
        pytest.param(
            "pegasus",
            {"first": PEGASUS[:-1]},
            "the unk token has the id 104, and 105",
            marks=pytest.mark.long,
        ),
        ("pegasus", {"template": Template("$A", "$A $B")}, "the text .* has the input_ids"),
    ],
)
def test_other_tokens_before_the_pieces_are_found(
    model_type: str, changes: Mapping[str, Any], message: str, tmp_path: Path
) -> None:
    first = FAIRSEQ if model_type == "xlm-roberta" else (*PEGASUS, "<unk>")
    problem = find_problem(model_type, first, tmp_path, **changes)
    assert re.search(message, problem), problem


def test_token_types_count_where_the_reference_returns_them(tmp_path: Path) -> None:
    """RoBERTa's classes return no token types; for BERT's, other types are an error."""
    template = Template("cls $A sep", "cls $A sep sep $B:1 sep:1")
    assert find_problem("xlm-roberta", FAIRSEQ, tmp_path / "without", template=template) == ""
    bert = Checks(FaultyBert(), Faults(attributes=pair_template("cls $A sep $B sep")))
    with pytest.raises(VerificationError, match="has the token_type_ids"):
        bert.check_reference_tokenizer(tmp_path / "with")
