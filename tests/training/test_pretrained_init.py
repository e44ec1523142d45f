"""Runs with initial weights from a checkpoint, compared with the reference library."""

import json
import random
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from click.testing import CliRunner
from torch.nn import functional as F

from tests.checkpoints import VOCABULARY, Make, hub_checkpoint
from tests.training.runs import SMALL, assert_same, cut, records
from zoo.checkpoint import load_checkpoint
from zoo.cli.training.corpus import command as corpus_command
from zoo.conversion.cache import resolve_checkpoint
from zoo.errors import UsageError, VerificationError
from zoo.io.tensors.safetensors import SafetensorsReader
from zoo.objectives.base import Batch
from zoo.training.build import PreparedRun, prepare_run
from zoo.training.config.overrides import deep_merge
from zoo.training.config.schema import pretrain_config
from zoo.training.distributed.context import DistContext
from zoo.training.run import PretrainRun
from zoo.training.setup import PretrainSetup, pretrain_setup

__all__ = ["hub_checkpoint"]
HERE = DistContext(0, 1, torch.device("cpu"))
DRY = {"dropout": 0.0, "attention_dropout": 0.0}


@pytest.fixture
def text(tmp_path: Path) -> str:
    """Documents of sentences of words in the tiny vocabulary."""
    rng = random.Random(0)

    def sentence() -> str:
        return " ".join(rng.choices("abcdefghij", k=rng.randint(3, 9))).capitalize() + "."

    documents = ["\n".join(sentence() for _ in range(6)) for _ in range(60)]
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(documents) + "\n")
    return str(path)


def tree(source: Path | str, text: str, family: str = "bert", **changes: Any) -> dict[str, Any]:
    values = {"family": family, "init_from": {"model": str(source)}, "data": {"paths": [text]}}
    return deep_merge(
        SMALL,
        values,
        {"seq_len": 40, "global_batch_tokens": 160, "micro_batch_tokens": 80},
        changes,
    )


def started(path: Path, *arguments: Any, **changes: Any) -> Path:
    PretrainRun(tree(*arguments, **changes), HERE, path).start()
    return path


def run_of(*arguments: Any, path: Path = Path("nowhere"), **changes: Any) -> PreparedRun:
    setup: PretrainSetup = pretrain_setup(pretrain_config(tree(*arguments, **changes), {}))
    return prepare_run(setup, path, HERE)


def alone(batch: Batch) -> "list[dict[str, torch.Tensor]]":
    """Unpack a batch into single texts with their labels."""
    examples, tensors = [], batch.tensors
    length = tensors["input_ids"].shape[1]
    labels_at = dict(
        zip(tensors["label_positions"].tolist(), tensors["labels"].tolist(), strict=True)
    )
    for row, numbers in enumerate(tensors["document_ids"]):
        for number in range(1, int(numbers.max()) + 1):
            positions = torch.nonzero(numbers == number)[:, 0]
            labels = [labels_at.get(row * length + place, -100) for place in positions.tolist()]
            examples.append(
                {
                    "input_ids": tensors["input_ids"][row, positions][None],
                    "token_type_ids": tensors["token_type_ids"][row, positions][None],
                    "labels": torch.tensor(labels)[None],
                }
            )
    return examples


def reference_losses(source: Path, batches: Sequence[Batch]) -> dict[str, float]:
    """Return the reference library's mean losses over single texts."""
    import transformers

    model: Any = transformers.BertForPreTraining.from_pretrained(source)
    sums, counts = {"masked-lm": 0.0, "next-sentence": 0.0}, {"masked-lm": 0, "next-sentence": 0}
    with torch.no_grad():
        for batch in batches:
            pairs = iter(batch.tensors["pair_labels"])
            for example in alone(batch):
                labels = example.pop("labels")
                outputs, label = model(**example), next(pairs)[None]
                masked = outputs.prediction_logits.flatten(0, 1)
                sums["masked-lm"] += float(
                    F.cross_entropy(masked, labels.flatten(), reduction="sum")
                )
                sums["next-sentence"] += float(
                    F.cross_entropy(outputs.seq_relationship_logits, label, reduction="sum")
                )
                counts["masked-lm"] += int((labels != -100).sum())
                counts["next-sentence"] += 1
    return {term: sums[term] / counts[term] for term in sums}


def test_the_first_losses_are_the_model_s(hub_checkpoint: Make, text: str, tmp_path: Path) -> None:
    source = hub_checkpoint()
    run = started(tmp_path / "run", source, text, config=DRY, max_steps=1)
    batches = run_of(source, text, config=DRY).train_dataloader.make_batches(0)
    expected = reference_losses(source, batches)
    (record,) = records(run)
    assert record["losses"] == pytest.approx(expected, rel=1e-5)


def weights(path: Path) -> dict[str, Any]:
    with SafetensorsReader([path]) as reader:
        return {name: reader.read(name).copy() for name in reader.tensors}


def test_all_is_taken_exactly_and_written_down(
    hub_checkpoint: Make, text: str, tmp_path: Path
) -> None:
    source = hub_checkpoint(dtype="float16")
    run = started(tmp_path / "run", source, text, max_steps=1)
    checkpoint = resolve_checkpoint(str(source))
    stored, first = (
        weights(path)
        for path in (
            checkpoint.weight_files()[0],
            run / "checkpoints" / "step-00000000" / "weights.safetensors",
        )
    )
    assert first.keys() == stored.keys()
    for name, value in stored.items():
        assert first[name].dtype == "float32" and (first[name] == value).all(), name
    manifest = json.loads((run / "run.json").read_bytes())["init_from"]
    network = manifest["models"]["model"]
    assert network["reference"] == str(source) and network["head"] == "pretraining"
    assert network["files"]["model.safetensors"]["blake3"]
    assert network["source"]["files"]["model.safetensors"]["blake3"]
    assert "fresh" not in manifest and "left" not in network
    result = load_checkpoint(run / "model")
    assert result.config == msgspec.structs.replace(checkpoint.config, **DRY)  # the recipe's
    assert (result.path / "tokenizer.json").read_bytes() == (
        checkpoint.path / "tokenizer.json"
    ).read_bytes()
    assert result.manifest.training and result.manifest.training["init_from"]["models"]["model"]


def test_missing_weights_are_errors_unless_named_as_new(
    hub_checkpoint: Make, text: str, tmp_path: Path
) -> None:
    source = hub_checkpoint("BertForMaskedLM")
    needed = r"has no pooler, head\.next_sentence, which masked-lm\+next-sentence needs"
    with pytest.raises(UsageError, match=f"{needed}; use --objective masked-lm, or --set"):
        started(tmp_path / "run", source, text)
    assert started(tmp_path / "simpler", source, text, objective="masked-lm", max_steps=1)
    assert not (tmp_path / "run").exists()
    names = ["pooler", "head.next_sentence"]
    run = started(tmp_path / "run", source, text, init_from={"new_modules": names}, max_steps=1)
    manifest = json.loads((run / "run.json").read_bytes())["init_from"]
    assert {name.rpartition(".")[0] for name in manifest["new_parameters"]} == set(names)
    with pytest.raises(UsageError, match=r"init_from\.new_modules has 'head\.dense'"):
        started(tmp_path / "other", source, text, init_from={"new_modules": [*names, "head.dense"]})
    with pytest.raises(UsageError, match="has no head, which masked-lm needs"):
        run_of(hub_checkpoint("BertModel", "bare"), text, objective="masked-lm")


def test_missing_weights_are_found_before_a_corpus_is_built(
    hub_checkpoint: Make, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The only advice is one that works: masked-lm needs the head, too."""
    monkeypatch.setenv("ZOO_HOME", str(tmp_path / "home"))
    source = hub_checkpoint("BertModel", "bare")
    needed = r"has no head, which masked-lm\+next-sentence needs; --set init_from"
    with pytest.raises(UsageError, match=needed) as error:
        started(tmp_path / "run", source, text)
    assert "--objective" not in error.value.hint
    assert not (tmp_path / "home" / "corpora").exists()
    names = ["head"]
    assert started(tmp_path / "run", source, text, init_from={"new_modules": names}, max_steps=1)


def test_unused_weights_are_recorded(hub_checkpoint: Make, text: str, tmp_path: Path) -> None:
    source = hub_checkpoint()
    record = run_of(source, text, objective="masked-lm").pretrained
    assert record is not None and not record.new_parameters
    assert {name.split(".")[0] for name in record.models["model"].unused} == {"pooler", "head"}
    assert len(record.models["model"].unused) == 4


def test_equal_names_of_different_heads_are_not_confused(tmp_path: Path, text: str) -> None:
    """Both heads of DeBERTa have ``head.dense`` and ``head.norm`` of the same shapes."""
    import transformers

    small: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
    config = transformers.DebertaV2Config(
        vocab_size=100, intermediate_size=48, max_position_embeddings=40, **small
    )
    transformers.DebertaV2ForMaskedLM(config).save_pretrained(tmp_path / "source")
    settings: dict[str, Any] = {"objective": "replaced-token-detection"}
    settings |= {"data": {"tokenizer": "train"}, "objective_args": {"generator_width_ratio": 1.0}}
    with pytest.raises(UsageError, match=r"has no generator, discriminator\.head, which"):
        run_of(tmp_path / "source", text, "deberta", vocab_size=60, **settings)


def test_a_model_of_another_family_is_refused(hub_checkpoint: Make, text: str) -> None:
    with pytest.raises(UsageError, match="is of the family bert, not gpt; `zoo pretrain bert"):
        run_of(hub_checkpoint(), text, "gpt")


@pytest.fixture
def reordered(hub_checkpoint: Make) -> Path:
    """A checkpoint whose tokens have other ids, but for the special ones."""
    other = hub_checkpoint(name="an other")
    words = (other / "vocab.txt").read_text().split()
    (other / "vocab.txt").write_text("\n".join([*words[:5], *words[:4:-1]]) + "\n")
    return other


OTHER_TOKENS = (
    r"12 of 17 tokens differ \(id 5 is 'a' in the model and '##b' in the corpus, "
    r"6 is 'b' and '##a', 7 is "
)


def test_texts_are_not_read_with_another_tokenizer(
    hub_checkpoint: Make, text: str, reordered: Path
) -> None:
    """Rows of the embedding table would be given to other strings."""
    source = hub_checkpoint()
    with pytest.raises(UsageError, match=OTHER_TOKENS) as caught:
        run_of(source, text, data={"tokenizer": str(reordered)})
    assert caught.value.hint == "leave out --tokenizer to read the texts with the model's"
    run_of(source, text, data={"tokenizer": str(source)})


def test_a_corpus_with_other_tokens_is_refused(
    hub_checkpoint: Make, text: str, reordered: Path, tmp_path: Path
) -> None:
    """The command of the message builds a corpus that is accepted."""
    source, moved = hub_checkpoint(), Path(text).rename(tmp_path / "my text.txt")

    def build_corpus(command: list[str]) -> None:
        done = CliRunner().invoke(corpus_command, command[2:], catch_exceptions=False)
        assert done.exit_code == 0, done.output

    words = ["zoo", "corpus", "build", str(moved), "-o", str(tmp_path / "a corpus")]
    options = ["--sentence-splitter", "line", "--eval-fraction", "0.2", "--seed", "3"]
    build_corpus([*words, "--tokenizer", str(reordered), *options])
    corpus = str(tmp_path / "a corpus")
    for explicit in ({}, {"tokenizer": str(reordered)}):
        with pytest.raises(UsageError, match=OTHER_TOKENS) as caught:
            run_of(source, corpus, data={"eval_paths": [], **explicit})
    command = shlex.split(caught.value.hint.split("`")[1])
    assert sorted(command[7:]) == sorted([str(source), *options])
    build_corpus(command)
    run_of(source, command[5], data={"eval_paths": []})


def test_a_shorter_vocabulary_is_one_of_the_same_tokens(
    hub_checkpoint: Make, text: str, tmp_path: Path
) -> None:
    source, shorter = hub_checkpoint(), hub_checkpoint(name="shorter")
    words = (shorter / "vocab.txt").read_text().split()
    (shorter / "vocab.txt").write_text("\n".join(words[:-1]) + "\n")
    setup = run_of(source, text, data={"tokenizer": str(shorter)})
    assert setup.pretrained is not None
    corpus = str(pretrain_setup(pretrain_config(tree(shorter, text), {})).corpus.path)
    with pytest.raises(UsageError, match=r"1 of 17 tokens differ .* in the model and unused in"):
        run_of(source, corpus, data={"eval_paths": []})


def test_a_checkpoint_that_was_changed_is_refused(
    hub_checkpoint: Make, text: str, tmp_path: Path
) -> None:
    copied = tmp_path / "copied"
    shutil.copytree(resolve_checkpoint(str(hub_checkpoint())).path, copied)
    content = bytearray((copied / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (copied / "model.safetensors").write_bytes(content)
    with pytest.raises(VerificationError, match="was changed"):
        run_of(copied, text)


def test_the_pretrained_model_names_the_family(hub_checkpoint: Make, text: str) -> None:
    values = tree(hub_checkpoint(), text)
    expected = pretrain_config(dict(values), {})
    del values["family"]
    assert pretrain_config(values, {}) == expected
    assert expected.family == "bert"


@pytest.mark.long
@pytest.mark.parametrize(
    "left", [0, *(pytest.param(left, marks=pytest.mark.long) for left in (3, 6))]
)
def test_resume_does_not_need_the_pretrained_model(
    hub_checkpoint: Make, text: str, tmp_path: Path, left: int
) -> None:
    """Neither source nor store exists at resumption, even before the first checkpoint."""
    source = hub_checkpoint()
    settings = {"max_steps": 9, "ema_decay": 0.9, "save_total_limit": 9}
    unbroken = started(tmp_path / "unbroken", source, text, **settings)
    broken = started(tmp_path / "broken", source, text, **settings)
    cut(broken, left)
    shutil.rmtree(source)
    shutil.rmtree(tmp_path / "zoo-home")
    PretrainRun({}, HERE).resume(broken)
    assert_same(unbroken, broken)


def electra(folder: Path, kind: str, width: int, seed: int) -> Any:
    import transformers

    torch.manual_seed(seed)
    config = transformers.ElectraConfig(
        vocab_size=len(VOCABULARY),
        embedding_size=16,
        hidden_size=width,
        num_hidden_layers=2,
        num_attention_heads=1,
        intermediate_size=4 * width,
        max_position_embeddings=40,
    )
    return getattr(transformers, kind)(config)


def electras(folder: Path) -> tuple[Path, Path]:
    """Write a discriminator and a generator that share their embeddings."""
    model, generator = (
        electra(folder, *what)
        for what in (("ElectraForPreTraining", 32, 0), ("ElectraForMaskedLM", 16, 1))
    )
    generator.electra.embeddings.load_state_dict(model.electra.embeddings.state_dict())
    for name, network in (("model", model), ("generator", generator)):
        network.save_pretrained(folder / name)
        (folder / name / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    return folder / "model", folder / "generator"


PAIR: dict[str, Any] = {"objective_args": {"generator_width_ratio": 0.5}, "config": DRY}


@pytest.mark.long
def test_a_run_without_checkpoints_does_not_begin_anew(
    hub_checkpoint: Make, text: str, tmp_path: Path
) -> None:
    run = started(tmp_path / "run", hub_checkpoint(), text)
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(VerificationError, match="has no checkpoint left"):
        PretrainRun({}, HERE).resume(run)


@pytest.mark.long
def test_two_networks_start_with_a_checkpoint_each(text: str, tmp_path: Path) -> None:
    import transformers

    model, generator = electras(tmp_path)
    start = {"generator": str(generator)}
    run = run_of(model, text, "electra", init_from=start, **PAIR)
    assert run.pretrained is not None and not run.pretrained.new_parameters
    batch = run.train_dataloader.make_batches(0)[0]
    loss_module: Any = run.loss_module.eval()
    losses = loss_module(batch.tensors)
    theirs: Any = transformers.ElectraForMaskedLM.from_pretrained(generator)
    expected = 0.0
    with torch.no_grad():
        for example in alone(batch):
            labels = example.pop("labels").flatten()
            logits = theirs(**example).logits.flatten(0, 1)
            expected += float(F.cross_entropy(logits, labels, reduction="sum"))
    assert losses.sums["masked-lm"].item() == pytest.approx(expected, rel=1e-5)
    judge: Any = transformers.ElectraForPreTraining.from_pretrained(model)
    ids = torch.arange(5, 17)[None]
    with torch.no_grad():
        ours = loss_module.model.discriminator(ids)["logits"]
        assert torch.allclose(ours, judge(ids).logits, atol=1e-5)


def test_stages_that_replace_pretrained_weights_are_refused(text: str, tmp_path: Path) -> None:
    model, generator = electras(tmp_path)
    arguments: dict[str, Any] = {
        "objective_args": {"generator_width_ratio": 1.0, "generator_fraction": 0.5}
    }
    with pytest.raises(UsageError, match=r"generator_fraction is 0\.5, which would replace"):
        run_of(model, text, "electra", init_from={"generator": str(generator)}, **arguments)


def test_a_new_generator_must_be_named(text: str, tmp_path: Path) -> None:
    model, generator = electras(tmp_path)
    with pytest.raises(UsageError, match="has no generator, which replaced-token-detection needs"):
        run_of(model, text, "electra", **PAIR)
    run = run_of(model, text, "electra", init_from={"new_modules": ["generator"]}, **PAIR)
    assert run.pretrained is not None
    assert {name.split(".")[0] for name in run.pretrained.new_parameters} == {"generator"}
    networks: Any = run.loss_module.model
    shared = networks.generator.embeddings.tokens.weight
    assert shared is networks.discriminator.embeddings.tokens.weight
    wide = {"generator": str(generator)}
    with pytest.raises(
        UsageError, match=r"hidden_size is 16, not 8; objective_args\.generator_width_ratio"
    ):
        run_of(
            model, text, "electra", init_from=wide, objective_args={"generator_width_ratio": 0.25}
        )
    other = electra(tmp_path, "ElectraForMaskedLM", 16, 2)
    other.save_pretrained(generator)
    with pytest.raises(UsageError, match="is shared with the other network, whose values differ"):
        run_of(model, text, "electra", init_from={"generator": str(generator)}, **PAIR)
    apart = deep_merge(PAIR, {"objective_args": {"embedding_sharing": "none"}})
    run_of(model, text, "electra", init_from={"generator": str(generator)}, **apart)


@pytest.mark.long
def test_tables_that_are_sums_become_the_model_s(text: str, tmp_path: Path) -> None:
    """Bit for bit with a new generator, and up to one rounding with an existing one."""
    settings = {
        **SMALL,
        "seq_len": 40,
        "global_batch_tokens": 160,
        "max_steps": 2,
        "vocab_size": 100,
    }
    first = tmp_path / "first"
    PretrainRun({"family": "deberta", "data": {"paths": [text]}, **settings}, HERE, first).start()
    model = weights(first / "model" / "model.safetensors")
    for start in ({"new_modules": ["generator"]}, {"generator": str(first / "generator")}):
        run = run_of(first / "model", text, "deberta", init_from=start)
        networks: Any = run.loss_module.model
        plain = {k: v.numpy() for k, v in networks.plain_discriminator().state_dict().items()}
        assert plain.keys() == model.keys()
        for name, value in model.items():
            far = abs(plain[name] - value).max()
            assert far <= (0 if "fresh" in start else 1e-8), (name, start)
        deltas = {n: d for n, d in networks.named_parameters() if n.endswith(".delta")}
        assert deltas
        for name, delta in deltas.items():
            assert bool(delta.any()) == ("generator" in start), (name, start)


@pytest.mark.by_default("data", "config")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": "base"}, "size is base, and .* is most like tiny"),
        ({"config": {"num_layers": 3}}, r"config\.num_layers would be 3, and .* has 2"),
        ({"config": {"vocab_size": 99}}, r"config\.vocab_size would be 99"),
        (
            {"data": {**SMALL["data"], "tokenizer": "train"}},
            r"of 17 tokens differ",
        ),
        ({"init_from": {"generator": "bert"}}, "has no generator|no model is called"),
        ({"init_from": {"modl": "x"}}, r"no setting init_from\.modl; did you mean model"),
        ({"seq_len": 41}, "seq_len is 41, and the model has 40 positions"),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_settings_that_contradict_the_model_are_errors(
    hub_checkpoint: Make, text: str, changes: dict[str, Any], message: str
) -> None:
    if "generator" in changes.get("init_from", {}):
        changes = {"init_from": {"generator": str(hub_checkpoint(name="other"))}}
    with pytest.raises(UsageError, match=message):
        run_of(hub_checkpoint(), text, **changes)


def test_embeddings_only_are_trained(hub_checkpoint: Make, text: str, tmp_path: Path) -> None:
    source = resolve_checkpoint(str(hub_checkpoint("BertForMaskedLM")))
    changes = {"objective": "masked-lm", "trainable": "embeddings", "max_steps": 2}
    run = started(tmp_path / "run", source.path, text, **changes)
    with source.open_weights() as before, load_checkpoint(run / "model").open_weights() as after:
        changed = [
            name
            for name in before.tensors
            if before.read(name).tobytes() != after.read(name).tobytes()
        ]
    assert sorted(changed) == ["embeddings.tokens.weight", "head.bias"]
