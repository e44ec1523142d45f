"""Suggestions for commands and options under the names that other programs give them."""

import click

from zoo.errors import did_you_mean

# setting -> its option, where they are called differently
OPTIONS = {"num_train_epochs": "--epochs", "optimizer.learning_rate": "--learning-rate"}
# other name, without separators -> options, of which a command may have one
OTHER_OPTIONS = {
    "data": ("--train", "--eval", "--input"),
    "dataset": ("--train", "--eval", "--input"),
    "train": ("--input",),
    "trainfile": ("--train", "--input"),
    "validationfile": ("--eval",),
    "testfile": ("--eval",),
    "input": ("--train", "--eval"),
    "i": ("--input", "--train", "--eval"),
    "out": ("--output",),
    "outputdir": ("--output",),
    "textcolumn": ("--text",),
    "labelcolumn": ("--label",),
    "labels": ("--label",),
    "columns": ("--text",),
    "candidatelabels": ("--label",),
    "hypothesistemplate": ("--template",),
    "cuda": ("--device",),
    "gpu": ("--device",),
    "overwrite": ("--force",),
    "quantize": ("--int8",),
    "quantization": ("--int8",),
}
# what people type in place of a command -> what does it
COMMAND_WORDS = {
    "help": "`zoo --help`, or `zoo COMMAND --help`",
    "version": "`zoo --version`",
    "list": "`zoo models` for checkpoints, `zoo families` for architectures",
    "ls": "`zoo models` for checkpoints, `zoo families` for architectures",
    "show": "`zoo info REF`",
    "describe": "`zoo info REF`",
    "inspect": "`zoo info REF`, or `zoo look REF TEXT` for what its layers compute",
    "attention": "`zoo look REF TEXT`",
    "visualize": "`zoo look REF TEXT`",
    "download": "`zoo convert REF`, or `zoo fetch REF` for the files as they are",
    "pull": "`zoo convert REF`, or `zoo fetch REF` for the files as they are",
    "get": "`zoo convert REF`, or `zoo fetch REF` for the files as they are",
    "import": "`zoo convert REF`",
    "upload": "`zoo push REF`",
    "publish": "`zoo push REF`",
    "train": "`zoo pretrain FAMILY` for raw text, `zoo finetune REF` for labelled data",
    "fine-tune": "`zoo finetune REF`",
    "resume": "`zoo pretrain --resume RUN`; finetune and distill have the same option",
    "test": "`zoo eval REF`",
    "evaluate": "`zoo eval REF`",
    "benchmark": "`zoo bench REF`",
    "predict": "`zoo run TASK REF`",
    "infer": "`zoo run TASK REF`",
    "encode": "`zoo run embed REF` for vectors, `zoo tokenize REF` for tokens",
    "chat": "`zoo run generate REF`",
    "quantize": "`zoo export REF --int8`",
    "optimize": "`zoo export REF`",
    "onnx": "`zoo export REF --onnx`",
    "compress": "`zoo export REF --int8`, or `zoo distill` for a smaller model",
    "prune": "`zoo distill` for a smaller model, `zoo export REF --int8` for 8-bit weights",
    "merge": "`zoo adapter merge`",
    "lora": "`zoo finetune REF --adapter lora`",
    "install": "`zoo plugins install`",
    "new": "`zoo plugins new`",
    "init": "`zoo plugins new` for a plugin, `zoo pretrain FAMILY` for a model",
}
# options before a command -> what does it
PROGRAM_OPTIONS = {
    "-v": "`zoo --version`",
    "-V": "`zoo --version`",
    "-i": "`zoo run TASK REF --input FILE`",
    "--input": "`zoo run TASK REF --input FILE`",
    "-o": "`zoo COMMAND -o FILE`: options follow the command",
    "--quantize": "`zoo export REF --int8`",
    "--int8": "`zoo export REF --int8`",
    "--onnx": "`zoo export REF --onnx`",
    "--model": "`zoo run TASK REF`: a model is not an option",
    "--device": "`zoo COMMAND --device cuda`: options follow the command",
    "--task": "`zoo run TASK REF`, or `zoo finetune REF --task TASK`",
    "--list": "`zoo models` for checkpoints, `zoo families` for architectures",
}


def suggest_command(name: str) -> str:
    """Return the command that does what a word says; empty if it is not known."""
    remedy = COMMAND_WORDS.get(name.lower())
    return f"use {remedy}" if remedy else ""


def suggest_option(name: str, ctx: click.Context) -> str:
    """Return a remedy for an option that a command does not have; empty if none is like it."""
    if ctx.parent is None and name in PROGRAM_OPTIONS:
        return f"use {PROGRAM_OPTIONS[name]}"
    parameters = ctx.command.get_params(ctx)  # Also options of plugins.
    flags = [flag for p in parameters for flag in p.opts if flag.startswith("--")]
    from zoo.training.config.finetune import FineTuneConfig
    from zoo.training.config.schema import TrainConfig
    from zoo.training.config.synonyms import setting_paths, synonyms

    plain = {_plain(flag): flag for flag in flags}
    words = synonyms(name.lstrip("-"))
    candidates = [*OTHER_OPTIONS.get(_plain(name), ())]
    candidates += [OPTIONS.get(word, word) for word in words]
    for candidate in candidates:
        if _plain(candidate) in plain:
            return f"did you mean {plain[_plain(candidate)]}?"
    if "--set" in flags:
        paths = [*setting_paths(FineTuneConfig), *setting_paths(TrainConfig)]
        for word in words:
            for path in (path for path in paths if word in (path, path.rpartition(".")[2])):
                return f"--set {path}=VALUE sets it"
            if "." in word:  # of a table without fixed keys
                return f"--set {word}=VALUE sets it"
    return did_you_mean(name, flags)


def _plain(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()
