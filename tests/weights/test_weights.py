"""Weight rules: operations and their inverses, templates, prefixes, and unused tensors."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from zoo.errors import VerificationError
from zoo.io.tensors.formats import TensorInfo
from zoo.weights import (
    Concat,
    DeinterleaveQKV,
    Identity,
    Ignore,
    MappingReport,
    Op,
    Rule,
    SplitHeads,
    TiedAlias,
    Transpose,
    WeightMap,
    is_arange,
    is_causal_mask,
    is_mask_value,
    match_tensors,
)

Array = NDArray[Any]

# Operations

STORAGE = st.sampled_from(["|u1", "<u2", "<f2", "<f4", "<f8", "<i8"])
SIDE = st.integers(0, 5)


@st.composite
def concats(draw: st.DrawFn) -> tuple[Op, tuple[int, ...]]:
    rest = tuple(draw(st.lists(SIDE, max_size=2)))
    if draw(st.booleans()):
        parts = draw(st.integers(1, 4))
        return Concat(parts), (parts * draw(SIDE), *rest)
    sizes = tuple(draw(st.lists(SIDE, min_size=1, max_size=4)))
    return Concat(len(sizes), sizes), (sum(sizes), *rest)


@st.composite
def by_heads(draw: st.DrawFn) -> tuple[Op, tuple[int, ...]]:
    heads = draw(st.integers(1, 4))
    return DeinterleaveQKV(heads), (3 * heads * draw(SIDE), *draw(st.lists(SIDE, max_size=1)))


@st.composite
def heads_apart(draw: st.DrawFn) -> tuple[Op, tuple[int, ...]]:
    heads, width, merges = draw(st.integers(1, 4)), draw(SIDE), draw(st.booleans())
    inner = heads * draw(SIDE)
    return SplitHeads(heads, merges), (width, inner) if merges else (inner, width)


CASES: st.SearchStrategy[tuple[Op, tuple[int, ...]]] = st.one_of(
    st.tuples(st.just(Identity()), st.lists(SIDE, max_size=3).map(tuple)),
    st.tuples(st.just(Transpose()), st.lists(SIDE, min_size=1, max_size=2).map(tuple)),
    concats(),
    by_heads(),
    heads_apart(),
)


def random_bits(shape: tuple[int, ...], dtype: str, seed: int) -> Array:
    """Draw tensors of any bit patterns, such as NaNs with a payload and negative zeros."""
    count = int(np.prod(shape, dtype=int)) * np.dtype(dtype).itemsize
    raw = np.random.default_rng(seed).integers(0, 256, count, np.uint8)
    return raw.view(dtype).reshape(shape)


@settings(deadline=None)  # the machine may be busy
@given(CASES, STORAGE, st.integers(0, 2**32))
def test_ops_are_inverted_bit_for_bit(
    case: tuple[Op, tuple[int, ...]], dtype: str, seed: int
) -> None:
    op, shape = case
    hub = [random_bits(s, dtype, seed + k) for k, s in enumerate(op.hub_shapes(shape))]
    ours = op.from_hub(hub, shape)
    assert ours.shape == shape and ours.dtype == dtype
    back = op.to_hub(ours)
    assert [part.shape for part in back] == [part.shape for part in hub]
    assert [part.tobytes() for part in back] == [part.tobytes() for part in hub]


@settings(deadline=None)  # the machine may be busy
@given(CASES, STORAGE, st.integers(0, 2**32))
def test_chunks_are_the_tensor_in_order(
    case: tuple[Op, tuple[int, ...]], dtype: str, seed: int
) -> None:
    op, shape = case
    hub = [random_bits(s, dtype, seed + k) for k, s in enumerate(op.hub_shapes(shape))]
    joined = b"".join(piece.tobytes() for piece in op.chunks(hub))
    assert joined == op.from_hub(hub, shape).tobytes()


def test_concat_order() -> None:
    q, k, v = (np.full((2, 3), n) for n in range(3))
    assert Concat(3).from_hub([q, k, v], (6, 3))[:, 0].tolist() == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(("op", "rows"), [(Concat(3), 7), (Concat(2, sizes=(2, 3)), 6)])
def test_concat_of_rows_that_do_not_divide(op: Concat, rows: int) -> None:
    with pytest.raises(ValueError, match=f"{rows} rows do not split"):
        op.hub_shapes((rows, 2))


def test_deinterleave_qkv() -> None:
    rows = [f"{part}{head}" for head in range(2) for part in "qkv"]  # one row each
    translated = DeinterleaveQKV(2).from_hub([np.array(rows)], (6,))
    assert translated.tolist() == ["q0", "q1", "k0", "k1", "v0", "v1"]


def test_heads_with_an_axis_of_their_own() -> None:
    x, hub = np.arange(2.0), np.arange(12.0).reshape(2, 3, 2)  # (in, heads, head size)
    to_heads: Any = SplitHeads(3).from_hub([hub], (6, 2))
    assert np.array_equal(to_heads @ x, np.einsum("h,hnd->nd", x, hub).reshape(-1))
    from_heads: Any = SplitHeads(3, merges=True).from_hub([hub], (2, 6))
    mixed = np.arange(6.0)
    assert np.array_equal(from_heads @ mixed, np.einsum("nd,hnd->h", mixed.reshape(3, 2), hub))


def test_transpose_of_vectors() -> None:
    assert Transpose().hub_shapes((5,)) == ((5,),)
    assert Transpose().hub_shapes((2, 5)) == ((5, 2),)


# Templates

TRUNK = WeightMap(
    rules=[
        Rule("net.words.weight", "tokens.weight", (10, 4)),
        Rule("net.words.LayerNorm.{p}", "norm.{p}", (4,)),
        Rule(
            ("net.block.{i}.q.{p}", "net.block.{i}.k.{p}"), "layers.{i}.qk.{p}", (8, 4), Concat(2)
        ),
    ],
    drops=[Ignore("net.words.position_ids", "a buffer", is_arange)],
    legacy={"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"},
    prefix="net.",
    counts={"i": 2},
)
SCORES = TRUNK.plus(
    Rule("cls.bias", "head.bias", (10,)),
    Rule("net.pool.{p}", "pooler.{p}", (4, 4), optional="pooler"),
    ties=[TiedAlias("cls.decoder.weight", to="net.words.weight")],
)


def file_of(weights: WeightMap, dtype: str = "F32") -> dict[str, TensorInfo]:
    return {
        weights.written(source): TensorInfo(dtype, shape)
        for entry in weights.entries()
        for source, shape in zip(entry.sources, entry.source_shapes, strict=True)
    }


def test_templates_expand_on_both_sides() -> None:
    entries = {entry.target: entry for entry in TRUNK.entries()}
    assert len(entries) == 1 + 2 + 2 * 2
    entry = entries["layers.1.qk.weight"]
    assert entry.sources == ("net.block.1.q.weight", "net.block.1.k.weight")
    assert entry.shape == (8, 4) and entry.source_shapes == ((4, 4), (4, 4))
    assert entries["layers.1.qk.bias"].source_shapes == ((4,), (4,))


def test_two_placeholders_expand_to_all_pairs() -> None:
    weights = WeightMap([Rule("a.{i}.{j}", "b.{j}.{i}", (1,))], counts={"i": 2, "j": 3})
    pairs = [(entry.sources[0], entry.target) for entry in weights.entries()]
    assert len(pairs) == 6 and ("a.1.2", "b.2.1") in pairs


def test_parameter_count_without_ties() -> None:
    assert TRUNK.parameters() == 40 + 8 + 2 * (32 + 8)
    assert SCORES.parameters() == TRUNK.parameters() + 10 + 20


def test_backbone_is_written_without_prefix() -> None:
    assert TRUNK.bare and TRUNK.written("net.words.weight") == "words.weight"
    assert not SCORES.bare and SCORES.written("net.words.weight") == "net.words.weight"


def test_ties_and_drops_expand() -> None:
    weights = WeightMap(
        rules=[Rule("words.{p}", "tokens.{p}", (2, 2))],
        drops=[Ignore("old.{i}.{p}", "unused")],
        ties=[
            TiedAlias("copy.{p}", to="words.{p}"),
            TiedAlias("kept.{p}", to="words.{p}", unused=True),
        ],
        counts={"i": 2},
    )
    assert weights.aliases()["copy.bias"] == "words.bias"
    assert weights.copies() == {
        "words.weight": ("kept.weight",),
        "words.bias": ("kept.bias",),
    }
    assert sorted(weights.dropped()) == ["old.0.bias", "old.0.weight", "old.1.bias", "old.1.weight"]


# Prefixes


@pytest.mark.parametrize(
    "prefix",
    ["", "net.", "module.", "module.net.", "_orig_mod.", "_orig_mod.module.net.", "x.net."],
)
def test_prefix_of_a_backbone_is_found(prefix: str) -> None:
    file = {prefix + name: info for name, info in file_of(TRUNK).items()}
    mapping = match_tensors(TRUNK, file)
    mapping.raise_if_incomplete("test")
    assert mapping.prefix == prefix
    assert {name for copy in mapping.copies for name in copy.names} == set(file)


@pytest.mark.parametrize("wrapper", ["", "module.", "_orig_mod.", "model.module."])
def test_wrapper_prefix_is_removed_from_heads(wrapper: str) -> None:
    file = {wrapper + name: info for name, info in file_of(SCORES).items()}
    mapping = match_tensors(SCORES, file)
    mapping.raise_if_incomplete("test")
    assert mapping.prefix == wrapper + "net."


def test_backbone_and_head_under_different_prefixes_do_not_match() -> None:
    file = {f"module.{name}": info for name, info in file_of(SCORES).items()}
    file["cls.bias"] = file.pop("module.cls.bias")
    match_tensors(SCORES, file).raise_if_incomplete(
        "test"
    )  # the name of the head's tensor in the rules
    file["other.cls.bias"] = file.pop("cls.bias")
    assert match_tensors(SCORES, file).missing == ("cls.bias",)


def test_two_backbones_are_ambiguous() -> None:
    twice = {p + name: info for p in ("first.", "second.") for name, info in file_of(TRUNK).items()}
    with pytest.raises(VerificationError, match=r"2 backbones .*first\., second\."):
        match_tensors(TRUNK, twice)


def test_larger_of_two_backbones_is_matched() -> None:
    file = {f"net.{name}": info for name, info in file_of(TRUNK).items()}
    file["teacher.words.weight"] = TensorInfo("F32", (10, 4))
    mapping = match_tensors(TRUNK, file)
    assert mapping.prefix == "net." and mapping.unexpected == ("teacher.words.weight",)


def test_file_without_known_tensors() -> None:
    mapping = match_tensors(TRUNK, {"something": TensorInfo("F32", (1,))})
    assert mapping.unexpected == ("something",)
    assert len(mapping.missing) == len(file_of(TRUNK))


# Legacy names


@pytest.mark.parametrize(
    ("name", "present"),
    [
        ("net.words.LayerNorm.gamma", "net.words.LayerNorm.weight"),
        ("LayerNorm.beta", "LayerNorm.bias"),
        ("net.words.MyLayerNorm.gamma", "net.words.MyLayerNorm.gamma"),
        ("net.words.LayerNorm.gamma_2", "net.words.LayerNorm.gamma_2"),
        ("net.LayerNorm.gamma.scale", "net.LayerNorm.gamma.scale"),
        ("net.layer_scale.gamma", "net.layer_scale.gamma"),
    ],
)
def test_legacy_names_match_whole_components(name: str, present: str) -> None:
    assert TRUNK.current(name) == present


def test_legacy_names_are_read_and_reported() -> None:
    file = file_of(TRUNK)
    file["words.LayerNorm.gamma"] = file.pop("words.LayerNorm.weight")
    mapping = match_tensors(TRUNK, file)
    mapping.raise_if_incomplete("test")
    assert mapping.renamed == {"words.LayerNorm.gamma": "words.LayerNorm.weight"}


def test_tensor_under_legacy_and_current_name_is_refused() -> None:
    file = file_of(TRUNK)
    file["words.LayerNorm.gamma"] = file["words.LayerNorm.weight"]
    mapping = match_tensors(TRUNK, file)
    assert "both are net.words.LayerNorm.weight" in mapping.shape_mismatches[0]
    assert mapping.open_items == 1


# Optional parts


def without(file: Mapping[str, TensorInfo], *names: str) -> dict[str, TensorInfo]:
    assert set(names) <= set(file)
    return {name: info for name, info in file.items() if name not in names}


def test_optional_part_is_present_or_absent() -> None:
    file = file_of(SCORES)
    mapping = match_tensors(SCORES, file)
    assert mapping.complete and mapping.present == ("pooler",) and mapping.absent == ()
    mapping = match_tensors(SCORES, without(file, "net.pool.weight", "net.pool.bias"))
    assert mapping.complete and mapping.present == () and mapping.absent == ("pooler",)
    assert [copy for copy in mapping.copies if copy.entry.target.startswith("pooler")] == []


def test_incomplete_optional_part() -> None:
    mapping = match_tensors(SCORES, without(file_of(SCORES), "net.pool.bias"))
    assert mapping.missing == ("net.pool.bias",)


# Ties


def test_alias_and_owner_are_tied() -> None:
    file = file_of(SCORES) | {"cls.decoder.weight": TensorInfo("F32", (10, 4))}
    mapping = match_tensors(SCORES, file)
    assert mapping.complete and mapping.ties == {"cls.decoder.weight": "net.words.weight"}


def test_unused_alias_is_dropped_beside_its_owner() -> None:
    unused = TiedAlias("cls.decoder.weight", to="net.words.weight", unused=True)
    weights = replace(SCORES, ties=[unused])
    file = file_of(SCORES) | {"cls.decoder.weight": TensorInfo("F32", (10, 4))}
    mapping = match_tensors(weights, file)
    assert mapping.complete and not mapping.ties
    reason = mapping.drops["cls.decoder.weight"].reason
    assert reason == "the model uses net.words.weight instead"
    alone = match_tensors(weights, without(file, "net.words.weight"))
    assert alone.complete and not alone.drops


def test_alias_without_owner_is_read() -> None:
    file = without(file_of(SCORES), "net.words.weight")
    file["cls.decoder.weight"] = TensorInfo("F32", (10, 4))
    mapping = match_tensors(SCORES, file)
    assert mapping.complete and not mapping.ties
    copy = next(copy for copy in mapping.copies if copy.entry.target == "tokens.weight")
    assert copy.names == ("cls.decoder.weight",)


def test_alias_without_a_tie_is_unexpected() -> None:
    file = file_of(TRUNK) | {"cls.decoder.weight": TensorInfo("F32", (10, 4))}
    assert match_tensors(TRUNK, file).unexpected == ("cls.decoder.weight",)


# Ignored tensors


def test_ignored_tensor_has_reason_and_check() -> None:
    file = file_of(TRUNK) | {"words.position_ids": TensorInfo("I64", (1, 6))}
    mapping = match_tensors(TRUNK, file)
    drop = mapping.drops["words.position_ids"]
    assert mapping.complete and drop.reason == "a buffer" and drop.value_check is is_arange


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.arange(6)[None], True),
        (np.arange(6, dtype=np.float32), True),
        (np.arange(1, 7), False),
        (np.array([0, 1, 2, 2]), False),
        (np.zeros(3), False),
    ],
)
def test_is_arange(values: Array, expected: bool) -> None:
    assert is_arange(values) is expected


# Incomplete reports


def open_mapping() -> MappingReport:
    file = without(file_of(TRUNK), "block.1.k.weight", "words.LayerNorm.bias")
    file["words.weight"] = TensorInfo("F32", (11, 4))
    file["extra.weight"] = TensorInfo("F32", (3,))
    return match_tensors(TRUNK, file)


def test_incomplete_report_lists_problems() -> None:
    mapping = open_mapping()
    assert not mapping.complete and mapping.open_items == 4
    assert mapping.missing == ("net.words.LayerNorm.bias", "net.block.1.k.weight")
    assert mapping.unexpected == ("extra.weight",)  # block.1.q is known, but incomplete
    assert mapping.shape_mismatches == ("words.weight 11x4, not 10x4",)


def test_incomplete_report_raises_one_line() -> None:
    with pytest.raises(VerificationError) as caught:
        open_mapping().raise_if_incomplete("here")
    line = str(caught.value)
    for part in ("here", "words.weight 11x4, not 10x4", "net.block.1.k.weight", "extra.weight"):
        assert part in line
    assert "\n" not in line and caught.value.exit_code == 3


def test_long_lists_are_truncated() -> None:
    with pytest.raises(VerificationError, match=r"11 missing .* and 5 more\)"):
        match_tensors(TRUNK, {}).raise_if_incomplete("here")


@pytest.mark.parametrize(
    ("codes", "widest"),
    [
        (("F16", "F32"), "F32"),
        (("F16", "BF16"), "F32"),  # neither holds the other's values
        (("BF16", "F8_E4M3"), "BF16"),
        (("F32", "F64"), "F64"),
    ],
)
def test_parts_of_several_dtypes_are_read_in_the_widest(
    codes: tuple[str, str], widest: str
) -> None:
    file = file_of(TRUNK)
    file["block.0.q.weight"], file["block.0.k.weight"] = (TensorInfo(c, (4, 4)) for c in codes)
    mapping = match_tensors(TRUNK, file)
    assert mapping.complete
    (copy,) = (copy for copy in mapping.copies if "block.0.q.weight" in copy.names)
    assert (copy.dtypes, copy.dtype) == (codes, widest)


@pytest.mark.parametrize("code", ["BOOL", "I8", "U8", "I64"])
def test_integers_are_not_weights(code: str) -> None:
    file = file_of(TRUNK)
    file["words.weight"] = TensorInfo(code, file["words.weight"].shape)
    mapping = match_tensors(TRUNK, file)
    assert (mapping.complete, mapping.open_items) == (False, 1)
    with pytest.raises(VerificationError, match=r"words\.weight is (bool|int8|uint8|int64)"):
        mapping.raise_if_incomplete("here")


def test_tensors_of_other_heads_are_ignored_on_request() -> None:
    file = file_of(SCORES) | {"cls.other": TensorInfo("F32", (2,))}
    assert match_tensors(SCORES, file).unexpected == ("cls.other",)
    mapping = match_tensors(SCORES, file, ignored={"cls.other": "belongs to another head"})
    assert mapping.complete and mapping.drops["cls.other"].reason == "belongs to another head"


def test_new_head_is_initialized_on_request() -> None:
    file = {f"net.{name}": info for name, info in file_of(TRUNK).items()}
    assert match_tensors(SCORES, file).missing == ("cls.bias",)
    mapping = match_tensors(SCORES, file, init=("head.bias",))
    assert mapping.complete and [entry.target for entry in mapping.initialized] == ["head.bias"]
    missing = without(file, "net.words.weight")
    assert match_tensors(SCORES, missing, init=("head.bias",)).missing == ("net.words.weight",)


def test_partly_stored_tensor_is_not_initialized() -> None:
    half = without(file_of(TRUNK), "block.0.k.bias")
    mapping = match_tensors(TRUNK, half, init=("layers.0.qk.bias",))
    assert mapping.missing == ("net.block.0.k.bias",) and not mapping.initialized


def test_more_layers_than_tensors_is_refused() -> None:
    weights = WeightMap([Rule("a.{i}", "b.{i}", (1,))], counts={"i": 10**12})
    with pytest.raises(VerificationError, match=r"counts 1,000,000,000,000 layers, .* 1 tensors"):
        match_tensors(weights, {"a.0": TensorInfo("float32", (1,))})


def test_buffer_checks() -> None:
    triangle = np.tril(np.ones((1, 1, 5, 5), np.uint8))
    assert is_causal_mask(triangle) and is_causal_mask(triangle.astype(bool))
    assert not is_causal_mask(triangle.transpose(0, 1, 3, 2)) and not is_causal_mask(
        np.ones((1, 1, 5, 5))
    )
    assert not is_causal_mask(np.ones(5)) and not is_causal_mask(np.ones((1, 1, 5, 4)))
    assert is_mask_value(np.array(-1e4)) and is_mask_value(np.array([-1e9]))
    assert not is_mask_value(np.array(0.0)) and not is_mask_value(np.array([-1e4, -1e4]))
