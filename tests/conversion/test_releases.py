"""Conversion of the authors' original releases (see golden/make_releases.py).

The expected outputs of the converted weights are in the golden files, computed by transformers.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file

from tests.conversion.releases import (
    TESTS,
    as_the_reference_has_it,
    assert_computes,
    converted,
    exact,
    golden,
    published,
)
from zoo.conformance.golden import Golden
from zoo.errors import SourceError, UsageError, VerificationError

# contents of albert_config.json in google-research/albert
ALBERT_KEYS = {
    "attention_probs_dropout_prob",
    "hidden_dropout_prob",
    "embedding_size",
    "hidden_size",
    "initializer_range",
    "intermediate_size",
    "max_position_embeddings",
    "num_attention_heads",
    "num_hidden_layers",
    "num_hidden_groups",
    "inner_group_num",
    "type_vocab_size",
    "vocab_size",
}
ALBERT_REST = {
    "hidden_act": "gelu",  # the name of gelu_new in that code
    "net_structure_type": 0,
    "gap_size": 0,
    "num_memory_blocks": 0,
    "down_scale_factor": 1,
}


def electra(path: Path, shares: str, case: str) -> Path:
    config = golden(f"electra/{case}").hub_config
    return published(path, f"electra_shares_{shares}", "config.json", config)


# ELECTRA


@pytest.mark.parametrize("case", ["replaced-token-detection", "masked-lm"])
def test_electra_release_has_two_models(tmp_path: Path, case: str) -> None:
    """The class name in the configuration selects the model, as does --head."""
    source = electra(tmp_path / "both", "nothing", case)
    report, ours = converted(source)
    assert (report.family, report.head, report.format) == ("electra", case, "tensorflow")
    assert_computes(ours, golden(f"electra/{case}"))
    other = {"masked-lm": "discriminator", "replaced-token-detection": "generator"}[case]
    reasons = {name: drop.reason for name, drop in report.mapping.drops.items()}
    assert "generator's logits" in reasons.pop("temperature")
    assert "optimizer" in reasons.pop("global_step")
    slots = {n for n, because in reasons.items() if n.endswith(("adam_m", "adam_v"))}
    assert len(slots) == 20
    assert [name for name in slots if "optimizer" not in reasons[name]] == []
    dropped = reasons.keys() - slots
    assert [name for name in dropped if f"belongs to the {other}" not in reasons[name]] == []
    mapped = {name for copy in report.mapping.copies for name in copy.names}
    assert {name for name in mapped if "embeddings.word" in name} == {
        "electra.embeddings.word_embeddings.weight"
    }
    assert len(mapped) == len(golden(f"electra/{case}").weights)
    scope = {"discriminator": "electra", "generator": "generator"}[other]
    assert {name.split("/")[0] for name in dropped} == {scope, f"{other}_predictions"}


def test_electra_requires_a_head(tmp_path: Path) -> None:
    source = electra(tmp_path / "both", "nothing", "masked-lm")
    config = golden("electra/masked-lm").hub_config
    del config["architectures"]
    (source / "config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match="fit masked-lm and replaced-token-detection"):
        converted(source)
    report, ours = converted(source, "masked-lm")
    assert report.head == "masked-lm"
    assert_computes(ours, golden("electra/masked-lm"))


def test_electra_without_a_head_is_the_discriminator(tmp_path: Path) -> None:
    case = golden("electra/replaced-token-detection")
    source = electra(tmp_path / "both", "nothing", "replaced-token-detection")
    report, ours = converted(source, "none")
    assert report.head == "none"
    model = as_the_reference_has_it(ours, case_of_trunk(case))
    wanted = case.weights["electra.encoder.layer.1.output.dense.weight"]
    assert np.array_equal(model.encoder.layer[1].output.dense.weight.detach().numpy(), wanted)


def case_of_trunk(case: Golden) -> Golden:
    config = case.hub_config | {"architectures": ["ElectraModel"]}
    return Golden("none", config, case.weights, case.inputs, case.outputs)


def test_electra_shares_embeddings(tmp_path: Path) -> None:
    """All releases share them; the expected outputs are those of both models in transformers."""
    case, judge = golden("electra/masked-lm"), golden("electra/replaced-token-detection")
    _, ours = converted(electra(tmp_path / "tied", "embeddings", "masked-lm"), "masked-lm")
    weights = {n: torch.from_numpy(array) for n, array in case.weights.items()}
    for name in [name for name in weights if ".embeddings." in name]:
        weights[name] = torch.from_numpy(judge.weights[name])
    weights["generator_lm_head.weight"] = weights["electra.embeddings.word_embeddings.weight"]
    model = transformers.ElectraForMaskedLM(transformers.ElectraConfig(**case.hub_config))
    model.load_state_dict(weights)
    inputs = {name: torch.from_numpy(array) for name, array in case.inputs.items()}
    with torch.no_grad():
        logits = exact(model)(**inputs).logits.numpy()
    assert np.abs(logits - case.outputs["logits"]).max() > 1e-3
    expected = Golden("masked-lm", case.hub_config, case.weights, case.inputs, {"logits": logits})
    assert_computes(ours, expected)


def test_electra_shares_all_weights(tmp_path: Path) -> None:
    report, ours = converted(electra(tmp_path / "tied", "all", "masked-lm"), "masked-lm")
    assert_computes(ours, golden("electra/masked-lm"))
    dropped = [n for n, d in report.mapping.drops.items() if "discriminator" in d.reason]
    assert {name.split("/")[0] for name in dropped} == {"discriminator_predictions"}


def test_electra_goes_to_the_hub(tmp_path: Path) -> None:
    case = golden("electra/replaced-token-detection")
    source = electra(tmp_path / "both", "nothing", "replaced-token-detection")
    model = as_the_reference_has_it(converted(source)[1], case)
    inputs = {name: torch.from_numpy(array) for name, array in case.inputs.items()}
    with torch.no_grad():
        logits = model(**inputs).logits.numpy()
    assert np.abs(logits - case.outputs["logits"]).max() <= 1e-9


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    """The file has neither model, and only unexpected tensors."""
    config = golden("electra/masked-lm").hub_config
    source = published(tmp_path / "other", "none", "config.json", config)
    for file in (TESTS / "fixtures" / "tensorflow").glob("kinds.ckpt.*"):
        (source / file.name).write_bytes(file.read_bytes())
    with pytest.raises(VerificationError, match=r"missing from the file.*no rule knows") as caught:
        converted(source)
    assert "b.int32" in str(caught.value)
    assert not (tmp_path / "other-ours").exists()


def test_missing_configuration(tmp_path: Path) -> None:
    source = electra(tmp_path / "bare", "nothing", "masked-lm")
    (source / "config.json").unlink()
    with pytest.raises(SourceError, match=r"holds no config\.json, and weights do not") as caught:
        converted(source)
    assert "on the Hub" in str(caught.value)


def test_a_missing_data_file(tmp_path: Path) -> None:
    source = electra(tmp_path / "cut", "nothing", "masked-lm")
    (path,) = source.glob("*.data-*")
    path.rename(path.with_name(path.name.replace("00000-of-00001", "00001-of-00002")))
    with pytest.raises(VerificationError, match="not all are there"):
        converted(source)
    next(source.glob("*.data-*")).unlink()
    with pytest.raises(SourceError, match="no weights in a known format"):
        converted(source)


# ALBERT


@pytest.mark.parametrize("case", ["pretraining", "none-groups"])
def test_albert(tmp_path: Path, case: str) -> None:
    expected = golden(f"albert/{case}")
    config = {k: v for k, v in expected.hub_config.items() if k in ALBERT_KEYS} | ALBERT_REST
    stem = f"albert_{case.removeprefix('none-')}"
    source = published(tmp_path / "first", stem, "albert_config.json", config)
    report, ours = converted(source)
    assert (report.family, report.head, report.unknown) == ("albert", expected.head, ())
    assert_computes(ours, expected)
    dropped = ["global_step"] if case == "pretraining" else []
    assert list(report.mapping.drops) == dropped
    model = as_the_reference_has_it(ours, expected)
    state = model.state_dict()
    for name, array in expected.weights.items():
        assert np.array_equal(state[name].numpy(), array), name


# ELMo


def test_elmo_while_it_is_trained(tmp_path: Path) -> None:
    expected = golden("elmo/pretraining")
    options = json.loads(json.dumps(expected.hub_config))
    options["char_cnn"]["n_characters"] = 261  # required for training
    options |= {"bidirectional": True, "dropout": 0.1, "n_epochs": 10, "batch_size": 128}
    source = published(tmp_path / "trained", "elmo_model.ckpt-3", "options.json", options)
    (source / "checkpoint").write_text('model_checkpoint_path: "elmo_model.ckpt-3"')
    report, ours = converted(source)
    assert (report.family, report.head, report.format) == ("elmo", "bidirectional-lm", "tensorflow")
    assert_computes(ours, expected)
    reasons = {name: drop.reason for name, drop in report.mapping.drops.items()}
    slots = {f"lm/softmax/{which}/Adagrad" for which in "Wb"}
    assert reasons.keys() == slots | {"global_step", "train_perplexity"}
    assert [name for name in slots if "optimizer" not in reasons[name]] == []
    stored = load_file(ours / "model.safetensors")
    assert len(stored) == len(expected.weights)
