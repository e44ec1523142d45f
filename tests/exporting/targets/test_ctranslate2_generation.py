"""CTranslate2 with encoder-decoders, and what it generates, against torch and transformers."""

import json
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result

from tests.exporting.targets.conftest import Small
from tests.tokenizers.trained import byte_level, padded
from zoo.api import Model
from zoo.checkpoint import Checkpoint, load_checkpoint
from zoo.cli import cli
from zoo.conversion.convert import convert
from zoo.errors import UsageError, VerificationError
from zoo.exporting.gate import export_model
from zoo.exporting.quantization.plan import QuantizationPlan
from zoo.exporting.session import open_session
from zoo.exporting.targets import find_target
from zoo.exporting.targets.base import ExportSettings
from zoo.exporting.targets.generated import GeneratedSequences
from zoo.hub.source import CheckpointDir
from zoo.inference import load_session
from zoo.inference.session import BackendWarning

TARGET = find_target("ctranslate2")
SIZES = {"encoder_attention_heads": 4, "decoder_attention_heads": 2, "max_position_embeddings": 40}
STACKS = {"encoder_layers": 1, "decoder_layers": 2, "encoder_ffn_dim": 48, "decoder_ffn_dim": 40}
T5: dict[str, Any] = {"num_layers": 1, "num_decoder_layers": 2, "num_heads": 4, "d_kv": 6}
GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "t5": ("T5ForConditionalGeneration", {**T5, "d_ff": 48}),
    "t5-gated": ("T5ForConditionalGeneration", {**T5, "d_ff": 48, **GATED}),
    "bart": ("BartForConditionalGeneration", {**SIZES, **STACKS, "forced_bos_token_id": 0}),
    "mbart": ("MBartForConditionalGeneration", {**SIZES, **STACKS, "scale_embedding": True}),
}
ENCODER = ("T5EncoderModel", {"num_layers": 2, "num_heads": 4, "d_kv": 6, "d_ff": 48})
TEXTS = ["The cat sat on the mat.", "A dog ran to the house, quickly, and then it slept."]


def make(folder: Path, name: str) -> Checkpoint:
    """Write a random model of transformers with a tokenizer, and convert it."""
    import transformers

    architecture, changes = MODELS.get(name, ENCODER)
    kind = getattr(transformers, architecture)
    source = folder / name
    source.mkdir(parents=True)
    if "T5" in architecture:
        (source / "spiece.model").write_bytes(padded())
        size = 810  # with sentinels and rows without a token
        starts = {"decoder_start_token_id": 0}
    else:
        vocabulary, merges = byte_level()
        (source / "vocab.json").write_text(vocabulary)
        (source / "merges.txt").write_text(merges)
        size = len(json.loads(vocabulary))
        starts = {"decoder_start_token_id": 5 if name == "mbart" else 2}
    torch.manual_seed(3)
    model = kind(kind.config_class(vocab_size=size, d_model=24, **starts, **changes))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    model.save_pretrained(source)
    convert(CheckpointDir(source, "source"), folder / f"{name}-model")
    return load_checkpoint(folder / f"{name}-model")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Checkpoint, Checkpoint]]:
    """Each model, and its export."""
    folder, found = tmp_path_factory.mktemp("translators"), {}
    for name in MODELS:
        checkpoint = make(folder, name)
        report = export_model(TARGET, checkpoint, folder / f"{name}-ct2", ExportSettings())
        assert report.validated and report.max_rel is not None and report.max_rel < 2e-6
        assert max(check.tokens for check in report.checks) >= 40
        assert sum(check.padding for check in report.checks) > 0
        assert report.generation is not None
        assert {*report.generation.equal.values()} == {report.generation.texts}
        assert report.tokenizer is not None and report.tokenizer.different == []
        found[name] = checkpoint, load_checkpoint(folder / f"{name}-ct2")
    return found


@pytest.mark.by_default("t5", "bart")
@pytest.mark.parametrize("name", MODELS)
def test_targets_have_the_likelihood_of_transformers(
    name: str, exported: dict[str, tuple[Checkpoint, Checkpoint]]
) -> None:
    import transformers

    checkpoint, export = exported[name]
    kind: Any = getattr(transformers, MODELS[name][0])
    reference = kind.from_pretrained(checkpoint.path.parent / name).eval()
    start = reference.config.decoder_start_token_id
    ids = np.array([[9, 10, 11, 12, 2], [13, 14, 15, 2, 1]])
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]])
    target = np.array([[start, 20, 21, 2, 22], [start, 30, 31, 32, 33]])
    with torch.inference_mode():
        arrays = {"input_ids": ids, "attention_mask": mask, "decoder_input_ids": target}
        logits = reference(**{n: torch.from_numpy(a) for n, a in arrays.items()}).logits
    session = open_session(export)
    found = session.run(arrays)["logits"]
    np.testing.assert_allclose(found, logits.numpy(), atol=1e-4 * logits.abs().max().item())
    # its own program scores the same targets
    folder = export.path / "ctranslate2"
    words = json.loads((folder / "shared_vocabulary.json").read_text("utf-8"))
    translator = ctranslate2.Translator(str(folder), compute_type="float32")
    first = 0 if name == "mbart" else 1  # of mBART, the target begins with the language
    scores = translator.score_batch(
        [[words[k] for k in row[kept == 1]] for row, kept in zip(ids, mask, strict=True)],
        [[words[k] for k in row[first:]] for row in target],
    )
    expected = logits.log_softmax(-1)[:, :-1].gather(-1, torch.from_numpy(target[:, 1:, None]))
    actual = [score.log_probs[:4] for score in scores]
    np.testing.assert_allclose(actual, expected[..., 0].numpy(), atol=1e-3)


SETTINGS: list[dict[str, Any]] = [
    {},
    {"min_new_tokens": 9},
    {"no_repeat_ngram_size": 2},
    {"suppress_tokens": (11, 12, 40), "bad_words_ids": ((20, 21), (30,))},
    {"forced_bos_token_id": 7},
    {"forced_eos_token_id": 2},
    {"num_beams": 4, "early_stopping": True},
    {"num_beams": 3, "early_stopping": "never", "length_penalty": 2.0},
    {"num_beams": 4, "early_stopping": "never", "length_penalty": 0.0, "num_return_sequences": 3},
    {"num_beams": 3, "length_penalty": -1.0},
    {"num_beams": 3, "early_stopping": True, "min_new_tokens": 6, "renormalize_logits": True},
    {"num_beams": 3, "early_stopping": True, "forced_eos_token_id": 2},
    {
        "num_beams": 3,
        "early_stopping": True,
        "forced_bos_token_id": 7,
        "min_new_tokens": 3,
        "renormalize_logits": True,
    },
]


@pytest.mark.by_default("t5-gated")
@pytest.mark.parametrize("name", ["t5-gated", "bart"])
def test_every_setting_gives_the_tokens_of_torch(
    name: str, exported: dict[str, tuple[Checkpoint, Checkpoint]]
) -> None:
    checkpoint, export = exported[name]
    pairs = []
    for settings in SETTINGS:
        ends = {"eos_token_id": 2} if name == "bart" else {"eos_token_id": 1}
        options = {"max_new_tokens": 12, "forced_bos_token_id": None, **ends, **settings}
        ours, theirs = (
            Model(c, s).run("seq2seq", TEXTS, **options)
            for c, s in ((checkpoint, load_session(checkpoint)), (export, open_session(export)))
        )
        pairs.append((settings, ours, theirs))
    assert [pair for pair in pairs if pair[1] != pair[2]] == []


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"do_sample": True}, "samples with other random numbers"),
        ({"repetition_penalty": 1.2}, "repetition_penalty 1.2"),
        ({"encoder_no_repeat_ngram_size": 2}, "encoder_no_repeat_ngram_size"),
        ({"begin_suppress_tokens": [5]}, "begin_suppress_tokens"),
        ({"forced_eos_token_id": [1, 2]}, "one forced_eos_token_id"),
        ({"decoder_start_token_id": 3}, "a target begins with"),
    ],
)
def test_settings_that_it_does_not_have_are_refused(
    settings: dict[str, Any], reason: str, exported: dict[str, tuple[Checkpoint, Checkpoint]]
) -> None:
    _, export = exported["t5"]
    with pytest.raises(UsageError, match=reason):
        Model(export, open_session(export)).run("seq2seq", TEXTS, **settings)


def test_another_search_is_named(exported: dict[str, tuple[Checkpoint, Checkpoint]]) -> None:
    _, export = exported["bart"]
    model = Model(export, open_session(export))
    settings = {"num_beams": 2, "min_new_tokens": 3, "forced_bos_token_id": 7}
    with pytest.warns(BackendWarning) as caught:
        model.run("seq2seq", TEXTS, **settings)
    (message,) = (str(w.message) for w in caught if issubclass(w.category, BackendWarning))
    assert [part for part in ("early_stopping", "renormalize_logits") if part not in message] == []


def test_a_source_without_text_is_named(
    exported: dict[str, tuple[Checkpoint, Checkpoint]],
) -> None:
    _, export = exported["t5"]
    model = Model(export, open_session(export))
    with pytest.raises(UsageError, match="no tokens but special ones"):
        model.run("seq2seq", ["A text.", ""])


def zoo(*arguments: object) -> Result:
    return CliRunner().invoke(cli, list(map(str, arguments)))


def test_commands_take_the_directory(
    exported: dict[str, tuple[Checkpoint, Checkpoint]], tmp_path: Path
) -> None:
    checkpoint, export = exported["t5"]
    table = tmp_path / "table.tsv"
    table.write_text("text\tlabel\n" + "".join(f"{t}\t{t[:20]}\n" for t in TEXTS))
    outputs = []
    for path in (checkpoint.path, export.path):
        evaluated = zoo("eval", path, "--task", "seq2seq", "--eval", table, "--json")
        assert evaluated.exception is None, evaluated.output
        outputs.append(json.loads(evaluated.stdout)["metrics"])
    ours, theirs = outputs
    assert theirs.keys() == ours.keys()
    assert theirs["loss"] == pytest.approx(ours["loss"], rel=1e-5)
    values = [
        Model(c, open_session(c, b)).run("score", [(TEXTS[0], "A cat.")])[0]["log_prob"]
        for c, b in ((checkpoint, "cpu"), (export, "auto"))
    ]
    assert values[1] == pytest.approx(values[0], rel=1e-5)
    streamed = zoo("run", "seq2seq", export.path, TEXTS[0], "--stream")
    whole = json.loads(zoo("run", "seq2seq", export.path, TEXTS[0]).stdout)
    assert streamed.exception is None and whole["generated"] in streamed.stdout
    done = zoo(
        *("bench", export.path, "--iterations", 1, "--batch-size", 2, "--seq-len", 8),
        *("--no-startup", "--json"),
    )
    (measured,) = json.loads(done.stdout)["results"]
    assert (measured["backend"], json.loads(done.stdout)["new_tokens"]) == ("ctranslate2", 32)


@pytest.mark.long
def test_int8_reports_what_it_generates(tmp_path: Path) -> None:
    plan = QuantizationPlan((), max_drop=0.5)
    settings = ExportSettings(precision="int8", quantization=plan)
    report = export_model(TARGET, make(tmp_path, "t5"), tmp_path / "export", settings)
    assert report.agreement is not None and report.agreement.measure == "perplexity"
    assert report.generation is not None and report.generation.texts > 4


def test_other_tokens_are_not_published(
    tmp_path: Path, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = GeneratedSequences.from_model

    def changed(*arguments: Any) -> Any:
        found = exact(*arguments)
        for sequences in found.sequences.values():
            for sequence in sequences:
                sequence[0] += 1
        return found

    monkeypatch.setattr("zoo.exporting.gate.GeneratedSequences.from_model", changed)
    with pytest.raises(VerificationError, match="generates other tokens than torch"):
        export_model(TARGET, small("GPT2LMHeadModel"), tmp_path / "export", ExportSettings())
    assert not (tmp_path / "export").exists()


@pytest.mark.long
def test_the_encoder_of_t5(tmp_path: Path) -> None:
    report = export_model(TARGET, make(tmp_path, "encoder"), tmp_path / "export", ExportSettings())
    assert report.validated and report.max_rel is not None and report.max_rel < 1e-5


PROMPTS = ["The cat sat on", "A dog", "Once upon a time there was a house, and"]


@pytest.mark.long
def test_language_models_generate(small: Small, tmp_path: Path) -> None:
    checkpoint = small("GPT2LMHeadModel", n_positions=60)
    report = export_model(TARGET, checkpoint, tmp_path / "export", ExportSettings())
    assert report.generation is not None
    assert {*report.generation.equal.values()} == {report.generation.texts}
    export = load_checkpoint(tmp_path / "export")
    different = []
    for settings in (
        {},
        {"min_new_tokens": 7, "suppress_tokens": (300, 301)},
        {"max_length": 30, "min_length": 20},
        {"num_beams": 3, "early_stopping": "never", "num_return_sequences": 2},
    ):
        options: dict[str, Any] = {"max_new_tokens": 8, "batch_size": 2, **settings}
        if "max_length" in settings:
            del options["max_new_tokens"]
        ours, theirs = (
            Model(c, s).run("generate", PROMPTS, **options)
            for c, s in ((checkpoint, load_session(checkpoint)), (export, open_session(export)))
        )
        different += [] if ours == theirs else [(settings, ours, theirs)]
    assert different == []
    with pytest.raises(UsageError, match="n-grams of a prompt"):
        Model(export, open_session(export)).run("generate", PROMPTS, no_repeat_ngram_size=2)
