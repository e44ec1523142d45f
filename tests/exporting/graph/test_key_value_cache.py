"""Exported graphs with a key-value cache: generation equals torch, and the usual input names."""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace as changed
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from click.testing import CliRunner
from torch import Tensor, nn

from tests.exporting.conftest import Exported, dtypes, exported_once
from tests.exporting.graph.making import batch, made
from tests.exporting.making import export_onnx
from tests.inference.generation import conftest as gpt
from tests.inference.generation.making import CONFIGS as T5_CONFIGS
from tests.inference.making import make_checkpoint, store
from zoo.checkpoint import load_checkpoint
from zoo.cli.models.info import command as info
from zoo.conformance.verify import verify
from zoo.errors import UsageError, VerificationError
from zoo.exporting.graph.onnx_file import EXTERNAL_OVER
from zoo.families.random_inputs import random_inputs
from zoo.inference import load_session
from zoo.inference.bench import measure
from zoo.inference.generation.config import GenerationConfig
from zoo.inference.generation.decoder import SessionDecoder
from zoo.inference.generation.generate import generate, stream
from zoo.inference.ort import decoder, runtime
from zoo.nn.decoder import CausalLM, causal_mask
from zoo.nn.encoder_factory import make_embeddings, make_self_attention
from zoo.nn.generation import DecodeState, GenerationMixin
from zoo.nn.heads import LMHeadMixin
from zoo.nn.kv_cache import KeyValueCache
from zoo_gpt import Gpt

MODELS = (
    "plain",
    *(pytest.param(n, marks=pytest.mark.long) for n in ("first", "second", "later")),
)  # see ``made`` for their configurations
# The T5 of tests/exporting/quantization/test_families.py, and so its trace, which takes seconds.
SHALLOW = partial(made, "plain", layers=1)
SETTINGS = [
    {},
    {"num_beams": 4, "length_penalty": 0.5},
    {"seed": 3, "temperature": 1.5, "top_k": 20},
]


@pytest.fixture(scope="module")
def written() -> Callable[[str], Exported]:
    """Return a cached function from a name to a checkpoint, its export and the report."""

    @cache
    def export(name: str) -> Exported:
        maker = SHALLOW if name == "shallow" else partial(made, name)
        over = 1000 if name in ("shallow", *T5_CONFIGS) else EXTERNAL_OVER  # external data files
        return exported_once(f"export-{name}", maker, external_over=over)

    return export


def decoders(pair: Exported) -> tuple[SessionDecoder, SessionDecoder]:
    return load_session(pair[0], "cpu").decoder(), load_session(pair[1]).decoder()


@pytest.mark.long  # other tests compare shorter texts
@pytest.mark.parametrize("name", MODELS)
def test_64_greedy_tokens_are_those_of_torch(written: Callable[[str], Exported], name: str) -> None:
    ours, theirs = decoders(written(name))
    inputs, settings = batch(written(name)[0]), GenerationConfig(max_new_tokens=64)
    actual = generate(theirs, inputs, settings)
    assert actual == generate(ours, inputs, settings)
    assert [len(row) for row in actual] == [64] * 5 and len({t for row in actual for t in row}) > 5


@pytest.mark.by_default("second")
@pytest.mark.parametrize("settings", SETTINGS, ids=["greedy", "beams", "sampled"])
@pytest.mark.parametrize("name", ["second", "plain"])
def test_every_search_finds_the_texts_of_torch(
    written: Callable[[str], Exported], name: str, settings: dict[str, Any]
) -> None:
    ours, theirs = decoders(written(name))
    inputs, how = batch(written(name)[0], 7), GenerationConfig(max_new_tokens=24, **settings)
    free = generate(theirs, inputs, how)
    ends = [free[0][9], free[3][4]]  # rows end at different steps
    generated = generate(theirs, inputs, how, eos_token_ids=ends)
    assert generated == generate(ours, inputs, how, eos_token_ids=ends)
    assert len({len(row) for row in generated}) > 2
    if "num_beams" not in settings:
        single = {key: tensor[:1] for key, tensor in inputs.items()}
        assert list(stream(theirs, single, how)) == free[0]


def test_a_prompt_scores_its_last_token_alone(
    written: Callable[[str], Exported], monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint, graph, _ = written("second")
    inputs, scored = batch(checkpoint), {"torch": 0, "onnx": 0}  # positions

    def scores(model: LMHeadMixin, hidden: Tensor) -> Tensor:
        scored["torch"] += hidden[..., 0].numel()
        return in_torch(model, hidden)

    def run_values(*arguments: Any) -> dict[str, onnxruntime.OrtValue]:
        outputs = in_onnx(*arguments)
        scored["onnx"] += int(np.prod(outputs["logits"].shape()[:2]))
        return outputs

    in_torch, in_onnx = LMHeadMixin.scores, runtime.run_values
    monkeypatch.setattr(LMHeadMixin, "scores", scores)
    monkeypatch.setattr(decoder, "run_values", run_values)
    ours, theirs = (decoder.prefill(inputs, 1)[0] for decoder in decoders((checkpoint, graph, _)))
    assert scored == {"torch": 5, "onnx": 5} and inputs["input_ids"].shape == (5, 9)
    assert (ours - theirs).abs().max() <= 1e-5 * ours.abs().max()


@pytest.mark.by_default("shallow")
@pytest.mark.parametrize("name", ["shallow", *MODELS])
def test_a_run_is_the_model_as_it_is(written: Callable[[str], Exported], name: str) -> None:
    checkpoint, graph, report = written(name)
    spec = checkpoint.family.onnx(checkpoint.config, checkpoint.head_name)
    inputs = {
        key: tensor.numpy()
        for key, tensor in random_inputs(spec, checkpoint.config, (9, 4)).items()
    }
    sessions = [load_session(checkpoint, "cpu"), load_session(graph)]
    expected, logits = (session.run(inputs)["logits"] for session in sessions)
    assert logits.shape == expected.shape and logits.dtype == np.float32
    real = inputs["attention_mask"] == 1 if name in ("first", "second") else ...
    assert np.abs(logits - expected)[real].max() <= 1e-5 * np.abs(expected).max()
    assert report.cache and report.max_rel <= 1e-5
    assert {check.past for check in report.checks} > {0} and report.argmax_agreement == 1
    assert {check.outcome for check in verify(graph.path)} == {"ok"}
    times = measure(checkpoint, sessions, batch_size=2, seq_len=6, iterations=1)
    assert [timing.backend for timing in times] == ["cpu", "onnx"]


def test_a_continuation_by_the_names_that_others_know(written: Callable[[str], Exported]) -> None:
    """Greedy search with ONNX Runtime alone, by the usual input and output names."""
    checkpoint, graph, _ = written("second")
    session = onnxruntime.InferenceSession(graph.path / "onnx/model.onnx")
    layers, heads, width = 2, 4, 8
    names = [f"{layer}.{kind}" for layer in range(layers) for kind in ("key", "value")]
    input_names = ["input_ids", "attention_mask", *(f"past_key_values.{name}" for name in names)]
    assert [node.name for node in session.get_inputs()] == input_names
    assert [node.name for node in session.get_outputs()] == ["logits"] + [
        f"present.{name}" for name in names
    ]
    ids = np.array([[5, 9, 11], [8, 3, 2]])
    mask, past = np.ones_like(ids), [np.zeros((2, heads, 0, width), np.float32)] * 4
    (number,) = session.get_overridable_initializers()
    assert number.name == "num_logits_to_keep"
    feeds = dict(zip(input_names, [ids, mask, *past], strict=True))
    (everything,) = session.run(["logits"], feeds)
    (last,) = session.run(["logits"], {**feeds, number.name: np.array(1)})
    assert everything.shape == (2, 3, 61) and last.shape == (2, 1, 61)
    assert np.abs(last - everything[:, -1:]).max() <= 1e-5 * np.abs(everything).max()
    tokens: list[Any] = []
    for _ in range(20):
        values = [ids, mask, *past]
        logits, *past = session.run(None, dict(zip(input_names, values, strict=True)))
        ids = logits[:, -1:].argmax(-1)
        mask = np.concatenate([mask, np.ones_like(ids)], 1)
        tokens.append(ids[:, 0].tolist())
    inputs = {"input_ids": torch.tensor([[5, 9, 11], [8, 3, 2]])}
    expected = generate(
        load_session(checkpoint).decoder(), inputs, GenerationConfig(max_new_tokens=20)
    )
    assert [list(row) for row in zip(*tokens, strict=True)] == expected


@pytest.mark.long
def test_the_graphs_of_an_encoder_and_a_decoder(written: Callable[[str], Exported]) -> None:
    _, graph, report = written("later")
    assert list(report.graphs) == ["onnx/encoder_model.onnx", "onnx/decoder_model_merged.onnx"]
    shapes: dict[str, dict[str, Any]] = {}
    for file, details in report.graphs.items():
        model = onnx.load(graph.path / file)
        onnx.checker.check_model(model, full_check=True)
        assert [value.name for value in model.graph.input] == list(details.inputs)
        assert [value.name for value in model.graph.output] == list(details.outputs)
        shapes |= {file: {**details.inputs, **details.outputs}}
    encoder, decoder = shapes.values()
    source, target = ["batch", 4, "tokens", 10], ["batch", 4, "past_tokens", 10]
    encoder, decoder = shapes.values()
    assert encoder["input_ids"] == encoder["attention_mask"] == ["batch", "tokens"]
    assert encoder["last_hidden_state"] == decoder["encoder_hidden_states"]
    assert decoder["input_ids"] == ["batch", "decoder_tokens"]
    assert decoder["encoder_attention_mask"] == ["batch", "tokens"]
    assert decoder["use_cache_branch"] == [1]
    for layer in range(2):
        for kind in ("key", "value"):
            cached = decoder[f"past_key_values.{layer}.encoder.{kind}"]
            assert cached == ["batch", 4, "past_source_tokens", 10]
            assert decoder[f"present.{layer}.encoder.{kind}"] == source
            assert decoder[f"past_key_values.{layer}.decoder.{kind}"] == target
            assert f"present.{layer}.decoder.{kind}" in decoder
    data = ["encoder_model.onnx_data", "decoder_model_merged.onnx_data"]
    assert [details.external_data for details in report.graphs.values()] == data
    files = {*report.graphs, *(f"onnx/{name}" for name in data)}
    assert graph.manifest.files.keys() == {*files, "config.json", "generation_config.json"}


class Solo(GenerationMixin):
    """A model of no family: one layer of attention, without positions."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.embeddings = make_embeddings(config, positions=False, norm=False)
        self.layers, self.head = nn.ModuleList([make_self_attention(config, causal=True)]), None

    def init_state(self, inputs: Mapping[str, Tensor], max_new_tokens: int) -> DecodeState:
        return DecodeState(KeyValueCache(1, max_new_tokens), inputs.get("attention_mask"))

    def forward_with_cache(self, tokens: Tensor, state: DecodeState) -> Tensor:
        x, past = self.embeddings(tokens), state.cache.length
        mask = causal_mask(state.mask, queries=tokens.shape[1], past=past, like=x)
        return x + self.layers[0](x, mask, state.cache.layers[0])  # type: ignore[no-any-return]

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> dict[str, Tensor]:
        x = self.embeddings(input_ids)
        mask = causal_mask(attention_mask, queries=x.shape[1], past=0, like=x)
        return self.outputs(x + self.layers[0](x, mask))


class SoloFamily(Gpt):
    def model(self, config: Any, head: str) -> nn.Module:
        return Solo(config)


@pytest.mark.long
def test_a_family_that_only_says_how_it_reads(tmp_path: Path) -> None:
    config = gpt.SMALL
    model = Solo(config)
    gpt.sharp(model, 1)
    stored = store(tmp_path / "model", model, Gpt(), config, "causal-lm")
    checkpoint = changed(stored, family=SoloFamily())
    export_onnx(checkpoint, tmp_path / "graph")
    graph = changed(load_checkpoint(tmp_path / "graph"), family=SoloFamily())
    ours, theirs = (load_session(path).decoder() for path in (checkpoint, graph))
    for settings in (
        GenerationConfig(max_new_tokens=64),
        GenerationConfig(max_new_tokens=20, num_beams=3),
    ):
        generated = generate(theirs, batch(checkpoint), settings)
        assert generated == generate(ours, batch(checkpoint), settings)


class Forgetful(CausalLM):
    """A model whose export numbers positions from zero in every step."""

    def forward_with_cache(self, tokens: Tensor, state: DecodeState) -> Tensor:
        if torch.compiler.is_exporting():
            return self.encode(tokens, position_ids=None, cache=state.cache)
        return super().forward_with_cache(tokens, state)


class ForgetfulGpt(Gpt):
    def model(self, config: Any, head: str) -> nn.Module:
        model = super().model(config, head)
        model.__class__ = type("ForgetfulLM", (Forgetful, type(model)), {})
        return model


@pytest.fixture
def no_trace(tmp_path: Path) -> Iterator[None]:
    yield
    assert [path.name for path in tmp_path.iterdir() if path.name != "zoo-home"] == ["model"]


@pytest.mark.long
@pytest.mark.usefixtures("no_trace")
def test_a_graph_that_reads_its_cache_wrongly_is_not_published(tmp_path: Path) -> None:
    checkpoint = changed(made("second", tmp_path / "model", layers=1), family=ForgetfulGpt())
    with pytest.raises(VerificationError, match=r"logits differs from torch by .* tokens"):
        export_onnx(checkpoint, tmp_path / "graph")


@pytest.mark.usefixtures("no_trace")
def test_a_head_that_does_not_write_has_no_cache(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "model", num_layers=1)
    with pytest.raises(UsageError, match="head none has no key-value cache; leave --cache out"):
        export_onnx(checkpoint, tmp_path / "graph", cache=True)


@pytest.mark.long
def test_a_graph_without_a_cache_says_what_to_do(tmp_path: Path) -> None:
    checkpoint = made("second", tmp_path / "model", layers=1)
    report = export_onnx(checkpoint, tmp_path / "graph", cache=False)
    assert not report.cache and {check.past for check in report.checks} == {0}
    assert list(report.graphs["onnx/model.onnx"].inputs) == ["input_ids", "attention_mask"]
    session = load_session(load_checkpoint(tmp_path / "graph"))
    assert session.run({"input_ids": np.array([[3, 4]])})["logits"].shape == (1, 2, 61)
    with pytest.raises(UsageError, match="cannot generate; export the model again, with --cache"):
        session.decoder()


def test_every_file_is_checked(written: Callable[[str], Exported], tmp_path: Path) -> None:
    _, graph, _ = written("shallow")  # of several files
    assert len(graph.manifest.files) == 7
    shutil.copytree(graph.path, tmp_path / "graph")
    for name in (name for name in graph.manifest.files if name.startswith("onnx/")):
        path = tmp_path / "graph" / name
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(VerificationError, match=f"{name} is not the file that"):
            load_session(load_checkpoint(tmp_path / "graph"))
        path.unlink()
        with pytest.raises(VerificationError, match=f"{name} is not the file that"):
            load_session(load_checkpoint(tmp_path / "graph"))
        path.write_bytes(content)
    (tmp_path / "graph" / "onnx/model.onnx").write_text("a graph that the manifest does not know")
    load_session(load_checkpoint(tmp_path / "graph"))


@pytest.mark.long  # test_graphs.py has a graph in float16
@pytest.mark.parametrize("name", ["second", "plain"])
def test_float16(name: str, tmp_path: Path) -> None:
    """Weights and cache are in float16, other inputs and outputs as other programs read them."""
    checkpoint = made(name, tmp_path / "model", layers=1)
    report = export_onnx(checkpoint, tmp_path / "graph", dtype="float16")
    graph = load_checkpoint(tmp_path / "graph")
    assert graph.manifest.dtypes["F16"] > 10 and 1e-5 < report.max_rel < 2e-2
    types = {
        key: t for path in report.graphs for key, t in dtypes(tmp_path / "graph" / path).items()
    }
    cached = {key for key in types if key.startswith(("past_key_values.", "present."))}
    assert cached and {types[key] for key in cached} == {onnx.TensorProto.FLOAT16}
    whole = {"logits", "last_hidden_state", "encoder_hidden_states"} & set(types)
    assert len(whole) == (3 if name == "plain" else 1)
    assert {types[key] for key in whole} == {onnx.TensorProto.FLOAT}
    inputs, settings = batch(checkpoint, 2), GenerationConfig(max_new_tokens=9, num_beams=2)
    generated = generate(load_session(graph).decoder(), inputs, settings)
    assert [len(row) for row in generated] == [9, 9]


def test_info_says_that_there_is_a_cache(written: Callable[[str], Exported]) -> None:
    _, graph, _ = written("shallow")
    done = CliRunner().invoke(info, [str(graph.path), "--json"], catch_exceptions=False)
    export = json.loads(done.stdout)["export"]
    assert export["cache"] is True and "onnx/decoder_model_merged.onnx" in export["graphs"]
