"""Construction of a distillation configuration from a recipe, a file and options."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from zoo.distillation.adaptation import (
    adapt_to_data,
    adapt_to_widths,
    text_settings,
    without_relative_lengths,
)
from zoo.distillation.config.student import Student, find_student, named_student
from zoo.distillation.discriminator import adapt_to_generator, find_generator
from zoo.distillation.recipes import (
    TEXT,
    find_recipe,
    select_stage,
    with_stage_changes,
)
from zoo.distillation.term_tables import checked_terms, without_changed_kinds
from zoo.errors import UsageError
from zoo.exporting.targets.static import Static
from zoo.exporting.targets.static.export import static_family
from zoo.families.distillation import SENTENCES, DistillationRecipe
from zoo.finetuning.config import finetune_config
from zoo.inference.task_checks import without_head
from zoo.plugins import all_families
from zoo.training.config.distill import DistillTaskConfig, DistillTextConfig
from zoo.training.config.overrides import ConfigDict, check_tables, deep_merge
from zoo.training.config.overrides import merge_settings as merge_overrides
from zoo.training.config.schema import pretrain_config

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint

LOG = logging.getLogger("zoo")
# Settings of labelled data.
LABELLED = ("train", "eval", "text", "pair", "label", "skip_invalid")
STUDENT = "student"
NAME = "name"
STATIC = "static"  # The name of static embeddings as a student.
# Settings that others follow from, as from the student.
FIXED_SETTINGS = ("recipe", "stage", "align")


def distill_config(
    values: Mapping[str, Any], overrides: Mapping[str, Any], *, offline: bool = False
) -> DistillTextConfig | DistillTaskConfig:
    """Return the configuration from the recipe, a file and options, in increasing precedence.

    In addition to the settings of a run, ``student`` maps ``name`` to a family, a size of the
    teacher's family or a reference, and fields of the student's configuration to their values.
    """
    check_tables(values, overrides)
    requested = merge_settings(values, overrides)
    teacher = resolve_teacher(requested, offline=offline)
    if is_resolved(requested):
        requested.pop(STUDENT, None)  # It is empty.
        return _validated({}, requested, offline=offline, recorded=True)
    name, fields = student_name(requested.pop(STUDENT, None))
    family, pretrained = named_student(name, teacher, offline=offline)
    labelled = "task" in requested
    recipe_name, recipe = find_recipe(
        _recipe_name(requested), family, teacher.head_name, labelled=labelled
    )
    if recipe.data == SENTENCES:
        requested = sentence_settings(requested, teacher, is_new=pretrained is None)
        labelled = True
        if recipe.extraction is not None:
            _require_sentences(requested)
            if pretrained is None:
                require_extractable(str(requested["distillation"]["teachers"][0]), teacher)
    distillation = dict(requested.get("distillation") or {})
    stages = distillation.pop("stages", None) or {}
    recipe = select_stage(with_stage_changes(recipe, stages), distillation.get("stage"))
    recipe = adapt_to_data(recipe, requested.get("task"))
    generator = distillation.get("generator") or find_generator(recipe, teacher)
    recipe = adapt_to_generator(recipe, teacher, generator)
    stage = stages.get(distillation.get("stage")) or {}
    stage_settings = stage.get("settings") or {}
    requested = deep_merge({**requested, "distillation": distillation}, stage_settings)
    student = find_student(name, family, pretrained, teacher, recipe, fields)
    recipe = adapt_to_widths(recipe, student.config, teacher.config)
    terms = (requested.get("distillation") or {}).get("terms")
    recipe = msgspec.structs.replace(recipe, terms=without_changed_kinds(recipe.terms, terms))
    defaults = _student_settings(student, teacher, recipe, requested)
    recipe_settings = _distillation(recipe_name, recipe, student, teacher)
    recipe_settings["generator"] = generator
    defaults = deep_merge(defaults, {"distillation": recipe_settings})
    # Published recipes are for long runs. A user's recipe has no name and is always followed.
    if student.size == "tiny" and not labelled and recipe.name:
        if recipe.settings:
            LOG.info("the settings of the size tiny replace the ones of the recipe %s", recipe.name)
    elif labelled:
        defaults = deep_merge(defaults, recipe.settings)
    else:
        defaults = deep_merge(defaults, text_settings(recipe, defaults["seq_len"]))
    return _validated(without_relative_lengths(defaults, requested), requested, offline=offline)


def _require_sentences(requested: ConfigDict) -> None:
    """Check that the settings name the sentences that static embeddings learn from."""
    if not requested["data"].get("train"):
        raise UsageError(
            "static embeddings learn from sentences, and the settings name none",
            "name a file with --train; `zoo export REF --to static` makes them without data",
        )


def merge_settings(values: Mapping[str, Any], overrides: Mapping[str, Any]) -> ConfigDict:
    """Merge the settings of a file with options, which win."""
    if is_resolved(values):
        _require_fixed_settings(values, overrides)
    merged = merge_overrides(without_relative_lengths(dict(values), overrides), overrides)
    distillation = _table(merged, "distillation", "it has teachers, and terms by name")
    _table(distillation, "distillation.stages", "it has settings by name of a stage")
    terms = _table(distillation, "distillation.terms", "it has a name for each term")
    for name in terms:
        path = f"distillation.terms.{name}"
        if terms[name] is None:
            raise UsageError(f"{path} is null", f"--set {path}.weight=0 leaves a term out")
        _table(terms, path, f"--set {path}.weight=0 leaves a term out")
    recipe = distillation.get("recipe")
    if not isinstance(recipe, str | None):
        raise UsageError(f"distillation.recipe is {recipe!r}", "name a recipe, or a YAML file")
    return merged


def _require_fixed_settings(values: Mapping[str, Any], overrides: Mapping[str, Any]) -> None:
    """Check that options do not change what the settings of a run follow from."""
    recorded = values.get("distillation") or {}
    changes = overrides.get("distillation") or {}
    names = [STUDENT] if overrides.get(STUDENT) else []
    for name in FIXED_SETTINGS:
        if name in changes and changes[name] != recorded.get(name):
            names.append(name)
    if names:
        raise UsageError(
            f"the settings of a run follow from its student and recipe: {names[0]} cannot be "
            "changed",
            "start again with --teacher, --student and --recipe, without the run's file",
        )


def _table(parent: Mapping[str, Any], path: str, hint: str) -> Mapping[str, Any]:
    """Return the settings nested under a dotted path; empty if there are none."""
    value = parent.get(path.rpartition(".")[2])
    if not isinstance(value, Mapping | None):
        raise UsageError(f"{path} is {value!r}, not a table of settings", hint)
    return value or {}


def is_resolved(settings: Mapping[str, Any]) -> bool:
    """Return whether settings come from a run's file, where everything is spelled out."""
    return settings.get("family") is not None and not settings.get(STUDENT)


def sentence_settings(requested: ConfigDict, teacher: "Checkpoint", *, is_new: bool) -> ConfigDict:
    """Return the settings of a run on sentences: ``--train``, and those of the teacher.

    A student that ``is_new`` has the teacher's pooling and prompts, and a model keeps its own.
    """
    from zoo.finetuning.embeddings.options import stored_options

    data = dict(requested.get("data") or {})
    for name, option in (("train", "paths"), ("eval", "eval_paths")):
        files = data.pop(option, None)
        if files:
            data[name] = files
    pooling = teacher.model.pooling
    options = stored_options(pooling) if is_new else {}
    defaults: ConfigDict = {"task": SENTENCES, "task_args": options}
    if pooling is not None and pooling.max_tokens:
        defaults["max_seq_len"] = pooling.max_tokens
    settings = deep_merge(defaults, requested)
    settings["data"] = data
    return settings


def require_extractable(reference: str, teacher: "Checkpoint") -> None:
    """Check that a teacher is an encoder whose tokens have vectors."""
    pooling = teacher.model.pooling
    reason = Static().refusal(teacher.family, teacher.config, teacher.head_name, pooling)
    if reason is None:
        return
    hint = "give a sentence encoder"
    if Static().refusal(teacher.family, teacher.config, "none", pooling) is None:
        hint = without_head(reference)
    raise UsageError(
        f"static embeddings cannot be extracted from the teacher {reference}, with the head "
        f"{teacher.head_name}: {reason}",
        hint,
    )


def requested_recipe(requested: ConfigDict, *, offline: bool) -> DistillationRecipe:
    """Return the recipe that settings name, with the changes to its stages applied."""
    name, _ = student_name(requested.get(STUDENT))
    teacher = resolve_teacher(requested, offline=offline)
    family, _ = named_student(name, teacher, offline=offline)
    labelled = "task" in requested
    _, recipe = find_recipe(_recipe_name(requested), family, teacher.head_name, labelled=labelled)
    stages = (requested.get("distillation") or {}).get("stages")
    return with_stage_changes(recipe, stages or {})


def student_name(student: Any) -> tuple[str, ConfigDict]:
    """Split the setting ``student`` into the name and the fields of the configuration."""
    fields = dict(student) if isinstance(student, Mapping) else {NAME: student or None}
    name = fields.pop(NAME, None)
    if name is None:
        raise UsageError("the settings name no student", "name one with --student")
    if name == STATIC:
        return static_family().name, fields
    return str(name), fields


def _recipe_name(requested: ConfigDict) -> str | None:
    """Return the name of the recipe; ``None`` for the default."""
    distillation = requested.get("distillation") or {}
    if distillation.get("recipe"):
        return str(distillation["recipe"])
    return TEXT if distillation.get("align") == TEXT else None


def _validated(
    values: ConfigDict, requested: ConfigDict, *, offline: bool, recorded: bool = False
) -> DistillTextConfig | DistillTaskConfig:
    """Return the configuration, in which terms have all settings of their losses."""
    config: Any
    if "task" in requested:
        config = finetune_config(values, requested, offline=offline, struct_type=DistillTaskConfig)
    else:
        if "preset" in requested:
            raise UsageError(
                "--preset is for tasks on labelled data, and this run is on text",
                "name the task with --task, or leave out --preset",
            )
        _require_no_labelled_data(requested)
        config = pretrain_config(values, requested, offline=offline, struct_type=DistillTextConfig)
    distillation = config.distillation
    terms = checked_terms(distillation.terms, "distillation.", recorded=recorded)
    distillation = msgspec.structs.replace(distillation, terms=terms)
    return msgspec.structs.replace(config, distillation=distillation)  # type: ignore[no-any-return]


def _require_no_labelled_data(requested: ConfigDict) -> None:
    """Check that the settings of data, which name no task, are for text."""
    data = requested.get("data") or {}
    for name in LABELLED:
        if name in data:
            option = name.replace("_", "-")
            raise UsageError(
                f"--{option} is for labelled data, and the settings name no task",
                "name it with --task",
            )


def resolve_teacher(requested: ConfigDict, *, offline: bool) -> "Checkpoint":
    """Return the checkpoint of the first teacher."""
    from zoo.conversion.cache import resolve_checkpoint
    from zoo.errors import SourceError

    teachers = (requested.get("distillation") or {}).get("teachers")
    if not teachers or not isinstance(teachers, list | tuple):
        raise UsageError("the settings name no teacher", "name one with --teacher")
    reference = str(teachers[0])
    try:
        return resolve_checkpoint(reference, offline=offline)
    except (SourceError, UsageError) as error:
        if Path(reference).expanduser().is_dir():
            raise type(error)(f"the teacher {reference}: {error.what}", error.hint) from error
        family = reference if reference in all_families() else "FAMILY"
        hint = f"`zoo pretrain {family}` trains one; then give --teacher RUN/model"
        if isinstance(error, UsageError) and error.hint:
            hint = f"{error.hint.rstrip('?')}; {hint}"
        raise type(error)(f"the teacher {reference}: {error.what}", hint) from error


def _student_settings(
    student: Student,
    teacher: "Checkpoint",
    distillation: DistillationRecipe,
    requested: ConfigDict,
) -> ConfigDict:
    """Return the settings that follow from student and teacher."""
    reference = (requested.get("distillation") or {})["teachers"][0]
    settings: ConfigDict = {"family": student.family.name, "config": student.changes}
    if student.reference is None:
        settings["size"] = student.size
    else:
        settings["init_from"] = {"model": student.reference}
    if "task" in requested:
        has_built_in_tokenizer = student.family.text_tokenizer(student.config) is not None
        if student.reference is None and not has_built_in_tokenizer:
            settings["tokenizer"] = reference
        return settings
    by_text = (requested.get("distillation") or {}).get("align") == TEXT
    return settings | _corpus_settings(student, teacher, distillation, reference, by_text=by_text)


def _corpus_settings(
    student: Student,
    teacher: "Checkpoint",
    distillation: DistillationRecipe,
    reference: str,
    *,
    by_text: bool,
) -> ConfigDict:
    """Return the tokenizer, row length and objective for a corpus."""
    from zoo.objectives import objective_type

    recipe = student.family.recipe(student.size)
    if by_text:
        longest_row = student.family.max_seq_len(student.config) or recipe.seq_len
        length = min(longest_row, recipe.seq_len)
        objective = recipe.objective.split("+")[0]
        return {"seq_len": length, "objective": objective}
    limits = [
        teacher.family.max_seq_len(teacher.config),
        student.family.max_seq_len(student.config),
        recipe.seq_len,
    ]
    longest = min(limit for limit in limits if limit is not None)
    objective = distillation.objective or text_objective(student, teacher, recipe.objective)
    settings: ConfigDict = {"seq_len": longest, "objective": objective}
    if student.reference is not None:  # It has a tokenizer and no options for new weights.
        return settings
    settings["data"] = {"tokenizer": reference}
    options = objective_type(student.family, student.config, objective).from_scratch_options
    if options:
        settings["objective_args"] = dict.fromkeys(options, 0.0)
    return settings


def text_objective(student: Student, teacher: "Checkpoint", default: str) -> str:
    """Return the objective on text: the family's if the teacher supports it, or a shared one."""
    # ``default`` is the objective of the family's recipe.
    from zoo.objectives import OBJECTIVES, supports_objective

    # The loss of sentence pairs has no teacher, and is left out.
    preferred = default.split("+")[0]
    for name in dict.fromkeys((preferred, *OBJECTIVES)):
        if not supports_objective(student.family, student.config, name):
            continue
        if supports_objective(teacher.family, teacher.config, name):
            return name
    return default


def _distillation(
    name: str, recipe: DistillationRecipe, student: Student, teacher: "Checkpoint"
) -> ConfigDict:
    """Return the settings of ``distillation`` that the recipe determines."""
    settings: ConfigDict = msgspec.to_builtins(recipe)
    fields = ("objective_weight", "terms", "init_layers", "freeze", "replacement")
    values = {"recipe": name, **{field: settings[field] for field in fields}}
    if student.reference is not None:
        values["init_layers"] = None
        return values
    width = getattr(student.config, "hidden_size", None)
    teacher_width = getattr(teacher.config, "hidden_size", None)
    if width != teacher_width and recipe.init_layers is not None:
        values["init_layers"] = None
        LOG.info(
            "the student starts with new weights: it is %s wide, and its teacher %s",
            width,
            teacher_width,
        )
    return values
