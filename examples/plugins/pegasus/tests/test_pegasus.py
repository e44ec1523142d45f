"""PEGASUS: the conformance checks, and the outputs of the reference library."""

import numpy as np
import pytest
from zoo_pegasus import FIRST, Pegasus
from zoo_pegasus.config import SIZES, PegasusConfig
from zoo_pegasus.objective import similarities

from zoo.errors import VerificationError
from zoo.testing import ReferenceTests


class TestPegasus(ReferenceTests):
    """The conformance checks, and the outputs of the reference library."""

    family = Pegasus()
    settings = ({"scale_embedding": True, "activation": "relu"}, {"tie_embeddings": False})


def test_a_published_configuration_is_read() -> None:
    """The settings of google/pegasus-large, with the names of the code that converted it."""
    hub = {
        "d_model": 1024,
        "encoder_layers": 16,
        "decoder_layers": 16,
        "vocab_size": 96103,
        "activation_function": "relu",
        "scale_embedding": True,
        "normalize_before": True,
        "static_position_embeddings": True,
        "extra_pos_embeddings": 1,
    }
    assert Pegasus.config_map.from_hub(hub, PegasusConfig).config == SIZES["large"]
    with pytest.raises(VerificationError, match="static_position_embeddings"):
        Pegasus.config_map.from_hub({"static_position_embeddings": False}, PegasusConfig)


def test_first_tokens() -> None:
    """Pieces of SentencePiece follow 105 tokens: its third is ``<unk>``."""
    assert len(FIRST) == 105 and FIRST[-1] == "<unk_102>"


def test_similarities_by_hand() -> None:
    """A repeated token counts as often as it occurs in both."""
    assert similarities([[1, 2, 2], [2, 3], [4]]) == pytest.approx([2 / 6, 2 / 6, 0])
    assert np.argmax(similarities([[5], [1, 2, 3], [1, 2, 4]])) == 1
