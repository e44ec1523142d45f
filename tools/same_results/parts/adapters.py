"""Every adapter method: training on several families, merging, layouts, and extraction."""

from collections.abc import Mapping

from tools.same_results.context import (
    EVERY_STEP,
    SHORT,
    Context,
    Names,
    Results,
    settings_of,
    small_settings,
)
from tools.same_results.finetuning import Case, command
from tools.same_results.records import digest_of, layout, require_cases, sorted_keys, tensors_digest

CASES = {
    "bert": ("text-classification", Case()),
    "gpt": ("causal-lm", Case(columns=("--label", "target"))),
    "t5": ("seq2seq", Case(columns=("--label", "target"))),
    "deberta": ("text-classification", Case()),
}
SMALL_BOTTLENECK = ("reduction_factor=4", "scaling=2", "non_linearity=gelu")
# method -> its settings, on another run of BERT
SETTINGS: Mapping[str, tuple[str, ...]] = {
    "lora": ("rank=2", "alpha=4", "use_rslora=true", "dropout=0.1", "target_modules=all-linear"),
    "dora": ("rank=2", "alpha=4", "use_rslora=true", "dropout=0.1", "target_modules=all-linear"),
    "ia3": ("target_modules=[query, output.dense]", "feedforward_modules=[output.dense]"),
    "prompt": ("num_virtual_tokens=3", "init=random"),
    "prefix": (
        "num_virtual_tokens=3",
        "prefix_projection=true",
        "encoder_hidden_size=8",
        "shift_positions=false",
    ),
    "houlsby": SMALL_BOTTLENECK,
    "pfeiffer": SMALL_BOTTLENECK,
    "parallel": SMALL_BOTTLENECK,
}


def check(names: Names) -> None:
    """Check that every method and setting has a case."""
    methods = names["adapters"]
    require_cases("the adapter", methods, SETTINGS)
    for method, setting_names in methods.items():
        settings = {setting.partition("=")[0] for setting in SETTINGS[method]}
        require_cases(f"the settings of the adapter {method}", setting_names, settings)


def collect(context: Context) -> Results:
    """Yield the results of every method."""
    for method in context.names["adapters"]:
        for family in CASES:
            yield from trained(context, method, family)
        yield from trained(context, method, "bert", *SETTINGS[method])
        yield from pretrained(context, method)
    yield from extracted(context)


def trained(context: Context, method: str, family: str, *settings: str) -> Results:
    """Yield a run with an adapter, and what is made of it."""
    task, case = CASES[family]
    name = f"{method} {family}" + (" settings" if settings else "")
    run = context.work / "adapters" / name.replace(" ", "-")
    options = ("--adapter", method, *settings_of(*(f"adapter.{text}" for text in settings)))
    case = Case(case.table, case.columns, case.settings, family, options)
    record = context.trained(run, *command(context, task, case))
    yield name, record
    if "exit code" in record:
        return
    adapter = run / "model"
    hub = run.with_suffix(".hub")
    merged = run.with_suffix(".merged")
    refusal = context.attempt("convert", adapter, "--to", "hub", "-o", hub)
    yield f"hub {name}", refusal or [tensors_digest(hub), digest_of(layout(hub, context.clean))]
    if family != "bert":
        return
    if refusal is None:
        again = run.with_suffix(".again")
        base = ("--base", context.model(family))
        refusal = context.attempt("convert", hub, *base, "-o", again)
        yield f"again {name}", refusal or tensors_digest(again)
    refusal = context.attempt("adapter", "merge", adapter, "-o", merged)
    yield f"merge {name}", refusal or tensors_digest(merged)
    words = ("classify", adapter, "the good day", "a weak day 3")
    yield f"run {name}", context.output("run", *words)
    info = context.json("adapter", "info", adapter)
    yield f"info {name}", digest_of(sorted_keys(info))


def pretrained(context: Context, method: str) -> Results:
    """Yield a run of pretraining with an adapter."""
    key = f"pretrain {method}"
    run = context.work / "adapters" / f"pretrain-{method}"
    init = ("pretrain", "--init-from", context.model("gpt"), "--adapter", method)
    data = ("--train", context.files["texts"])
    small = small_settings(without="vocab_size")
    words = (*init, *data, *small, *EVERY_STEP, *SHORT, "--keep-optimizer")
    yield key, context.trained(run, *words)


def extracted(context: Context) -> Results:
    """Yield an adapter of the difference of two models, and an evaluation with it."""
    key = "extract"
    tuned = context.work / "adapters" / "tuned"
    task, case = CASES["bert"]
    context.env.zoo(*command(context, task, case), "-o", tuned)
    adapter = context.work / "adapters" / "extracted"
    words = ("adapter", "extract", context.model("bert"), tuned / "model", "--rank", 2)
    refusal = context.attempt(*words, "-o", adapter)
    yield key, refusal or [tensors_digest(adapter), digest_of(layout(adapter, context.clean))]
    listed = context.json("adapter", "list", context.work / "adapters")
    yield "list", digest_of(listed)
