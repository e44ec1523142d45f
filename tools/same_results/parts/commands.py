"""The command line: options and help of every command, and answers to wrong commands."""

import json
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.same_results.context import Context, Results
from tools.same_results.data import write_data
from tools.same_results.records import digest, digest_of, sorted_keys
from tools.wrong_commands import MISTAKES, prepare

# What a parameter declares that decides what the command line accepts. Its help is elsewhere.
DECLARED = (
    "opts",
    "secondary_opts",
    "required",
    "nargs",
    "multiple",
    "default",
    "is_flag",
    "flag_value",
    "count",
    "hidden",
)
OF_TYPE = ("name", "choices", "min", "max", "min_open", "max_open")
FEW = "--max-steps 1 --device cpu -o out"
TUNE = f"finetune bert --size tiny --tokenizer train {FEW} --train data/samples.jsonl"
EMBED = f"{TUNE} --task sentence-embedding --pair other"
DISTILL = f"distill --student distilbert {FEW} --no-score --train data/texts"
# columns of embedding losses, of which each loss refuses some
COLUMNS = (
    "",
    "--label score",
    "--label relation",
    "--negative negative",
    "--negative negative --negative second_negative",
    "--negative negative --label margin",
    "--label score --set data.labels=[a,b]",
    "--label score --set data.eval_score=score",
)
# Wrong names, settings and combinations, of each registry.
WRONG = (
    f"{TUNE} --task text-classification --adapter nothing",
    f"{TUNE} --task text-classification --adapter lora --set adapter.r=4",
    f"{TUNE} --task text-classification --adapter lora --set adapter.rank=0",
    f"{TUNE} --task text-classification --set task_args.nothing=1",
    f"{TUNE} --task text-classification --label-words a,b",
    f"{TUNE} --task text-classification --set optimizer.name=nothing",
    f"{TUNE} --task text-classification --preset nothing",
    f"{TUNE} --task text-classification --label nothing",
    f"{TUNE} --task text-classification --text label --label label",
    f"{TUNE} --task ordinal-regression",
    f"{TUNE} --task regression",
    f"{TUNE} --task seq2seq --label target",
    f"{TUNE} --task causal-lm --label target",
    f"{TUNE} --task setfit --pair other",
    f"{TUNE} --task pet",
    f"{TUNE} --task pet --template '{{text}} {{label}}' --label-words yes=a,no=i",
    f"{TUNE} --task prompt --template '{{text}}'",
    f"{TUNE} --task prompt --template '{{text}} {{label}}' --label-words yes=notoneword,no=i",
    f"{TUNE} --task reranker",
    f"{TUNE} --task reranker --pair other --set task_args.loss=nothing",
    f"{TUNE} --task reranker --pair other --set task_args.loss=margin-mse",
    f"{TUNE} --task sentences",
    f"{TUNE} --task retrieval",
    f"{TUNE} --task question-answering",
    f"{TUNE} --task multiple-choice",
    f"{TUNE} --task token-classification",
    f"{EMBED} --set task_args.loss=nothing",
    f"{EMBED} --set task_args.scale=0",
    f"{EMBED} --set task_args.matryoshka=[4000]",
    f"{EMBED} --set task_args.matryoshka=[]",
    f"{EMBED} --set task_args.matryoshka_weights=[1]",
    f"{EMBED} --set task_args.score_range=[2,1]",
    f"{EMBED} --set task_args.mini_batch_size=0",
    f"{EMBED} --set task_args.default_prompt_name=nothing",
    f"{EMBED} --set 'task_args.modules=[{{type: Normalize}}]' --set task_args.pooling=mean",
    f"{TUNE} --task sparse-embedding --pair other --set task_args.matryoshka=[8]",
    f"{TUNE} --task late-interaction --pair other --set task_args.dimension=0",
    f"pretrain bert --objective nothing {FEW}",
    f"pretrain bert --objective span-corruption {FEW}",
    f"pretrain bert --adapter nothing {FEW}",
    f"pretrain bert --report-to nothing {FEW}",
    f"pretrain bert --set lr_scheduler.name=nothing {FEW}",
    "examples bert --objective nothing",
    "distill --recipe nothing --print-recipe",
    "distill --recipe wrong-loss.yaml --print-recipe",
    "distill --recipe wrong-field.yaml --print-recipe",
    "distill --recipe wrong-setting.yaml --print-recipe",
    f"{DISTILL} --teacher model --recipe wrong-loss.yaml",
    f"{DISTILL} --teacher model --recipe other-setting.yaml",
    f"{DISTILL} --teacher model --recipe nothing",
    f"{DISTILL} --teacher model --recipe tinybert-task",
    f"{DISTILL} --teacher model --recipe embeddings",
    f"{DISTILL} --teacher model --recipe seq2seq",
    f"{DISTILL} --teacher model --recipe logits --set distillation.terms.kl.kind=nothing",
    f"{DISTILL} --teacher model --recipe logits --set distillation.terms.kl.kind=relations",
    f"{DISTILL} --teacher model --recipe logits --set distillation.terms.kl.alpha=1",
    f"{DISTILL} --teacher model --recipe logits --set distillation.terms.kl.temperature=0",
    f"{DISTILL} --teacher model --recipe logits --set distillation.terms.kl=null",
    f"{DISTILL} --teacher model --recipe minilm --set distillation.terms.values.layers=[[0,9]]",
    "export model --to nothing -o out",
    "export model --to gguf --opset 18 -o out",
    "export model --to openvino --pooled -o out",
    "export model --to openvino --int8 -o out",
    "export model --to ctranslate2 --sif-coefficient 0.5 -o out",
    "export model --to onnx --sif-coefficient 0.5 -o out",
    "export model --to onnx --dtype int8 -o out",
    "export model --to onnx --dtype bfloat16 -o out",
    "export model --to openvino --dtype q8_0 -o out",
    "export model --to gguf --dtype int8 -o out",
    "export model --onnx --only int8 --int4 -o out",
    "export model --onnx --block-size 32 -o out",
    "export model --onnx --int8 static -o out",
    "export model --onnx --calibration data/sentences.txt -o out",
    "export model --onnx --max-drop 0.1 -o out",
    "export model --onnx --int4 -o out",
    "export model --onnx --cache -o out",
    "export model --onnx --adapter-inputs -o out",
    "export model --to static -o out",
    "run classify model text",
    "run nothing model text",
    "run embed model text --backend nothing",
    "run embed model text --dtype nothing",
    "run rerank model text",
    "run prompt model text",
    "run zero-shot model text --label a",
    "run answer model question",
    "run next-sentence model text",
    "eval model --task nothing --eval data/samples.jsonl",
    "eval model --task pet --eval data/samples.jsonl",
    "eval model --task setfit --eval data/samples.jsonl",
    "eval model --task text-classification --eval data/samples.jsonl",
    "eval model --task regression --num-beams 2 --eval data/samples.jsonl",
    "eval model --task perplexity --eval data/text.txt",
    "eval model --task retrieval --eval data/samples.jsonl",
    "adapter merge model -o out",
    "adapter info model",
    "plugins new a-b-c --like nothing",
    "plugins info nothing",
    "verify data",
)
# files of recipes
RECIPES = {
    "wrong-loss": "terms:\n  kl: {kind: nothing}\n",
    "wrong-field": "terms:\n  kl: {kind: kl, alpha: 1}\n",
    "wrong-setting": "terms:\n  kl: {kind: kl, temperature: -1}\n",
    "other-setting": "terms:\n  kl: {kind: kl, relations: [queries]}\n",
}
# commands whose objects have keys that are compared
OBJECTS = (
    "families",
    "models",
    "doctor",
    "plugins",
    "plugins list",
    "plugins info bert",
    "plugins search rembert",
    "info model",
    "verify model --no-parity",
    "tokenize model text",
    "look model text",
    "probe model --task text-classification --train data/samples.jsonl --eval data/samples.jsonl",
    "bench model --backend cpu --iterations 1 --no-startup --seq-len 8",
    "convert hub -o converted",
    "convert hub --dry-run",
    "retokenize model --tokenizer train --train data/texts --vocab-size 300 -o retokenized",
    "corpus build data/texts --tokenizer model -o corpus",
    "mine-negatives backbone --input data/samples.jsonl --pair other -o mined.jsonl",
    "examples bert --train data/texts --set vocab_size=400 --count 1",
    "plugins new mine -o zoo-mine",
    "plugins new smooth --like objective -o zoo-smooth",
    "plugins new robust --like task -o zoo-robust",
)


def collect(context: Context) -> Results:
    """Yield help, options, messages and keys."""
    for name, facts in context.names["commands"].items():
        parameters = sorted(described(facts["parameters"]))
        yield f"zoo {name}", {"help": digest(facts["help"]), "parameters": parameters}
    folder = context.work / "commands"
    folder.mkdir()
    prepare(folder)
    write_data(folder / "data")
    for name, text in RECIPES.items():
        (folder / f"{name}.yaml").write_text(text)
    (folder / "model").symlink_to(context.model("bert"))
    (folder / "hub").symlink_to(context.hub("bert"))
    (folder / "backbone").symlink_to(context.backbone("bert"))
    for command in (*MISTAKES, *WRONG, *wrong_columns(context)):
        yield f"wrong: {shortened(command)}", answer(context, command, folder)
    for command in OBJECTS:
        done = context.env.run(*shlex.split(command), "--json", folder=folder)
        yield f"keys: {command}", keys_of(context, command, done)
    for project in ("zoo-mine", "zoo-smooth", "zoo-robust"):
        files = [path for path in sorted((folder / project).rglob("*")) if path.is_file()]
        names = [path.relative_to(folder / project).as_posix() for path in files]
        yield f"files of {project}", dict(zip(names, map(text_digest, files), strict=True))


def shortened(command: str) -> str:
    """Return a command with names of the options that many have."""
    for name, words in (("EMBED", EMBED), ("TUNE", TUNE), ("DISTILL", DISTILL)):
        command = command.replace(words, name)
    return command


def text_digest(path: Path) -> str:
    return digest(path.read_bytes())


def described(parameters: dict[str, Any]) -> Iterator[str]:
    """Yield the names of parameters, each with a digest of what is declared of it."""
    for words, facts in parameters.items():
        declared = {name: facts.get(name) for name in DECLARED}
        of_type = {name: facts["type"].get(name) for name in OF_TYPE}
        yield f"{words}: {digest_of({**declared, 'type': of_type})[:8]}"


def wrong_columns(context: Context) -> Iterator[str]:
    """Yield commands with each loss of embeddings and columns of each kind."""
    for loss in context.names["embedding_losses"]:
        for columns in COLUMNS:
            yield f"{EMBED} --set task_args.loss={loss} {columns} --set batch_size=8".strip()


def answer(context: Context, command: str, folder: Path) -> list[Any]:
    """Return exit code and message of a command."""
    done = context.env.run(*shlex.split(command), folder=folder)
    if (folder / "out").exists():
        shutil.rmtree(folder / "out")
    if not done.returncode:
        return [0]  # a combination that is accepted; other parts have its results
    text = context.clean(done.stderr).replace(str(folder), "FOLDER")
    place = text.find("error:")
    return [done.returncode, " ".join(text[max(place, 0) :].split())]


def keys_of(context: Context, command: str, done: Any) -> Any:
    """Return a digest of the keys of an object, or why the command was refused."""
    if done.returncode:
        return context.refusal(done)
    return digest_of(sorted_keys(json.loads(context.clean(done.stdout))))
