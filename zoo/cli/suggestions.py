"""Suggestions for options under the names that other programs give them."""

import click

from zoo.errors import did_you_mean

# setting -> its option, where they are called differently
OPTIONS = {"num_train_epochs": "--epochs", "optimizer.learning_rate": "--learning-rate"}
# other name, without separators -> option
OTHERS = {
    "data": "--train",
    "trainfile": "--train",
    "validationfile": "--eval",
    "testfile": "--eval",
    "out": "--output",
    "outputdir": "--output",
    "textcolumn": "--text",
    "labelcolumn": "--label",
    "labels": "--label",
    "columns": "--text",
    "candidatelabels": "--label",
    "hypothesistemplate": "--template",
    "cuda": "--device",
    "gpu": "--device",
    "overwrite": "--force",
}


def suggest_option(name: str, ctx: click.Context) -> str:
    """Return a remedy for an option that a command does not have; empty if none is like it."""
    from zoo.training.config.finetune import FineTuneConfig
    from zoo.training.config.schema import TrainConfig
    from zoo.training.config.synonyms import setting_paths, synonyms

    flags = [flag for p in ctx.command.params for flag in p.opts if flag.startswith("--")]
    plain = {_plain(flag): flag for flag in flags}
    words = synonyms(name.lstrip("-"))
    meant = [OTHERS.get(_plain(name), ""), *(OPTIONS.get(word, word) for word in words)]
    if found := [plain[_plain(word)] for word in meant if _plain(word) in plain]:
        return f"did you mean {found[0]}?"
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
