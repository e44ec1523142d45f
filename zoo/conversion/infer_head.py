"""Choice of the head whose rules match every tensor of the checkpoint."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from zoo.conversion.hub_files import require_hub_class
from zoo.conversion.open import OpenCheckpoint
from zoo.errors import UsageError, VerificationError, did_you_mean, first_names
from zoo.families.config import Config, default_labels
from zoo.io.tensors.formats import DTYPE_NAMES, FLOAT8
from zoo.plugins.tasks import model_fields
from zoo.weights import MappingReport, Rule, TensorMapping, WeightMap, check_counts, match_tensors

if TYPE_CHECKING:
    from zoo.sentence_models.cross_encoder_files import PairSettings
    from zoo.sentence_models.modules import ActivationName

LOG = logging.getLogger("zoo")
MAX_NAMES_SHOWN = 6
TIE_EMBEDDINGS = "tie_word_embeddings"


@dataclass(frozen=True)
class ConversionPlan:
    """A head, and the mapping of the checkpoint's tensors to its parameters."""

    head: str
    opened: OpenCheckpoint  # Its tensors have the Hub's names.
    config: Config  # Flags of optional parts are set by the tensors that are present.
    mapping: MappingReport
    entries: dict[str, TensorMapping]  # Parameter name -> rule, for every tensor to write.

    @property
    def fields_of_task(self) -> dict[str, Any]:
        """Fields of ``config.json`` that a task set, which belong to the head of a checkpoint."""
        checkpoint = self.opened.checkpoint
        if checkpoint is None or checkpoint.head_name != self.head:
            return {}
        return {name: getattr(checkpoint.model, name) for name in model_fields()}

    @property
    def score_activation(self) -> "ActivationName | None":
        """Function that makes a score of a single logit, of a cross-encoder."""
        from zoo.sentence_models.cross_encoder_files import declares_cross_encoder, score_activation

        checkpoint = self.opened.checkpoint
        if checkpoint is not None:
            if checkpoint.head_name != self.head:
                return None
            return checkpoint.model.score_activation
        has_one_label = len(getattr(self.config, "labels", ())) == 1
        if not has_one_label or "classify" not in self.opened.family.heads()[self.head].tasks:
            return None
        origin = self.opened.source.directory / self.opened.family.config_files[0]
        activation = score_activation(self.opened.extra or {}, str(origin))
        if activation is None and declares_cross_encoder(self.opened.files):
            return "sigmoid"
        return activation

    @property
    def pairs(self) -> "PairSettings | None":
        """Prompts and length of pairs, of a cross-encoder."""
        from zoo.sentence_models.cross_encoder_files import read_pair_settings

        checkpoint = self.opened.checkpoint
        if checkpoint is not None:
            if checkpoint.head_name != self.head:
                return None
            return checkpoint.model.pairs
        return read_pair_settings(self.opened.files, self.opened.family.heads()[self.head].tasks)


def plan_conversion(
    opened: OpenCheckpoint, requested: str | None, *, init: bool = False
) -> ConversionPlan:
    """Choose the head, and match all tensors to its parameters.

    Label names are ignored if their number differs from the number of outputs, as in the Hub's
    library.
    """
    try:
        return _plan_head(opened, requested, init=init)
    except VerificationError:
        if opened.num_labels is None:
            raise
        labels = default_labels(opened.num_labels)
        config = msgspec.structs.replace(opened.config, labels=labels)
        try:
            plan = _plan_head(replace(opened, config=config), requested, init=init)
        except VerificationError:
            plan = None
        if plan is None:
            raise  # The first error names the problem.
        LOG.info(
            "%s: %s: the outputs are called %s and so on",
            opened.source.directory,
            opened.doubt,
            labels[0],
        )
        return plan


def _plan_head(opened: OpenCheckpoint, requested: str | None, *, init: bool) -> ConversionPlan:
    """Choose the head, and match all tensors to its parameters.

    By default, the head is the one whose rules match every tensor. If several do, the class name
    in the Hub's configuration decides. For a requested head, only tensors of other heads are
    ignored.
    """
    heads = opened.family.heads()
    weights = opened.family.weights(opened.config, next(iter(heads)))
    check_counts(weights, opened.reader.tensors, str(opened.source.directory))
    if requested is not None:
        if requested not in heads:
            raise UsageError(
                f"{opened.family.name} has no head {requested!r}",
                did_you_mean(requested, list(heads)) or f"it has {', '.join(heads)}",
            )
        tensors_of_other_heads = _other_heads(opened, requested)
        plan = _plan(opened, requested, ignored_tensors=tensors_of_other_heads, init=init)
        _require_complete(plan, requested)
        return plan
    candidates = list(heads)
    if opened.checkpoint is not None:
        candidates = [opened.checkpoint.head_name]
    declared_heads = [head for head in candidates if _declares_head(opened, head)]
    if len(declared_heads) == 1:  # It takes precedence over all other heads.
        plan = _plan(opened, declared_heads[0])
        if plan.mapping.complete:
            return plan
        if _lacks_tied_output(plan):  # The backbone's rules would fit, without the declared head.
            _require_complete(plan)
    plans = [_plan(opened, head) for head in candidates]
    return _choose_plan(opened, plans)


def _choose_plan(opened: OpenCheckpoint, plans: list[ConversionPlan]) -> ConversionPlan:
    """Return the complete plan, or the one whose head the configuration declares."""
    complete_plans = [plan for plan in plans if plan.mapping.complete]
    declared_plans = [plan for plan in plans if _declares_head(opened, plan.head)]
    if len(declared_plans) == 1:
        # A release with two models is read per head; another head would use the other model.
        ignored_names = declared_plans[0].opened.ignored.keys()
        plans_of_model = []
        for plan in complete_plans:
            if plan.opened.ignored.keys() == ignored_names:
                plans_of_model.append(plan)
        complete_plans = plans_of_model
    if len(complete_plans) == 1:
        return complete_plans[0]
    if complete_plans:
        candidates = [plan for plan in complete_plans if _declares_head(opened, plan.head)]
        if len(candidates) == 1:
            return candidates[0]
        heads = " and ".join(plan.head for plan in complete_plans)
        raise UsageError(
            f"{opened.source.directory}: the tensors fit {heads}",
            "choose one with --head",
        )
    closest_plan = min(declared_plans or plans, key=lambda plan: plan.mapping.open_items)
    _require_complete(closest_plan)
    return closest_plan


def _declares_head(opened: OpenCheckpoint, head: str) -> bool:
    """Return whether the Hub's configuration names a class of a head."""
    classes = opened.family.heads()[head].architectures
    return any(name in classes for name in opened.architectures)


def _plan(
    opened: OpenCheckpoint,
    head: str,
    *,
    ignored_tensors: dict[str, str] | None = None,
    init: bool = False,
) -> ConversionPlan:
    """Match the tensors of a checkpoint with the rules of a head.

    Args:
        opened: the checkpoint.
        head: the head.
        ignored_tensors: name of a tensor that may be left out -> the reason.
        init: whether parameters of the head that the source lacks get initial values.
    """
    opened = opened.for_head(head)
    weights = opened.family.weights(opened.config, head)
    weight_map = weights
    if opened.checkpoint:
        weight_map = identity_map(weights, opened.checkpoint.weights)
    initialized_names = set[str]()
    if init:
        # Parameters of the bare backbone have to be in the source.
        backbone = opened.family.weights(opened.config, "none").entries()
        required_names = {entry.target for entry in backbone if not entry.optional}
        initialized_names = {entry.target for entry in weights.entries()} - required_names
    mapping = match_tensors(
        weight_map,
        opened.reader.tensors,
        ignored={**opened.ignored, **(ignored_tensors or {})},
        init=initialized_names,
        declared_optional=opened.declared_optional,
    )
    flags = dict.fromkeys(mapping.absent, False) | dict.fromkeys(mapping.present, True)
    config = msgspec.structs.replace(opened.config, **flags)
    entries = {entry.target: entry for entry in opened.family.weights(config, head).entries()}
    return ConversionPlan(head, opened, config, mapping, entries)


def identity_map(weights: WeightMap, checkpoint_weights: WeightMap | None = None) -> WeightMap:
    """Return the weight map of the zoo's layout, which maps each name to itself.

    Two heads can use one parameter name for different tensors of the Hub. A tensor of
    ``checkpoint_weights`` that comes from other tensors of the Hub is not mapped.
    """
    checkpoint_sources = {}
    if checkpoint_weights is not None:
        for entry in checkpoint_weights.entries():
            checkpoint_sources[entry.target] = entry.sources
    rules = []
    for entry in weights.entries():
        source = entry.target
        if checkpoint_sources.get(entry.target, entry.sources) != entry.sources:
            source = f"{entry.target} ({' '.join(entry.sources)})"
        rules.append(Rule(source, entry.target, entry.shape, optional=entry.optional))
    return replace(
        weights, rules=rules, drops=(), ties=(), constants=(), legacy={}, prefix="", counts={}
    )


def _other_heads(opened: OpenCheckpoint, requested: str) -> dict[str, str]:
    """Return the tensors that only other heads have -> reason to ignore them."""
    reasons: dict[str, str] = {}
    # Heads share names of tensors. The head of the checkpoint comes first, since the tensors
    # belong to it.
    checkpoint_head = opened.checkpoint.head_name if opened.checkpoint else None
    for head in sorted(opened.family.heads(), key=lambda head: head != checkpoint_head):
        if head == requested:
            continue
        weights = opened.family.weights(opened.config, head)
        if opened.checkpoint:
            weights = identity_map(weights)
        names = list[str]()
        for entry in weights.entries():
            names += entry.sources
        names += [*weights.aliases(), *weights.dropped(), *weights.constant_tensors()]
        for name in names:
            reasons.setdefault(name, f"belongs to the head {head}; {requested} was requested")
    return reasons


def _require_complete(plan: ConversionPlan, requested: str | None = None) -> None:
    """Check that all tensors are accounted for."""
    if plan.mapping.complete:
        return
    opened = plan.opened
    family = plan.opened.family
    causes = list[str]()
    if opened.doubt and family.heads()[plan.head].has_labels:
        causes.append(opened.doubt)
    if opened.unknown:
        keys = first_names(opened.unknown, MAX_NAMES_SHOWN)
        causes.append(f"the configuration has keys that {family.name} does not know: {keys}")
    classes = set[str]()
    for head in family.heads().values():
        classes.update(head.architectures)
    unknown_classes = [name for name in opened.architectures if name not in classes]
    if unknown_classes:
        causes.append(f"no head is of the class {', '.join(unknown_classes[:MAX_NAMES_SHOWN])}")
    plan.mapping.raise_if_incomplete(
        f"{opened.source.directory} as {family.name} with head {plan.head}",
        _remedy(plan, requested),
        causes,
    )


def _lacks_tied_output(plan: ConversionPlan) -> bool:
    """Return whether only an output layer is missing, which a tie would make of the embeddings."""
    mapping = plan.mapping
    family = plan.opened.family
    if plan.opened.checkpoint or not mapping.missing:
        return False
    if mapping.unexpected or mapping.shape_mismatches:
        return False
    try:
        tied_config = family.from_hub({**family.to_hub(plan.config), TIE_EMBEDDINGS: True}).config
    except VerificationError:
        return False
    aliases = family.weights(tied_config, plan.head).aliases()
    return all(name in aliases for name in mapping.missing)


def _remedy(plan: ConversionPlan, requested: str | None) -> str:
    """Return the remedy for tensors that do not match; empty if none is known."""
    opened = plan.opened
    other_problems = plan.mapping.unexpected or plan.mapping.shape_mismatches
    if requested is not None and plan.mapping.missing and not other_problems:
        return f"--init-head starts {requested} from random weights"
    if _lacks_tied_output(plan):
        return (
            f"set {TIE_EMBEDDINGS} to true in {opened.family.config_files[0]} if the token "
            "embeddings are the output layer, as in files without one; --head none leaves the head "
            "out"
        )
    if opened.doubt and plan.mapping.shape_mismatches:
        return "correct num_labels and id2label, or leave one of them out"
    if requested is None and opened.checkpoint is None:
        backbone_plan = _plan(opened, "none", ignored_tensors=_other_heads(opened, "none"))
        if backbone_plan.mapping.complete:
            number = len(backbone_plan.mapping.drops)
            return f"--head none converts the model without its head ({number} tensors)"
    if opened.unknown:
        return "another family may describe this model: see `zoo families` and `zoo plugins`"
    return ""


def with_labels(config: Config, labels: Sequence[str] | None) -> Config:
    """Return a configuration with the labels of a new head."""
    if labels is None:
        return config
    if not all(labels) or len(set(labels)) != len(labels):
        raise UsageError(
            f"a label is empty or given twice: {', '.join(labels)}", "give each output a name"
        )
    return msgspec.structs.replace(config, labels=tuple(labels))


def require_computable(plan: ConversionPlan, dtype: str | None) -> None:
    """Check that commands compute in the dtypes of the result."""
    if dtype is not None:
        return
    problems = []
    for copy in plan.mapping.copies:
        for name, code in zip(copy.names, copy.dtypes, strict=True):
            if code in FLOAT8:
                problems.append(f"{name} is {DTYPE_NAMES[code]}")
    if not problems:
        return
    problem = problems[0]
    if len(problems) > 1:
        problem += f" and {len(problems) - 1} more like it"
    raise UsageError(
        f"{plan.opened.source.directory}: {problem}, in which no command computes",
        "--dtype bfloat16 reads the numbers as they are; if the file lacks their scales, "
        "convert the model from before it was quantized",
    )


def require_hub_outputs(plan: ConversionPlan) -> None:
    """Check that the Hub's layout can describe the result; see ``require_hub_class``."""
    require_hub_class(
        plan.opened.family,
        plan.config,
        plan.head,
        fields=plan.fields_of_task,
        origin=str(plan.opened.source.directory),
    )


def require_label_outputs(plan: ConversionPlan) -> None:
    """Check that a head has an output for each label."""
    outputs = plan.opened.family.heads()[plan.head].outputs
    if not any("labels" in axes.split() for axes in outputs.values()):
        raise UsageError(
            f"the head {plan.head} has no outputs that labels name",
            "choose a classifier, as in --head sequence-classification --init-head",
        )
