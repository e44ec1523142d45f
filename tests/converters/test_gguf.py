"""GGUF files: values as the package gguf reads them, models there and back, hostile headers."""

import json
import re
import struct
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from tests.converters.making import save
from tests.exporting.targets.conftest import Small, hub_checkpoint, small
from zoo.checkpoint import load_checkpoint, load_text_tokenizer
from zoo.conversion.convert import convert
from zoo.errors import UsageError, VerificationError, ZooError
from zoo.exporting.gate import export_model, probe_texts
from zoo.exporting.targets import find_target
from zoo.exporting.targets.base import ExportSettings
from zoo.hub.reference import resolve
from zoo.hub.source import CheckpointDir, locate_or_download
from zoo.inference import load_session
from zoo.tokenizers.gguf import tokenizer_files
from zoo_converters.gguf import PLAIN, QUANTIZED, UNREAD, Gguf, GgufReader

__all__ = ["hub_checkpoint", "small"]
UNVERIFIED = ExportSettings(unverified=True, allow_tokenizer_differences=True)
TARGET = find_target("gguf")
SIZES = gguf.GGML_QUANT_SIZES


@pytest.mark.parametrize("alignment", [None, 64])
def test_values_are_those_of_the_package(tmp_path: Path, alignment: int | None) -> None:
    arrays = save(tmp_path / "model.gguf", alignment=alignment)
    with Gguf().open(tmp_path, Gguf().find(["config.json", "model.gguf"])) as reader:
        assert isinstance(reader, GgufReader)
        assert list(reader.metadata["numbers"]) == [1, 2, 3]
        assert list(reader.metadata["words"]) == ["a", "ä"]
        assert reader.metadata["words"][-1:] == ["ä"]
        assert reader.metadata["test.number"] == 0.5 and reader.metadata["test.flag"] is True
        assert reader.tensors.keys() == arrays.keys()
        for name, expected in arrays.items():
            actual = reader.read(name)
            if name == "BF16":  # in storage dtype
                actual = (actual.astype(np.uint32) << 16).view(np.float32)
            assert actual.shape == (3, 256)
            np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("number", QUANTIZED)
def test_every_quantized_type_is_read_as_the_package_does(number: int, tmp_path: Path) -> None:
    kind = gguf.GGMLQuantizationType(number)
    _, size = gguf.GGML_QUANT_SIZES[kind]
    raw = np.random.default_rng(number).integers(0, 256, (5, 3 * size), np.uint8)
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "test")
    writer.add_tensor("t", raw, raw_dtype=kind)
    for write in ("header", "kv_data", "tensors"):
        getattr(writer, f"write_{write}_to_file")()
    writer.close()
    with np.errstate(all="ignore"), GgufReader(tmp_path / "model.gguf") as reader:
        expected, actual = gguf.quants.dequantize(raw, kind), reader.read("t")
    assert actual.shape == reader.tensors["t"].shape == expected.shape
    assert actual.tobytes() == expected.tobytes()


def test_every_type_that_the_package_dequantizes_is_read() -> None:
    zeros = {kind: np.zeros((1, size), np.uint8) for kind, (_, size) in SIZES.items()}
    read, refused = set(), set()
    for kind, raw in zeros.items():
        try:
            gguf.quants.dequantize(raw, kind)
            read.add(kind.value)
        except NotImplementedError:
            refused.add(kind.value)
    assert read - PLAIN.keys() == QUANTIZED.keys()
    assert refused - PLAIN.keys() <= UNREAD.keys()


def test_sizes_of_types_are_those_of_the_package() -> None:
    sizes = {
        kind.value: (kind.name, *gguf.GGML_QUANT_SIZES[kind]) for kind in gguf.GGMLQuantizationType
    }
    assert {number: sizes[number] for number in QUANTIZED} == QUANTIZED
    assert {number: sizes[number][0] for number in PLAIN} == PLAIN


BACK: dict[str, dict[str, Any]] = {
    "BertModel": {"layer_norm_eps": 1e-6},
    "BertForSequenceClassification": {"id2label": {0: "bad", 1: "good", 2: "fair"}},
    "DistilBertModel": {},
    "RobertaModel": {},
    "XLMRobertaModel": {},
    "ModernBertForSequenceClassification": {"classifier_pooling": "mean", "num_labels": 3},
    "EuroBertModel": {"num_key_value_heads": 2, "rope_theta": 500.0},
    "GPT2LMHeadModel": {},
    "T5EncoderModel": {"feed_forward_proj": "gated-gelu"},
    "T5ForConditionalGeneration": {
        "feed_forward_proj": "gated-gelu",
        "tie_word_embeddings": False,
        "num_decoder_layers": 3,
    },
}


# what a file says of itself has one place for each kind of model
ALONE = ("BertForSequenceClassification", "T5ForConditionalGeneration", "GPT2LMHeadModel")


@pytest.mark.by_default("file-GPT2LMHeadModel")
@pytest.mark.parametrize(
    ("architecture", "as_file"),
    [
        *(pytest.param(name, False, id=f"directory-{name}") for name in BACK),
        *(
            pytest.param(
                name, True, id=f"file-{name}", marks=() if name in ALONE else pytest.mark.long
            )
            for name in BACK
        ),
    ],
)
def test_a_model_there_and_back_is_exact(
    architecture: str,
    as_file: bool,
    small: Small,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(type(TARGET), "runtime_problem", lambda self: "not needed")
    checkpoint = small(architecture, **BACK[architecture])
    export_model(TARGET, checkpoint, tmp_path / "export", UNVERIFIED)
    if as_file:  # what the file itself says is enough
        file = tmp_path / "alone" / "model.gguf"
        file.parent.mkdir()
        (tmp_path / "export" / "model.gguf").rename(file)
        convert(locate_or_download(resolve(str(file))), tmp_path / "back")
    else:
        convert(CheckpointDir(tmp_path / "export", "export"), tmp_path / "back")
    back = load_checkpoint(tmp_path / "back")
    assert (back.family.name, back.head_name) == (checkpoint.family.name, checkpoint.head_name)
    missing = {"pooler", "embeddings.positions.weight"} if "Roberta" in architecture else {"pooler"}
    with checkpoint.open_weights() as before, back.open_weights() as after:
        lost = before.tensors.keys() - after.tensors.keys()
        assert {name.partition(".")[0] for name in lost} <= {"pooler"}  # llama.cpp has none
        missing |= {"head.weight"} - before.tensors.keys()  # of T5: the token embeddings
        for name in after.tensors.keys() - missing:
            np.testing.assert_array_equal(after.read(name), before.read(name), err_msg=name)
    expected_json, actual_json = (
        # the library for tokenizers changes the last digit of scores
        json.loads((model.path / "tokenizer.json").read_text("utf-8"), parse_float=np.float32)
        for model in (checkpoint, back)
    )
    assert actual_json == expected_json
    ids = np.array([[0, 5, 9, 2]])
    inputs = {"input_ids": ids, "decoder_input_ids": ids[:, ::-1].copy()}
    inputs = {name: inputs[name] for name in inputs if name in checkpoint.onnx_spec.inputs}
    expected, actual = (load_session(model).run(inputs) for model in (checkpoint, back))
    for name in actual:
        np.testing.assert_array_equal(actual[name], expected[name], err_msg=name)
    assert getattr(back.config, "labels", ()) == getattr(checkpoint.config, "labels", ())


def rewritten(
    file: Path, target: Path, changes: Mapping[str, Any], types: Mapping[str, Any] | None = None
) -> Path:
    """Write a file with other values of keys, ``None`` leaves one out, and types of tensors."""
    reader, writer = gguf.GGUFReader(file), gguf.GGUFWriter(target, "bert")
    stored = {name: field for name, field in reader.fields.items() if name[:5] != "GGUF."}
    writer.kv_data[0].clear()
    for name, field in stored.items():
        if name not in changes:
            kind, *inner = field.types
            writer.add_key_value(name, field.contents(), kind, inner[0] if inner else None)
    for name, value in changes.items():
        if value is not None:
            writer.add_key_value(name, value, gguf.GGUFValueType.get_type(value))
    for tensor in reader.tensors:
        kind = (types or {}).get(tensor.name, tensor.tensor_type)
        data = (
            tensor.data if kind == tensor.tensor_type else gguf.quants.quantize(tensor.data, kind)
        )
        writer.add_tensor(tensor.name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


WHOLE = "tokenizer.huggingface.json"  # which llama.cpp's own converter does not write


PLAIN_FILES = {
    "BertModel": "bert",
    "RobertaModel": "roberta",
    "XLMRobertaModel": "roberta",
    "ModernBertModel": "modernbert",
    "GPT2LMHeadModel": "gpt",
    "T5EncoderModel": "t5",
}


@pytest.mark.by_default("BertModel", "GPT2LMHeadModel")
@pytest.mark.parametrize(
    "architecture",
    [  # pieces with scores, as T5 has them
        pytest.param(name, marks=pytest.mark.long if name == "XLMRobertaModel" else ())
        for name in PLAIN_FILES
    ],
)
def test_a_tokenizer_is_made_from_tokens_and_merges(
    architecture: str, small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(TARGET), "runtime_problem", lambda self: "not needed")
    checkpoint = small(architecture)
    export_model(TARGET, checkpoint, tmp_path / "export", UNVERIFIED)
    exported = tmp_path / "export" / "model.gguf"
    file = rewritten(exported, tmp_path / "plain.gguf", {WHOLE: None})
    convert(locate_or_download(resolve(str(file))), tmp_path / "back")
    back = load_checkpoint(tmp_path / "back")
    assert back.family.name == PLAIN_FILES[architecture]
    before, after = (load_text_tokenizer(model) for model in (checkpoint, back))
    texts = [text for text in probe_texts() if "extra_id" not in text]
    expected, actual = (
        [list(text.ids) for text in tokenizer.encode(texts, max_tokens=None, offsets=False)]
        for tokenizer in (before, after)
    )
    assert [(t, a, e) for t, a, e in zip(texts, actual, expected, strict=True) if a != e] == []


def test_transformers_reads_the_same_from_a_file(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    import transformers

    monkeypatch.setattr(type(TARGET), "runtime_problem", lambda self: "not needed")
    positions = {"max_position_embeddings": 1024}  # transformers does not read their number
    export_model(TARGET, small("GPT2LMHeadModel", **positions), tmp_path / "export", UNVERIFIED)
    file = tmp_path / "export" / "model.gguf"
    theirs = transformers.GPT2LMHeadModel.from_pretrained(file.parent, gguf_file=file.name)
    convert(locate_or_download(resolve(str(file))), tmp_path / "back")
    ids = np.array([[0, 5, 9, 2]])
    ours = load_session(load_checkpoint(tmp_path / "back")).run({"input_ids": ids})
    with torch.inference_mode():
        expected = theirs.eval()(torch.from_numpy(ids))
    for name, value in ours.items():
        np.testing.assert_allclose(value, getattr(expected, name).numpy(), atol=1e-6)


def test_a_vocabulary_with_capitals_is_not_lower_cased() -> None:
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "\u2581the", "\u2581The", "s"]
    header: dict[str, Any] = {
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.cls_token_id": 2,
    }
    for count, cased in ((7, True), (5, False)):
        header["tokenizer.ggml.tokens"] = tokens[:count]
        files = tokenizer_files(header, "a.gguf")
        assert json.loads(files["tokenizer_config.json"])["do_lower_case"] is not cased
    assert files["vocab.txt"].split() == [b"[PAD]", b"[UNK]", b"[CLS]", b"[SEP]", b"the"]


def test_positions_that_no_text_has_are_left_out(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(TARGET), "runtime_problem", lambda self: "not needed")
    checkpoint = small("RobertaModel")
    export_model(TARGET, checkpoint, tmp_path / "export", UNVERIFIED)
    convert(CheckpointDir(tmp_path / "export", "export"), tmp_path / "back")
    inputs = {"input_ids": np.array([[0, 5, 9, 2]])}
    ours, theirs = (
        load_session(load_checkpoint(path)).run(inputs)["last_hidden_state"]
        for path in (checkpoint.path, tmp_path / "back")
    )
    np.testing.assert_array_equal(theirs, ours)


def test_quantized_weights_are_read_in_float32(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(TARGET), "runtime_problem", lambda self: "not needed")
    checkpoint = small("BertModel", hidden_size=64, intermediate_size=96)
    settings = ExportSettings(precision="q8_0", unverified=True)
    export_model(TARGET, checkpoint, tmp_path / "export", settings)
    report = convert(CheckpointDir(tmp_path / "export", "export"), tmp_path / "back")
    assert next(report.lines()).endswith("read from gguf in q8_0")
    assert report.to_dict()["quantized"] == ["q8_0"]
    name, kind = "layers.1.ffn.up.weight", gguf.GGMLQuantizationType.Q8_0
    with (
        checkpoint.open_weights() as before,
        load_checkpoint(tmp_path / "back").open_weights() as after,
    ):
        exact = np.asarray(before.read(name), np.float32)
        expected = gguf.quants.dequantize(gguf.quants.quantize(exact, kind), kind)
        np.testing.assert_array_equal(after.read(name), expected)


def test_parts_of_a_matrix_may_have_several_types(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in files of llama.cpp, whose quantizer chooses the type of each tensor."""
    monkeypatch.setattr(type(TARGET), "runtime_problem", lambda self: "not needed")
    export_model(TARGET, small("BertModel"), tmp_path / "export", UNVERIFIED)
    name, kinds = "blk.0.attn_{}.weight", {"q": "F16", "k": "F32", "v": "BF16"}
    types = {name.format(part): gguf.GGMLQuantizationType[kind] for part, kind in kinds.items()}
    exported = tmp_path / "export" / "model.gguf"
    file = rewritten(exported, tmp_path / "mixed.gguf", {}, types)
    parts = {tensor.name: tensor for tensor in gguf.GGUFReader(file).tensors}
    assert [parts[part].tensor_type for part in types] == list(types.values())
    expected = [gguf.quants.dequantize(parts[n].data, parts[n].tensor_type) for n in types]
    convert(locate_or_download(resolve(str(file))), tmp_path / "back")
    with load_checkpoint(tmp_path / "back").open_weights() as reader:
        actual = reader.read("layers.0.attention.qkv.weight")
    np.testing.assert_array_equal(actual, np.concatenate(expected))


@pytest.mark.by_default("ctranslate2")
@pytest.mark.parametrize(
    "name", ["onnx", pytest.param("openvino", marks=pytest.mark.long), "ctranslate2"]
)
def test_other_exports_are_recognised(name: str, small: Small, tmp_path: Path) -> None:
    export_model(find_target(name), small("BertModel"), tmp_path / "export", ExportSettings())
    with pytest.raises(Exception, match="without the weights of its model") as caught:
        convert(CheckpointDir(tmp_path / "export", "export"), tmp_path / "back")
    assert getattr(caught.value, "exit_code", 1) == 4


def test_a_package_that_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "model.gguf")
    monkeypatch.setitem(__import__("sys").modules, "gguf", None)
    with GgufReader(tmp_path / "model.gguf") as reader:
        reader.read("F32")
        with pytest.raises(UsageError, match="pip install gguf"):
            reader.read("Q4_0")


def header(tensors: int = 0, keys: int = 0, rest: bytes = b"", version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys) + rest


def text(value: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(value) if length is None else length) + value


def tensor(name: bytes, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    sizes = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return text(name) + sizes + struct.pack("<IQ", kind, offset)


def padded(content: bytes, data: int) -> bytes:
    return content + bytes(-len(content) % 32 + data)


F32, Q8 = 0, 8
HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "ends in its header"),
    "another file": (b"PK\3\4" + bytes(40), "does not begin"),
    "version": (header(version=1), "version 1"),
    "many tensors": (header(tensors=1 << 62), "number of tensors"),
    "many keys": (header(keys=1 << 62), "number of keys"),
    "long string": (header(keys=1, rest=text(b"a", 1 << 63)), "length of a string of its header"),
    "long array": (
        header(keys=1, rest=text(b"a") + struct.pack("<IIQ", 9, 4, 1 << 62)),
        "length of an array of its header",
    ),
    "many strings": (
        header(keys=1, rest=text(b"a") + struct.pack("<IIQ", 9, 8, 1 << 40)),
        "length of an array of its header",
    ),
    "more numbers than bytes": (
        header(keys=1, rest=text(b"a") + struct.pack("<IIQ", 9, 4, 9) + bytes(32)),
        "length of an array of its header is 9, and the file has room for at most 8",
    ),
    "more strings than bytes": (
        header(keys=1, rest=text(b"a") + struct.pack("<IIQ", 9, 8, 5) + bytes(39)),
        "length of an array of its header is 5, and the file has room for at most 4",
    ),
    "nested arrays": (
        header(keys=1, rest=text(b"a") + struct.pack("<IIQ", 9, 9, 1) + bytes(64)),
        "array of the type 9",
    ),
    "unknown value": (header(keys=1, rest=text(b"a") + struct.pack("<I", 77)), "of the type 77"),
    "bytes in a name": (header(keys=1, rest=text(b"\xff") + bytes(9)), "not UTF-8"),
    "unknown type": (header(1, 0, tensor(b"a", (4,), 99, 0)), "of the type 99"),
    "type without values": (header(1, 0, tensor(b"a", (256,), 15, 0)), "of the type Q8_K"),
    "removed type": (header(1, 0, tensor(b"a", (32,), 4, 0)), "of the type Q4_2"),
    "axes": (header(1, 0, tensor(b"a", (1,) * 5, F32, 0)), "5 axes"),
    "large shape": (header(1, 0, tensor(b"a", (1 << 40, 1 << 40), F32, 0)), "has the shape"),
    "no elements": (header(1, 0, tensor(b"a", (0, 4), F32, 0)), "has the shape"),
    "half a block": (padded(header(1, 0, tensor(b"a", (33,), Q8, 0)), 64), "rows of 33"),
    "behind the file": (padded(header(1, 0, tensor(b"a", (8,), F32, 64)), 64), "ends behind"),
    "far behind": (
        padded(header(1, 0, tensor(b"a", (8,), F32, (1 << 64) - 32)), 64),
        "ends behind",
    ),
    "overlap": (
        padded(header(2, 0, tensor(b"a", (8,), F32, 0) + tensor(b"b", (8,), F32, 16)), 64),
        "overlaps another",
    ),
    "twice": (
        padded(header(2, 0, tensor(b"a", (8,), F32, 0) + tensor(b"a", (8,), F32, 32)), 64),
        "listed twice",
    ),
    **{
        f"alignment of {value}": (
            header(0, 1, text(b"general.alignment") + struct.pack("<II", 4, value)),
            f"alignment is {value}",
        )
        for value in (0, 24, 1 << 31)
    },
    "a key twice": (
        header(0, 2, 2 * (text(b"a") + struct.pack("<II", 4, 0))),
        "'a' is listed twice",
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_headers_are_refused(case: str, tmp_path: Path) -> None:
    content, reason = HOSTILE[case]
    (tmp_path / "model.gguf").write_bytes(content)
    with pytest.raises(VerificationError, match=reason) as caught:
        Gguf().open(tmp_path, ["model.gguf"])
    assert "\n" not in str(caught.value)


# type of the items -> number of them in 20 MB
ARRAYS = {7: 20 << 20, 1: 20 << 20, 3: 10 << 20, 6: 5 << 20, 10: 5 << 19}


@pytest.mark.parametrize("kind", ARRAYS)
def test_arrays_of_numbers_take_the_memory_of_the_file(kind: int, tmp_path: Path) -> None:
    content = text(b"a") + struct.pack("<IIQ", 9, kind, ARRAYS[kind]) + bytes(20 << 20)
    assert memory_of(header(keys=1, rest=content), tmp_path) < 25 << 20


@pytest.mark.parametrize(
    "word", [b"", *(pytest.param(w, marks=pytest.mark.long) for w in (b"ab", "é".encode() * 20))]
)
def test_arrays_of_strings_take_the_memory_of_the_file(word: bytes, tmp_path: Path) -> None:
    count = (1 << 20) // (8 + len(word))
    content = text(b"a") + struct.pack("<IIQ", 9, 8, count) + text(word) * count
    assert memory_of(header(keys=1, rest=content), tmp_path) < 3 << 19


def memory_of(content: bytes, folder: Path) -> int:
    """Return the most memory that reading a header takes at once, in bytes."""
    (folder / "model.gguf").write_bytes(content)
    tracemalloc.start()
    with Gguf().open(folder, ["model.gguf"]) as reader:
        peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert repr(reader.metadata["a"]) == f"an array of {len(reader.metadata['a']):,}"
    return peak


# key -> value in place of what a sound file has; ``None`` leaves it out
CONTRADICTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "another architecture": ({"general.architecture": "mamba"}, "no installed family reads"),
    "no architecture": ({"general.architecture": 3}, "is not a name"),
    "no layers": ({"bert.block_count": None}, "no key bert.block_count"),
    "many layers": ({"bert.block_count": 1 << 30}, "block_count|num_hidden_layers|num_layers"),
    "negative layers": ({"bert.block_count": -1}, "block_count = -1"),
    "heads": ({"bert.attention.head_count": 0}, "num_attention_heads|num_heads"),
    "width": ({"bert.embedding_length": "32"}, "embedding_length = '32'"),
    "more positions": ({"bert.context_length": 1 << 20}, "rows, and the header states 1048576"),
    "other width": ({"bert.embedding_length": 64}, "the tensors do not"),
    "epsilon": ({"bert.attention.layer_norm_epsilon": float("nan")}, "epsilon = nan"),
    "activation": ({"bert.hidden_activation": "step"}, "hidden_act"),
    "tokens": ({"tokenizer.ggml.tokens": [1, 2]}, "not a list of tokens"),
    "few tokens": ({"tokenizer.ggml.tokens": ["a"]}, "not a list of 1 kinds"),
    "special token": ({"tokenizer.ggml.cls_token_id": 1 << 30}, "there are 17 tokens"),
    "padding": ({"tokenizer.ggml.padding_token_id": "x"}, "padding_token_id"),
    "kinds": ({"tokenizer.ggml.token_type": "x"}, "kinds of tokens"),
    "a word of two": ({"tokenizer.ggml.tokens": ["a b"] * 17}, "is not a word"),
    "tokenizer": ({"tokenizer.huggingface.json": "{"}, "not valid JSON|JSON"),
}


def test_headers_that_contradict_themselves_get_one_line(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(TARGET), "runtime_problem", lambda self: "not needed")
    export_model(TARGET, small("BertModel"), tmp_path / "export", UNVERIFIED)
    exported, wrong = tmp_path / "export" / "model.gguf", []
    for case, (changes, reason) in CONTRADICTIONS.items():
        file = rewritten(exported, tmp_path / "changed.gguf", {WHOLE: None, **changes})
        with pytest.raises(ZooError) as caught:
            convert(locate_or_download(resolve(str(file))), None, dry_run=True)
        if not re.search(reason, str(caught.value)) or "\n" in str(caught.value):
            wrong.append((case, str(caught.value)))
    assert wrong == []
