"""The stages of pattern-exploiting training: a model for each pattern, then the classifier."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo.errors import UsageError
from zoo.finetuning.stages import TaskStages
from zoo.objectives.options import parse_options
from zoo.overrides import override
from zoo.tasks.pet.options import PetOptions
from zoo.tasks.pet.soft_labels import FOLDER, TRAIN, write_soft_labels
from zoo.tasks.prompt.template import PromptTemplate, resolve_label_words
from zoo.tasks.prompt.train import PROMPT
from zoo.training.config.overrides import ConfigDict, deep_merge

CLASSIFIER = "classifier"
# settings that all stages have; others are the classifier's
SHARED = (
    "init_from",
    "family",
    "preset",
    "seed",
    "precision",
    "deterministic",
    "compile",
    "fsdp",
    "fsdp_config",
    "gradient_checkpointing",
    "async_save",
    "max_seq_len",
    "adapter",
    "report_to",
)
COLUMNS = ("text", "pair", "label")


class PetStages(TaskStages):
    """A run of ``prompt`` for each pattern and repetition, then one of the classifier."""

    @override
    def is_single(self, settings: Mapping[str, Any]) -> bool:
        return (settings.get("task_args") or {}).get("stage") is not None

    @override
    def resolve(self, settings: Mapping[str, Any]) -> ConfigDict:
        options = dict(settings.get("task_args") or {})
        template_setting = options.get("template") or ()
        if isinstance(template_setting, str):
            templates = [template_setting]
        else:
            templates = list(map(str, template_setting))
        if not templates:
            raise UsageError("pet has no pattern", "give --template FILE|TEXT, or several")
        if not (settings.get("init_from") or {}).get("model"):
            raise UsageError("pet needs a pretrained model", "name one in place of a family")
        if not (settings.get("data") or {}).get("unlabelled"):
            raise UsageError("pet has no unlabelled texts", "give --unlabelled FILE")
        options["label_words"] = resolve_label_words(options.get("label_words") or "")
        options["template"] = [PromptTemplate.read(template).source for template in templates]
        for source in options["template"]:
            pattern = PromptTemplate.parse(source)
            pattern.require_label()
            pattern.require_no_rationale()
        parsed: Any = parse_options(PetOptions, options, "pet", "task")
        options["repetitions"] = parsed.repetitions
        return {**settings, "task_args": options}

    @override
    def names(self, settings: Mapping[str, Any]) -> list[str]:
        options = settings["task_args"]
        names = []
        for pattern in range(1, 1 + len(options["template"])):
            for repetition in range(1, 1 + options["repetitions"]):
                names.append(f"pattern-{pattern}-{repetition}")
        return [*names, CLASSIFIER]

    @override
    def settings(self, path: Path | None, settings: Mapping[str, Any], stage: str) -> ConfigDict:
        options = settings["task_args"]
        if stage == CLASSIFIER:
            data = {key: value for key, value in settings["data"].items() if key != "unlabelled"}
            classifier = {**settings, "data": data, "task_args": {**options, "stage": stage}}
            if path is None:
                return classifier
            return deep_merge(classifier, self.files(path, stage))
        pattern, repetition = _pattern_and_repetition(stage)
        shared = {name: settings[name] for name in SHARED if name in settings}
        pattern_settings: Mapping[str, Any] = options.get("patterns") or {}
        defaults = {"data": settings["data"]}
        if "num_train_epochs" not in pattern_settings:
            # The last weights count: few labels leave none to select a checkpoint by.
            steps = pattern_settings.get("max_steps") or PROMPT.defaults["max_steps"]
            defaults |= {"max_steps": steps, "eval_steps": steps}
        prompt = {
            "task": PROMPT.name,
            "seed": settings.get("seed", 0) + repetition - 1,
            "task_args": {
                "template": [options["template"][pattern - 1]],
                "label_words": options["label_words"],
            },
        }
        return deep_merge(shared, defaults, pattern_settings, prompt)

    @override
    def files(self, path: Path, stage: str) -> ConfigDict:
        if stage != CLASSIFIER:
            return {}
        return {"data": {"train": [str(path / FOLDER / TRAIN)]}}

    @override
    def prepare(self, path: Path, settings: Mapping[str, Any], stage: str, device: str) -> None:
        if stage != CLASSIFIER or (path / FOLDER).is_dir():
            return
        options = settings["task_args"]
        templates: Sequence[str] = options["template"]
        models: dict[str, tuple[Path, str]] = {}
        for name in self.names(settings):
            if name != CLASSIFIER:
                pattern, _ = _pattern_and_repetition(name)
                models[name] = (path / name / "model", templates[pattern - 1])
        write_soft_labels(path / FOLDER, models, settings, device)


def _pattern_and_repetition(stage: str) -> tuple[int, int]:
    """Return the numbers, from 1, in the name of a stage that trains a pattern."""
    _, pattern, repetition = stage.split("-")
    return int(pattern), int(repetition)
