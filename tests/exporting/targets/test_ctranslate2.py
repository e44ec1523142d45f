"""CTranslate2: every family that declares its names, in every precision, against torch."""

import json
import struct
from pathlib import Path

import ctranslate2
import numpy as np
import pytest

from tests.exporting.targets.conftest import Small
from zoo.checkpoint import load_checkpoint
from zoo.errors import UsageError, VerificationError
from zoo.exporting.gate import export_model
from zoo.exporting.quantization.plan import QuantizationPlan
from zoo.exporting.quantization.search import DropError
from zoo.exporting.session import open_session
from zoo.exporting.targets import find_target
from zoo.exporting.targets.base import ExportSettings
from zoo.inference import load_session
from zoo.io.digests.files import hash_file

TARGET = find_target("ctranslate2")
ENCODERS: dict[str, dict[str, int]] = {"BertModel": {}, "RobertaModel": {}, "DistilBertModel": {}}
ENCODERS |= {"ElectraModel": {"embedding_size": 32}}
DECODERS: dict[str, dict[str, int]] = {"GPT2LMHeadModel": {}}


@pytest.mark.by_default("BertModel")
@pytest.mark.parametrize("architecture", [*ENCODERS, *DECODERS])
def test_it_computes_what_torch_does(architecture: str, small: Small, tmp_path: Path) -> None:
    checkpoint = small(architecture, **{**ENCODERS, **DECODERS}[architecture])
    report = export_model(TARGET, checkpoint, tmp_path / "export", ExportSettings())
    assert report.validated and report.max_rel is not None and report.max_rel < 1e-5
    assert report.tokenizer is not None and report.tokenizer.different == []
    assert sum(f"  {report.tokenizer.texts} texts, up to" in line for line in report.lines()) == 1
    export = open_session(load_checkpoint(tmp_path / "export"))
    inputs = {
        "input_ids": np.arange(8, 16).reshape(2, 4),
        "attention_mask": np.array([[0, 1, 1, 1]] * 2),
    }
    with pytest.raises(UsageError, match="padding on the right"):
        export.run(inputs)


def test_its_own_program_reads_the_files(small: Small, tmp_path: Path) -> None:
    checkpoint = small("BertModel")
    export_model(TARGET, checkpoint, tmp_path / "export", ExportSettings())
    encoder = ctranslate2.Encoder(str(tmp_path / "export" / "ctranslate2"))
    output = encoder.forward_batch([["[CLS]", "a", "b", "[SEP]"]])
    ids = np.array([[2, 5, 6, 3]])
    expected = load_session(checkpoint).run({"input_ids": ids})["pooler_output"]
    np.testing.assert_allclose(np.array(output.pooler_output), expected, atol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("precision", ["float16", "bfloat16", "int8"])
def test_precisions(precision: str, small: Small, tmp_path: Path) -> None:
    checkpoint = small("BertModel")
    plan = QuantizationPlan((), max_drop=0.5)
    settings = ExportSettings(precision=precision, quantization=plan)
    report = export_model(TARGET, checkpoint, tmp_path / "export", settings)
    limit = TARGET.precisions[precision].tolerance or np.inf
    assert report.max_rel is not None and 1e-5 < report.max_rel < limit
    exact = export_model(TARGET, checkpoint, tmp_path / "exact", ExportSettings())
    assert report.bytes < 0.8 * exact.bytes
    assert open_session(load_checkpoint(tmp_path / "export")).dtype == precision


def test_int8_that_loses_too_much_is_not_written(small: Small, tmp_path: Path) -> None:
    plan = QuantizationPlan((), max_drop=0.0)
    settings = ExportSettings(precision="int8", quantization=plan)
    with pytest.raises(DropError, match="int8 changes the cosine by"):
        export_model(TARGET, small("BertModel"), tmp_path / "export", settings)
    assert not (tmp_path / "export").exists()


@pytest.mark.parametrize(
    ("architecture", "changes", "reason"),
    [
        ("BertForMaskedLM", {}, "has no layers for this head"),
        ("ElectraModel", {"embedding_size": 16}, "no projection from narrower embeddings"),
        ("BertModel", {"hidden_act": "mish"}, "no activation function mish"),
    ],
)
def test_what_it_cannot_hold(
    architecture: str, changes: dict[str, object], reason: str, small: Small, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=f"CTranslate2 cannot hold .*{reason}"):
        export_model(TARGET, small(architecture, **changes), tmp_path / "export", ExportSettings())


@pytest.mark.by_default("encoder/layer_0/")
@pytest.mark.parametrize("name", ["encoder/layernorm_embedding/gamma", "encoder/layer_0/"])
def test_files_that_lack_a_variable_are_refused(name: str, small: Small, tmp_path: Path) -> None:
    """Its exceptions of C++ arrive as several of Python's."""
    export_model(TARGET, small("BertModel"), tmp_path / "export", ExportSettings())
    file = tmp_path / "export" / "ctranslate2" / "model.bin"
    replace_model(file, file.read_bytes().replace(name.encode(), b"x" * len(name)))
    with pytest.raises(VerificationError, match="refuses it") as error:
        open_session(load_checkpoint(tmp_path / "export"))
    assert str(file.parent) in str(error.value)


@pytest.mark.by_default("\\x02\\x02\\x00\\x00\\x00\\xfc\\xff")
@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        (
            struct.pack("<BIh", 2, 2, 0),
            "0, and the checkpoint has 4",
        ),  # it divides by the number of heads
        (struct.pack("<BIh", 2, 2, -4), "-4, and the checkpoint has 4"),
        (struct.pack("<BIh", 5, 2, 4), "not a number"),  # as bfloat16
        (struct.pack("<BIh", 1, 2, 4), "not a number"),  # two bytes of a type of one
        (struct.pack("<BIh", 9, 2, 4), "not a number"),
        (struct.pack("<BIh", 4, 2, 0x4400), "4.0, and"),  # as float16
    ],
)
def test_other_settings_than_the_checkpoint_are_refused(
    stored: bytes, shown: str, small: Small, tmp_path: Path
) -> None:
    export_model(TARGET, small("BertModel"), tmp_path / "export", ExportSettings())
    file = tmp_path / "export" / "ctranslate2" / "model.bin"
    name, heads = b"encoder/num_heads\0\0", struct.pack("<BIh", 2, 2, 4)
    data = file.read_bytes()
    assert data.count(name + heads) == 1
    replace_model(file, data.replace(name + heads, name + stored))
    with pytest.raises(VerificationError, match=f"encoder/num_heads is {shown}"):
        open_session(load_checkpoint(tmp_path / "export"))


def test_a_model_that_is_cut_off_is_refused(small: Small, tmp_path: Path) -> None:
    export_model(TARGET, small("BertModel"), tmp_path / "export", ExportSettings())
    file = tmp_path / "export" / "ctranslate2" / "model.bin"
    data = file.read_bytes()
    for length in (0, 3, 20, len(data) // 2):
        replace_model(file, data[:length])
        with pytest.raises(VerificationError, match=r"model\.bin"):
            open_session(load_checkpoint(tmp_path / "export"))


def replace_model(file: Path, content: bytes) -> None:
    """Replace a model, with its digest in the manifest, as an attacker would."""
    file.write_bytes(content)
    path = file.parents[1] / "zoo.json"
    manifest = json.loads(path.read_text())
    digest = hash_file(file)
    manifest["files"]["ctranslate2/model.bin"] = {"bytes": digest.bytes, "blake3": digest.blake3}
    path.write_text(json.dumps({**manifest, "digest": ""}))
