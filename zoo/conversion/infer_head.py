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
SHOWN = 6
TIE = "tie_word_embeddings"


@dataclass(frozen=True)
class ConversionPlan:
    """A head, and the mapping of the checkpoint's tensors to its parameters."""

    head: str
    opened: OpenCheckpoint  # with tensors under the Hub's names
    config: Config  # flags of optional parts are set by the tensors that are present
    mapping: MappingReport
    entries: dict[str, TensorMapping]  # parameter name -> rule, for every tensor to write

    @property
    def fields_of_task(self) -> dict[str, Any]:
        """Fields of ``config.json`` that a task set, which belong to the head of a checkpoint."""
        before = self.opened.checkpoint
        if before is None or before.head_name != self.head:
            return {}
        return {name: getattr(before.model, name) for name in model_fields()}

    @property
    def score_activation(self) -> "ActivationName | None":
        """Function that makes a score of a single logit, of a cross-encoder."""
        from zoo.sentence_models.cross_encoder_files import declares_cross_encoder, score_activation

        before = self.opened.checkpoint
        if before is not None:
            return before.model.score_activation if before.head_name == self.head else None
        one_label = len(getattr(self.config, "labels", ())) == 1
        if not one_label or "classify" not in self.opened.family.heads()[self.head].tasks:
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

        before = self.opened.checkpoint
        if before is not None:
            return before.model.pairs if before.head_name == self.head else None
        classifies = "classify" in self.opened.family.heads()[self.head].tasks
        return read_pair_settings(self.opened.files) if classifies else None


def plan_conversion(
    opened: OpenCheckpoint, requested: str | None, *, init: bool = False
) -> ConversionPlan:
    """Choose the head, and match all tensors to its parameters."""
    # Names of another number than the outputs do not count, as in the Hub's library
    try:
        return _plan_head(opened, requested, init=init)
    except VerificationError:
        if opened.num_labels is None:
            raise
        labels = default_labels(opened.num_labels)
        unnamed = replace(opened, config=msgspec.structs.replace(opened.config, labels=labels))
        try:
            plan = _plan_head(unnamed, requested, init=init)
        except VerificationError:
            plan = None
        if plan is None:
            raise
        LOG.info(
            "%s: %s: the outputs are called %s and so on",
            opened.source.directory,
            opened.doubt,
            labels[0],
        )
        return plan


def _plan_head(opened: OpenCheckpoint, requested: str | None, *, init: bool) -> ConversionPlan:
    # By default, the head is the one whose rules match every tensor. If several do, the class name
    # in the Hub's configuration decides. For a requested head, only tensors of other heads are
    # ignored
    heads = opened.family.heads()
    weights = opened.family.weights(opened.config, next(iter(heads)))
    check_counts(weights, opened.reader.tensors, str(opened.source.directory))
    if requested is not None and requested not in heads:
        raise UsageError(
            f"{opened.family.name} has no head {requested!r}",
            did_you_mean(requested, list(heads)) or f"it has {', '.join(heads)}",
        )
    if requested is not None:
        plan = _plan(opened, requested, ignored=_other_heads(opened, requested), init=init)
        _require_complete(plan, requested)
        return plan
    candidates = [opened.checkpoint.head_name] if opened.checkpoint else list(heads)
    named = [head for head in candidates if _names(opened, head)]
    if len(named) == 1:  # takes precedence over all other heads
        plan = _plan(opened, named[0])
        if plan.mapping.complete:
            return plan
        if _lacks_tied_output(plan):  # the backbone's rules would fit, without the named head
            _require_complete(plan)
    return _best(opened, [_plan(opened, head) for head in candidates])


def _best(opened: OpenCheckpoint, plans: list[ConversionPlan]) -> ConversionPlan:
    complete = [plan for plan in plans if plan.mapping.complete]
    named = [plan for plan in plans if _names(opened, plan.head)]
    if len(named) == 1:
        # a release with two models is read per head; another head would use the other model
        ignored = named[0].opened.ignored.keys()
        complete = [plan for plan in complete if plan.opened.ignored.keys() == ignored]
    if len(complete) == 1:
        return complete[0]
    named = [plan for plan in complete or plans if _names(opened, plan.head)]
    if len(named) == 1 and complete:
        return named[0]
    if complete:
        raise UsageError(
            f"{opened.source.directory}: the tensors fit {' and '.join(p.head for p in complete)}",
            "choose one with --head",
        )
    fewest = min(named or plans, key=lambda plan: plan.mapping.open_items)
    _require_complete(fewest)
    return fewest


def _names(opened: OpenCheckpoint, head: str) -> bool:
    return any(a in opened.family.heads()[head].architectures for a in opened.architectures)


def _plan(
    opened: OpenCheckpoint, head: str, *, ignored: dict[str, str] | None = None, init: bool = False
) -> ConversionPlan:
    opened = opened.for_head(head)
    weights = opened.family.weights(opened.config, head)
    weight_map = identity_map(weights, opened.checkpoint.weights) if opened.checkpoint else weights
    initializable = set[str]()
    if init:  # all except the bare backbone's
        backbone = opened.family.weights(opened.config, "none").entries()
        required = {entry.target for entry in backbone if not entry.optional}
        initializable = {entry.target for entry in weights.entries()} - required
    mapping = match_tensors(
        weight_map,
        opened.reader.tensors,
        ignored={**opened.ignored, **(ignored or {})},
        init=initializable,
        declared_optional=opened.declared_optional,
    )
    flags = dict.fromkeys(mapping.absent, False) | dict.fromkeys(mapping.present, True)
    config = msgspec.structs.replace(opened.config, **flags)
    entries = {entry.target: entry for entry in opened.family.weights(config, head).entries()}
    return ConversionPlan(head, opened, config, mapping, entries)


def identity_map(weights: WeightMap, stored: WeightMap | None = None) -> WeightMap:
    """Return the weight map of the zoo's layout, which maps each name to itself."""
    # Two heads can use one parameter name for different tensors of the Hub: not mapped
    stored_sources = {entry.target: entry.sources for entry in stored.entries()} if stored else {}
    rules = []
    for entry in weights.entries():
        same = stored_sources.get(entry.target, entry.sources) == entry.sources
        source = entry.target if same else f"{entry.target} ({' '.join(entry.sources)})"
        rules.append(Rule(source, entry.target, entry.shape, optional=entry.optional))
    return replace(
        weights, rules=rules, drops=(), ties=(), constants=(), legacy={}, prefix="", counts={}
    )


def _other_heads(opened: OpenCheckpoint, requested: str) -> dict[str, str]:
    """Return the tensors that only other heads have -> reason to ignore them."""
    ignored: dict[str, str] = {}
    # heads share names of tensors, and these are of the one that the checkpoint has
    stored = opened.checkpoint.head_name if opened.checkpoint else None
    for head in sorted(opened.family.heads(), key=lambda head: head != stored):
        if head == requested:
            continue
        weights = opened.family.weights(opened.config, head)
        if opened.checkpoint:
            weights = identity_map(weights)
        names = [s for e in weights.entries() for s in e.sources]
        names += [*weights.aliases(), *weights.dropped(), *weights.constant_tensors()]
        for name in names:
            ignored.setdefault(name, f"belongs to the head {head}; {requested} was requested")
    return ignored


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
        keys = first_names(opened.unknown, SHOWN)
        causes.append(f"the configuration has keys that {family.name} does not know: {keys}")
    classes = {name for head in family.heads().values() for name in head.architectures}
    if strange := [name for name in opened.architectures if name not in classes]:
        causes.append(f"no head is of the class {', '.join(strange[:SHOWN])}")
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
        tied = family.from_hub({**family.to_hub(plan.config), TIE: True}).config
    except VerificationError:
        return False
    aliases = family.weights(tied, plan.head).aliases()
    return all(name in aliases for name in mapping.missing)


def _remedy(plan: ConversionPlan, requested: str | None) -> str:
    """Return the remedy for tensors that do not match; empty if none is known."""
    opened = plan.opened
    other_problems = plan.mapping.unexpected or plan.mapping.shape_mismatches
    if requested is not None and plan.mapping.missing and not other_problems:
        return f"--init-head starts {requested} from random weights"
    if _lacks_tied_output(plan):
        return (
            f"set {TIE} to true in {opened.family.config_files[0]} if the token embeddings are the "
            "output layer, as in files without one; --head none leaves the head out"
        )
    if opened.doubt and plan.mapping.shape_mismatches:
        return "correct num_labels and id2label, or leave one of them out"
    if requested is None and opened.checkpoint is None:
        trunk = _plan(opened, "none", ignored=_other_heads(opened, "none")).mapping
        if trunk.complete:
            return f"--head none converts the model without its head ({len(trunk.drops)} tensors)"
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
    copies = plan.mapping.copies if dtype is None else ()
    found = [
        f"{name} is {DTYPE_NAMES[code]}"
        for copy in copies
        for name, code in zip(copy.names, copy.dtypes, strict=True)
        if code in FLOAT8
    ]
    if found:
        more = f" and {len(found) - 1} more like it" if len(found) > 1 else ""
        raise UsageError(
            f"{plan.opened.source.directory}: {found[0]}{more}, in which no command computes",
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
