"""Adapters of peft: it opens ours, and we open its, with the same outputs, for each family."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tests.adapters.making import (
    FAMILIES,
    IA3_TARGETS,
    LORA_TARGETS,
    base_of,
    logits_of_inputs,
    randomize,
    zoo,
)
from tests.checkpoints import Make
from tests.finetuning.conftest import Pretrained
from tests.finetuning.making import (
    finetune,
    labelled,
    reference_losses,
    settings,
    training_losses,
)
from zoo.conversion.cache import resolve_checkpoint
from zoo.errors import SourceError, UsageError, VerificationError
from zoo.inference.load_model import load_model
from zoo.objectives.base import Batch
from zoo.training.state.progress import list_checkpoints

METHODS = ("lora", "dora", "ia3")
MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]])


def inputs(architecture: str) -> dict[str, Tensor]:
    """Return two rows that end in token 3, and the padding of the second."""
    pad = FAMILIES[architecture].get("pad_token_id", 0)
    ids = torch.tensor([[2, 5, 6, 7, 3], [2, 9, 8, 3, pad]])
    return {"input_ids": ids, "attention_mask": MASK}


def prefix(architecture: str) -> str:
    return architecture.removesuffix("ForSequenceClassification")


def config_of(architecture: str, method: str) -> Any:
    name = prefix(architecture)
    if method == "ia3":
        targets, inputs = IA3_TARGETS.get(name, (None, None))
        return peft.IA3Config(
            task_type="SEQ_CLS", target_modules=targets, feedforward_modules=inputs
        )
    return peft.LoraConfig(
        task_type="SEQ_CLS",
        r=4,
        lora_alpha=6,
        use_dora=method == "dora",
        target_modules=LORA_TARGETS.get(name),
        modules_to_save=["classification_head"] if name in ("T5", "Bart") else None,
    )


def logits_of(model: nn.Module, architecture: str) -> Tensor:
    model.eval()
    with torch.no_grad():
        return model(**inputs(architecture))["logits"]  # type: ignore[no-any-return]


def ours(path: Path, architecture: str) -> Tensor:
    checkpoint = resolve_checkpoint(str(path))
    config: Any = checkpoint.config
    given = inputs(architecture)
    if "decoder_input_ids" in checkpoint.head.inputs:  # the source, shifted right
        start = torch.full((2, 1), config.decoder_start_token_id)
        given["decoder_input_ids"] = torch.cat([start, given["input_ids"][:, :-1]], 1)
    return logits_of_inputs(load_model(checkpoint), given)


# test_heads.py has adapters of the same modules, or they are called as those of BERT or GPT-2.
# test_resized.py and test_heads.py have those of encoder-decoders.
OTHER_FAMILIES = ("Albert", "Bart", "DebertaV2", "DistilBert", "Electra", "OpenAIGPT", "Roberta")


@pytest.mark.by_default("BertForSequenceClassification")
@pytest.mark.parametrize(
    "architecture",
    [
        pytest.param(
            name,
            marks=pytest.mark.long
            if name.removesuffix("ForSequenceClassification") in OTHER_FAMILIES
            else (),
        )
        for name in FAMILIES
    ],
)
def test_each_library_opens_the_others(
    architecture: str, hub_checkpoint: Make, tmp_path: Path
) -> None:
    base, source = base_of(hub_checkpoint, architecture, tmp_path)
    for method in METHODS:
        assert_opened_by_both(architecture, method, base, source, tmp_path / method)


def assert_opened_by_both(
    architecture: str, method: str, base: Path, source: Path, folder: Path
) -> None:
    """An adapter of peft computes the same here, in peft again, and merged in transformers."""
    kind = getattr(transformers, architecture)
    theirs = peft.get_peft_model(kind.from_pretrained(source), config_of(architecture, method))
    randomize(theirs)
    theirs.save_pretrained(str(folder / "theirs"))
    expected = logits_of(theirs, architecture)

    def assert_same(found: Tensor) -> None:
        torch.testing.assert_close(
            found, expected, atol=1e-5, rtol=1e-5, msg=lambda text: f"{method}: {text}"
        )

    zoo("convert", folder / "theirs", "--base", base, "-o", folder / "ours")
    assert_same(ours(folder / "ours", architecture))
    zoo("convert", folder / "ours", "--to", "hub", "-o", folder / "back")
    before, after = (
        load_file(folder / name / "adapter_model.safetensors") for name in ("theirs", "back")
    )
    assert before.keys() == after.keys()
    assert [name for name in before if not torch.equal(before[name], after[name])] == []
    opened = peft.PeftModel.from_pretrained(kind.from_pretrained(source), folder / "back")
    assert_same(logits_of(opened, architecture))
    zoo("adapter", "merge", folder / "ours", "-o", folder / "merged")
    zoo("convert", folder / "merged", "--to", "hub", "-o", folder / "hub")
    assert_same(logits_of(kind.from_pretrained(folder / "hub"), architecture))


def lora_of(make: Make, tmp_path: Path, **changes: Any) -> tuple[Path, Path]:
    base, source = base_of(make, "BertForSequenceClassification", tmp_path)
    model = transformers.BertForSequenceClassification.from_pretrained(source)
    config = peft.LoraConfig(task_type="SEQ_CLS", **changes)
    peft.get_peft_model(model, config).save_pretrained(str(tmp_path / "theirs"))
    return base, tmp_path / "theirs"


def test_labels_and_tokens_of_the_head(hub_checkpoint: Make, tmp_path: Path) -> None:
    """The outputs of a head of other labels are counted, and named with --labels."""
    base, source = base_of(hub_checkpoint, "BertForMaskedLM", tmp_path)
    model = transformers.BertForTokenClassification.from_pretrained(source, num_labels=5)
    peft.get_peft_model(model, peft.LoraConfig(task_type="TOKEN_CLS")).save_pretrained(
        str(tmp_path / "theirs")
    )
    zoo("convert", tmp_path / "theirs", "--base", base, "-o", tmp_path / "counted")
    config = resolve_checkpoint(str(tmp_path / "counted")).config
    assert config.labels == tuple(f"LABEL_{k}" for k in range(5))
    options = ("--labels", "a,b,c,d,e", "-o", tmp_path / "named")
    zoo("convert", tmp_path / "theirs", "--base", base, *options)
    assert resolve_checkpoint(str(tmp_path / "named")).config.labels == tuple("abcde")
    zoo("convert", tmp_path / "named", "--to", "hub", "-o", tmp_path / "back")
    zoo("convert", tmp_path / "back", "--base", base, "-o", tmp_path / "again")
    assert resolve_checkpoint(str(tmp_path / "again")).config.labels == tuple("abcde")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("base_model.model.bert.encoder.layer.7.attention.self.query.lora_A.weight", "layer.7"),
        ("base_model.model.surprise.weight", "unknown tensors: surprise.weight"),
        ("surprise", "unknown tensors: surprise"),
    ],
)
def test_an_unknown_tensor_is_refused(
    name: str, message: str, hub_checkpoint: Make, tmp_path: Path
) -> None:
    base, theirs = lora_of(hub_checkpoint, tmp_path)
    file = theirs / "adapter_model.safetensors"
    save_file({**load_file(file), name: torch.zeros(8, 32)}, file)
    with pytest.raises(VerificationError, match=message):
        zoo("convert", theirs, "--base", base, "-o", tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


def test_a_missing_tensor_is_refused(hub_checkpoint: Make, tmp_path: Path) -> None:
    base, theirs = lora_of(hub_checkpoint, tmp_path)
    file = theirs / "adapter_model.safetensors"
    tensors = load_file(file)
    del tensors[next(name for name in tensors if name.endswith("lora_B.weight"))]
    save_file(tensors, file)
    with pytest.raises(VerificationError, match="the tensors do not match its settings"):
        zoo("convert", theirs, "--base", base, "-o", tmp_path / "ours")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bias": "all"}, "bias is 'all'"),
        ({"rank_pattern": {r"layer\.[01].*query": 2}}, "zoo reads names of modules there"),
        ({"rank_pattern": {"query": 2}}, "its tensors have the shapes"),
        ({"alpha_pattern": {"query": "2"}}, "Expected `float`, got `str`"),
        ({"trainable_token_indices": [1]}, "trainable_token_indices is"),
        ({"peft_type": "VERA"}, "of the type VERA, which zoo does not read"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights is 'pissa'"),
    ],
)
def test_settings_that_are_not_read_are_refused(
    changes: dict[str, Any], message: str, hub_checkpoint: Make, tmp_path: Path
) -> None:
    base, theirs = lora_of(hub_checkpoint, tmp_path)
    file = theirs / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
    with pytest.raises((UsageError, VerificationError), match=message):
        zoo("convert", theirs, "--base", base, "-o", tmp_path / "ours")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (peft.LoraConfig(target_modules=["classifier"]), "only changes heads and poolers"),
        (peft.AdaLoraConfig(total_step=10), "of the type ADALORA"),
        (
            peft.LoraConfig(target_modules=["query", "word_embeddings"], use_dora=True),
            "is a low-rank update of an embedding",
        ),
        (
            peft.LoraConfig(
                task_type="SEQ_CLS", target_modules=["query"], modules_to_save=["embeddings"]
            ),
            "modules_to_save that holds another one",
        ),
        (
            peft.IA3Config(target_modules=["query"], feedforward_modules=["query"]),
            "query is one product with 2 more here",
        ),
    ],
)
def test_modules_that_no_adapter_changes_here(
    config: Any, message: str, hub_checkpoint: Make, tmp_path: Path
) -> None:
    base, source = base_of(hub_checkpoint, "BertForSequenceClassification", tmp_path)
    model = transformers.BertForSequenceClassification.from_pretrained(source)
    peft.get_peft_model(model, config).save_pretrained(str(tmp_path / "theirs"))
    with pytest.raises((UsageError, VerificationError), match=message):
        zoo("convert", tmp_path / "theirs", "--base", base, "-o", tmp_path / "ours")


@pytest.mark.by_default("DebertaV2ForSequenceClassification")
@pytest.mark.parametrize(
    ("architecture", "changes"),
    [  # some targets are in the head, which is trained as a whole; names have no prefix
        ("RobertaForSequenceClassification", {"target_modules": "all-linear"}),
        # and of poolers
        ("BertForSequenceClassification", {"target_modules": "all-linear", "r": 2}),
        ("BertModel", {"target_modules": "all-linear", "use_dora": True}),
        ("DebertaV2ForSequenceClassification", {"target_modules": ["dense"], "lora_alpha": 3}),
        ("DistilBertModel", {"target_modules": ["ffn.lin2"], "layers_to_transform": 0}),
        (
            "DebertaV2ForSequenceClassification",
            {"target_modules": ["query_proj"], "modules_to_save": ["deberta.embeddings"]},
        ),
    ],
)
def test_targets_are_those_of_peft(
    architecture: str, changes: dict[str, Any], hub_checkpoint: Make, tmp_path: Path
) -> None:
    sizes = FAMILIES["DistilBertForSequenceClassification"] if "Distil" in architecture else {}
    base, source = base_of(hub_checkpoint, architecture, tmp_path, **sizes)
    kind = getattr(transformers, architecture)
    task = "FEATURE_EXTRACTION" if architecture.endswith("Model") else "SEQ_CLS"
    theirs = peft.get_peft_model(
        kind.from_pretrained(source), peft.LoraConfig(task_type=task, **changes)
    )
    randomize(theirs)
    theirs.save_pretrained(str(tmp_path / "theirs"))
    zoo("convert", tmp_path / "theirs", "--base", base, "-o", tmp_path / "ours")
    zoo("convert", tmp_path / "ours", "--to", "hub", "-o", tmp_path / "back")
    opened = peft.PeftModel.from_pretrained(kind.from_pretrained(source), tmp_path / "back")
    model = load_model(resolve_checkpoint(str(tmp_path / "ours")))
    ids = {"input_ids": torch.tensor([[2, 5, 6, 7, 3]])}
    with torch.no_grad():
        expected, *found = (m.eval()(**ids) for m in (theirs, opened, model))
    for outputs in found:
        for name in expected.keys() & outputs.keys():
            torch.testing.assert_close(outputs[name], expected[name], atol=1e-5, rtol=1e-5)
    names = {"last_hidden_state", "pooler_output"} if architecture == "BertModel" else set()
    assert names <= expected.keys() & outputs.keys()


@pytest.mark.by_default("more2")
@pytest.mark.parametrize("more", [{}, {"use_rslora": True}, {"use_dora": True}])
def test_patterns_of_rank_and_alpha(
    more: dict[str, Any], hub_checkpoint: Make, tmp_path: Path
) -> None:
    """Updates of several ranks and factors are updates of one, here and in peft."""
    architecture = "BertForSequenceClassification"
    base, source = base_of(hub_checkpoint, architecture, tmp_path)
    model = transformers.BertForSequenceClassification.from_pretrained(source)
    config = peft.LoraConfig(
        task_type="SEQ_CLS",
        r=4,
        lora_alpha=6,
        target_modules=["query", "value", "output.dense"],
        rank_pattern={"layer.1.attention.self.query": 2, "output.dense": 5},
        alpha_pattern={"value": 3},
        **more,
    )
    theirs = peft.get_peft_model(model, config)
    randomize(theirs)
    theirs.save_pretrained(str(tmp_path / "theirs"))
    zoo("convert", tmp_path / "theirs", "--base", base, "-o", tmp_path / "ours")
    expected = logits_of(theirs, architecture)
    torch.testing.assert_close(
        ours(tmp_path / "ours", architecture), expected, atol=1e-5, rtol=1e-5
    )
    zoo("convert", tmp_path / "ours", "--to", "hub", "-o", tmp_path / "back")
    model = transformers.BertForSequenceClassification.from_pretrained(source)
    opened = peft.PeftModel.from_pretrained(model, tmp_path / "back")
    torch.testing.assert_close(logits_of(opened, architecture), expected, atol=1e-5, rtol=1e-5)


def test_options_of_whole_models_are_refused(hub_checkpoint: Make, tmp_path: Path) -> None:
    base, theirs = lora_of(hub_checkpoint, tmp_path)
    options = ("--base", base, "--dtype", "float16", "-o", tmp_path / "ours")
    with pytest.raises(UsageError, match="--dtype is for whole models"):
        zoo("convert", theirs, *options)
    with pytest.raises(UsageError, match="is not an adapter"):
        zoo("convert", base, "--base", base, "-o", tmp_path / "ours")
    with pytest.raises(UsageError, match="give an output directory"):
        zoo("convert", theirs, "--base", base)


def test_an_adapter_in_a_subfolder_is_found(hub_checkpoint: Make, tmp_path: Path) -> None:
    """As in repositories with a folder for each language or step. The hint's command works."""
    base, theirs = lora_of(hub_checkpoint, tmp_path)
    repository = tmp_path / "repository"
    folder = repository / "de" / "last"
    folder.parent.mkdir(parents=True)
    theirs.rename(folder)
    for arguments in (
        ("convert", repository, "-o", tmp_path / "ours"),
        ("convert", repository, "--base", base, "-o", tmp_path / "ours"),
        ("run", "classify", repository, "a b"),
        ("run", "classify", base, "a b", "--adapter", repository),
        ("adapter", "info", repository),
    ):
        with pytest.raises((UsageError, SourceError)) as caught:
            zoo(*arguments)
        hint = f"its folder de/last is an adapter: `zoo convert {folder} --base REF -o DIR`"
        assert hint in str(caught.value)
    zoo("convert", folder, "--base", base, "-o", repository / "ours")
    with pytest.raises(UsageError, match=r"its folders de/last, ours are adapters: `zoo convert"):
        zoo("adapter", "info", repository)
    with pytest.raises(UsageError, match="give the directory of an adapter"):
        zoo("adapter", "info", base.parent / "source")


PARTS = {"0": "query", "1": "key", "2": "value"}  # of the fused matrix
# settings here and in peft
TRAINED: dict[str, tuple[dict[str, Any], Any]] = {
    "lora": ({"rank": 4, "alpha": 6}, partial(peft.LoraConfig, r=4, lora_alpha=6)),
    "dora": (
        {"rank": 4, "alpha": 6},
        partial(peft.LoraConfig, r=4, lora_alpha=6, use_dora=True),
    ),
    "ia3": ({}, peft.IA3Config),
    "prompt": ({"num_virtual_tokens": 3}, partial(peft.PromptTuningConfig, num_virtual_tokens=3)),
    "prefix": ({"num_virtual_tokens": 3}, partial(peft.PrefixTuningConfig, num_virtual_tokens=3)),
}


@pytest.mark.parametrize(
    "method",
    [pytest.param(name, marks=pytest.mark.long if name != "lora" else []) for name in TRAINED],
)
def test_fifty_steps_equal_those_of_peft(
    method: str, pretrained: Pretrained, tmp_path: Path
) -> None:
    """Without dropout, in a plain loop over the batches of the run."""
    names = {"id2label": {0: "no", 1: "yes"}, "label2id": {"no": 0, "yes": 1}}
    base, source = pretrained("BertForSequenceClassification", **names)
    steps = {"max_steps": 50, "eval_steps": 50, "save_steps": 50, "save_total_limit": 9}
    settings_of, config = TRAINED[method]
    adapter = {"method": method, **settings_of}
    tree = settings(base, labelled(tmp_path / "t.tsv"), adapter=adapter, **steps)
    run = finetune(tmp_path / "run", tree | {"optimizer": {"learning_rate": 0.01}})
    model: Any = transformers.BertForSequenceClassification.from_pretrained(source)
    model = peft.get_peft_model(model, config(task_type="SEQ_CLS"))
    first = load_file(list_checkpoints(run)[0] / "weights.safetensors")
    set_initial(model, first)

    def batch_loss(batch: Batch) -> tuple[Tensor, int]:
        return model(**batch.tensors).loss * batch.rows, batch.rows

    expected = reference_losses(run, model, batch_loss)
    assert training_losses(run) == pytest.approx(expected, abs=1e-4)
    last = load_file(run / "model" / "adapter.safetensors")
    own = [name for name in last if "adapter." in name]
    moved = max(float((last[name] - first[name]).abs().max()) for name in own)
    assert moved > 0.01, "the adapter was trained"


def set_initial(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Set what peft trains to the values that a run began with."""
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    with torch.no_grad():
        for name, tensor in tensors.items():
            (place,) = [place for place in trained if place_in_peft(name) in place]
            trained.pop(place).copy_(tensor)
    assert not trained, "both train the same"


def place_in_peft(name: str) -> str:
    """Return what the name of a tensor in peft contains."""
    if name.startswith("head."):
        return f"classifier.modules_to_save.default.{name[5:]}"
    if "adapter" in name and not name.startswith("layers."):
        return "prompt_encoder.default.embedding.weight"
    _, layer, part, matrix, *_, kind, number = name.split(".")
    inside = f"self.{PARTS[number]}" if matrix == "qkv" else "output.dense"
    module = f"attention.{inside}" if part == "attention" else inside
    return f"layer.{layer}.{module}.{kind}.default"
