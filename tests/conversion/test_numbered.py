"""The release of the first GPT: numbered arrays, and old names of vocabulary files."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.conversion.releases import as_the_reference_has_it, assert_computes, converted, golden
from tests.tokenizers.trained import pieces, words
from zoo.conformance.golden import Golden
from zoo.errors import VerificationError
from zoo.plugins import get_family
from zoo.tokenizers import SourceFiles


def numbered(path: Path, cuts: tuple[int, ...] = (100, 777, 778)) -> Golden:
    """Write the weights of a golden file as one flat array, cut at given positions."""
    case = golden("gpt/first-causal-lm")
    parts = [f"{part}.{last}" for part in ("attn.c_attn", "attn.c_proj") for last in ("w", "b")]
    parts += ["ln_1.w", "ln_1.b"]
    parts += [f"{part}.{last}" for part in ("mlp.c_fc", "mlp.c_proj") for last in ("w", "b")]
    parts += ["ln_2.w", "ln_2.b"]
    arrays = [case.weights[f"transformer.{n}_embed.weight"] for n in ("positions", "tokens")]
    for layer in range(2):
        for part in parts:
            name = part.removesuffix("w") + "weight" if part.endswith("w") else f"{part}ias"
            array = case.weights[f"transformer.h.{layer}.{name}"]
            arrays.append(array[None] if array.ndim == 2 else array)
    path.mkdir()
    (path / "params_shapes.json").write_text(json.dumps([array.shape for array in arrays]))
    flat = np.concatenate([array.reshape(-1) for array in arrays])
    for number, piece in enumerate(np.split(flat, cuts)):
        np.save(path / f"params_{number}.npy", piece)
    (path / "config.json").write_text(json.dumps(case.hub_config))
    return case


def test_the_first_gpt(tmp_path: Path) -> None:
    case = numbered(tmp_path / "model")
    report, ours = converted(tmp_path / "model")
    assert (report.family, report.head, report.format) == ("gpt", "causal-lm", "npy")
    assert not report.mapping.drops
    assert_computes(ours, case)
    state = as_the_reference_has_it(ours, case).state_dict()
    for name, array in case.weights.items():
        assert np.array_equal(state[name].numpy(), array), name


def test_a_part_is_missing(tmp_path: Path) -> None:
    numbered(tmp_path / "model")
    (tmp_path / "model" / "params_1.npy").unlink()
    with pytest.raises(VerificationError, match=r"lacks params_1\.npy"):
        converted(tmp_path / "model")
    (tmp_path / "model" / "params_2.npy").rename(tmp_path / "model" / "params_1.npy")
    (tmp_path / "model" / "params_3.npy").unlink()
    with pytest.raises(VerificationError, match="the parts hold"):
        converted(tmp_path / "model")


def test_former_names_of_vocabularies(tmp_path: Path) -> None:
    """The same files give the same tokenizer under old and new names."""
    vocabulary, merges = words()
    files = {
        "gpt": {"vocab.json": vocabulary.encode(), "merges.txt": merges.encode()},
        "albert": {"spiece.model": pieces(control_symbols="[CLS],[SEP],[MASK]")},
    }
    former = {
        "vocab.json": "encoder_bpe_40000.json",
        "merges.txt": "vocab_40000.bpe",
        "spiece.model": "30k-clean.model",
    }
    for family, contents in files.items():
        vocabularies = []
        for names in ({name: name for name in contents}, former):
            folder = tmp_path / f"{family}-{len(names)}"
            folder.mkdir()
            (folder / "config.json").write_text(json.dumps({"model_type": "openai-gpt"}))
            for name, content in contents.items():
                (folder / names[name]).write_bytes(content)
            vocabularies.append(get_family(family).tokenizer(SourceFiles(folder)).to_str())
        assert vocabularies[0] == vocabularies[1]
