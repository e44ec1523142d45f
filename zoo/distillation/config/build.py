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
from zoo.families.base import Family
from zoo.families.distillation import SENTENCES, DistillationRecipe
from zoo.finetuning.config import finetune_config
from zoo.inference.task_checks import without_head
from zoo.plugins import all_families
from zoo.training.config.distill import DistillTaskConfig, DistillTextConfig
from zoo.training.config.overrides import ConfigDict, check_tables, deep_merge
from zoo.training.config.overrides import merge_settings as merge_given
from zoo.training.config.schema import pretrain_config

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint

LOG = logging.getLogger("zoo")
LABELLED = ("train", "eval", "text", "pair", "label", "skip_invalid")  # settings of labelled data
STUDENT = "student"
NAME = "name"
STATIC = "static"  # the name of static embeddings as a student
FOLLOWED = ("recipe", "stage", "align")  # besides the student: other settings follow from them


def distill_config(
    values: Mapping[str, Any], overrides: Mapping[str, Any], *, offline: bool = False
) -> DistillTextConfig | DistillTaskConfig:
    """Return the configuration from the recipe, a file and options, in increasing precedence."""
    # In addition to the settings of a run, ``student`` maps ``name`` to a family, a size of the
    # teacher's family or a reference, and fields of the student's configuration to their values.
    check_tables(values, overrides)
    requested = merge_settings(values, overrides)
    teacher = resolve_teacher(requested, offline=offline)
    if is_resolved(requested):
        requested.pop(STUDENT, None)  # it is empty
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
        if recipe.extraction is not None and not requested["data"].get("train"):
            raise UsageError(
                "static embeddings learn from sentences, and the settings name none",
                "name a file with --train; `zoo export REF --to static` makes them without data",
            )
        if recipe.extraction is not None and pretrained is None:
            require_extractable(str(requested["distillation"]["teachers"][0]), teacher)
    distillation = dict(requested.get("distillation") or {})
    stages = distillation.pop("stages", None) or {}
    recipe = select_stage(with_stage_changes(recipe, stages), distillation.get("stage"))
    recipe = adapt_to_data(recipe, requested.get("task"))
    generator = distillation.get("generator") or find_generator(recipe, teacher)
    recipe = adapt_to_generator(recipe, teacher, generator)
    of_stage = (stages.get(distillation.get("stage")) or {}).get("settings") or {}
    requested = deep_merge({**requested, "distillation": distillation}, of_stage)
    student = find_student(name, family, pretrained, teacher, recipe, fields)
    recipe = adapt_to_widths(recipe, student.config, teacher.config)
    terms = (requested.get("distillation") or {}).get("terms")
    recipe = msgspec.structs.replace(recipe, terms=without_changed_kinds(recipe.terms, terms))
    of_recipe = {
        "generator": generator,
        **_distillation(recipe_name, recipe, student, teacher),
    }
    defaults = deep_merge(
        _student_settings(student, teacher, recipe, requested), {"distillation": of_recipe}
    )
    # published recipes are for long runs; a user's recipe has no name and is always followed
    if student.size == "tiny" and not labelled and recipe.name:
        if recipe.settings:
            LOG.info("the settings of the size tiny replace the ones of the recipe %s", recipe.name)
    else:
        settings = recipe.settings if labelled else text_settings(recipe, defaults["seq_len"])
        defaults = deep_merge(defaults, settings)
    return _validated(without_relative_lengths(defaults, requested), requested, offline=offline)


def merge_settings(values: Mapping[str, Any], overrides: Mapping[str, Any]) -> ConfigDict:
    """Merge the settings of a file with options, which win."""
    if is_resolved(values):
        before, now = (tree.get("distillation") or {} for tree in (values, overrides))
        changed = [key for key in FOLLOWED if key in now and now[key] != before.get(key)]
        if overrides.get(STUDENT):
            changed.insert(0, STUDENT)
        if changed:
            raise UsageError(
                f"the settings of a run follow from its student and recipe: {changed[0]} cannot "
                "be changed",
                "start again with --teacher, --student and --recipe, without the run's file",
            )
    merged = merge_given(without_relative_lengths(dict(values), overrides), overrides)
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
        if files := data.pop(option, None):
            data[name] = files
    pooling = teacher.model.pooling
    longest = {"max_seq_len": pooling.max_tokens} if pooling and pooling.max_tokens else {}
    options = stored_options(pooling) if is_new else {}
    defaults = {"task": SENTENCES, "task_args": options, **longest}
    return deep_merge(defaults, requested) | {"data": data}


def require_extractable(reference: str, teacher: "Checkpoint") -> None:
    """Check that a teacher is an encoder whose tokens have vectors."""
    parts = teacher.family, teacher.config
    reason = Static().refusal(*parts, teacher.head_name, teacher.model.pooling)
    if reason is None:
        return
    bare = Static().refusal(*parts, "none", teacher.model.pooling)
    raise UsageError(
        f"static embeddings cannot be extracted from the teacher {reference}, with the head "
        f"{teacher.head_name}: {reason}",
        without_head(reference) if bare is None else "give a sentence encoder",
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
    changes = dict(student) if isinstance(student, Mapping) else {NAME: student or None}
    name = changes.pop(NAME, None)
    if name is None:
        raise UsageError("the settings name no student", "name one with --student")
    return static_family().name if name == STATIC else str(name), changes


def _recipe_name(requested: ConfigDict) -> str | None:
    """Return the name of the recipe; ``None`` for the default."""
    distillation = requested.get("distillation") or {}
    by_text = distillation.get("align") == TEXT
    return distillation.get("recipe") or (TEXT if by_text else None)


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
        odd = [option for option in LABELLED if option in (requested.get("data") or {})]
        if odd:
            option = odd[0].replace("_", "-")
            raise UsageError(
                f"--{option} is for labelled data, and the settings name no task",
                "name it with --task",
            )
        config = pretrain_config(values, requested, offline=offline, struct_type=DistillTextConfig)
    distillation = config.distillation
    terms = checked_terms(distillation.terms, "distillation.", recorded=recorded)
    distillation = msgspec.structs.replace(distillation, terms=terms)
    return msgspec.structs.replace(config, distillation=distillation)  # type: ignore[no-any-return]


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
        hint = error.hint.rstrip("?") if isinstance(error, UsageError) else ""
        raise type(error)(
            f"the teacher {reference}: {error.what}",
            f"{f'{hint}; ' if hint else ''}`zoo pretrain {family}` trains one; then give "
            "--teacher RUN/model",
        ) from error


def _student_settings(
    student: Student,
    teacher: "Checkpoint",
    distillation: DistillationRecipe,
    requested: ConfigDict,
) -> ConfigDict:
    """Return the settings that follow from student and teacher."""
    reference = (requested.get("distillation") or {})["teachers"][0]
    settings: ConfigDict = {"family": student.family.name, "config": student.changes}
    settings |= (
        {"size": student.size}
        if student.reference is None
        else {"init_from": {"model": student.reference}}
    )
    if "task" in requested:
        built_in = student.family.text_tokenizer(student.config) is not None
        has_tokenizer = built_in or student.reference is not None
        return settings if has_tokenizer else {**settings, "tokenizer": reference}
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
        family.max_seq_len(config)
        for family, config in (
            (teacher.family, teacher.config),
            (student.family, student.config),
        )
    ]
    longest = min(limit for limit in (*limits, recipe.seq_len) if limit is not None)
    objective = distillation.objective or text_objective(student, teacher, recipe.objective)
    settings: ConfigDict = {"seq_len": longest, "objective": objective}
    if student.reference is not None:  # it has a tokenizer and no options for new weights
        return settings
    new = objective_type(student.family, student.config, objective).from_scratch_options
    none: ConfigDict = {"objective_args": dict.fromkeys(new, 0.0)} if new else {}
    return {**settings, "data": {"tokenizer": reference}, **none}


def text_objective(student: Student, teacher: "Checkpoint", default: str) -> str:
    """Return the objective on text: the family's if the teacher supports it, or a shared one."""
    # ``default`` is the objective of the family's recipe.
    from zoo.objectives import OBJECTIVES, objective_type

    def supported(family: Family, config: Any, name: str) -> bool:
        try:
            objective_type(family, config, name)
        except UsageError:
            return False
        return True

    parts = default.split("+")  # leaves out the loss of sentence pairs, which has no teacher
    for name in dict.fromkeys((parts[0], *OBJECTIVES)):
        student_supports = supported(student.family, student.config, name)
        if student_supports and supported(teacher.family, teacher.config, name):
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
    widths = [getattr(c, "hidden_size", None) for c in (student.config, teacher.config)]
    if widths[0] != widths[1] and recipe.init_layers is not None:
        values["init_layers"] = None
        LOG.info("the student starts with new weights: it is %s wide, and its teacher %s", *widths)
    return values
