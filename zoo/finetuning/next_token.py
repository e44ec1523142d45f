"""An auxiliary loss of tasks that score texts: the next token of the same text.

Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training", section 3.2,
and its released code (openai/finetune-transformer-lm, ``train.py``): the mean cross-entropy of the
next token in each row, with the weight ``lm_coef``.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from zoo.errors import UsageError
from zoo.finetuning.task import TaskContext
from zoo.nn.adapters.prompt import with_prompt, without_prompt
from zoo.nn.dtypes import at_least_float32
from zoo.objectives.losses.cross_entropy import summed_cross_entropy

if TYPE_CHECKING:
    from torch import Tensor, nn

NEXT_TOKEN = "causal-lm"  # The loss term.


def next_token_weights(context: TaskContext) -> Mapping[str, float]:
    """Return the weight of the term, if the option ``lm_coef`` sets one."""
    if not context.options.lm_coef:
        return {}
    return {NEXT_TOKEN: context.options.lm_coef}


def require_next_token(context: TaskContext, model: Any) -> None:
    """Check that a model predicts tokens if ``lm_coef`` is set; raises ``UsageError``."""
    if not context.options.lm_coef:
        return
    is_tied = getattr(context.config, "tie_embeddings", False) or hasattr(model, "choice_logits")
    has_mix = getattr(model, "mix", None) is not None  # It returns no last hidden state.
    if not hasattr(model, "hidden_and_logits") or not is_tied or has_mix:
        raise UsageError(
            f"the model does not predict tokens in addition to {context.name}",
            "leave out lm_coef",
        )


def logits_and_next_token(
    context: TaskContext, model: "nn.Module", inputs: "Mapping[str, Tensor]"
) -> "tuple[Tensor, dict[str, Tensor]]":
    """Return the logits of the head, and the value of the auxiliary term if there is one."""
    module: Any = model
    if not context.options.lm_coef:
        return module(**inputs)["logits"], {}
    hidden, logits = module.hidden_and_logits(**with_prompt(module, inputs))
    hidden = without_prompt(module, hidden)
    input_ids = inputs[context.input_names[0]].flatten(0, -2)
    attention_mask = inputs.get("attention_mask")
    if attention_mask is not None:
        attention_mask = attention_mask.flatten(0, -2)
    return logits, {NEXT_TOKEN: next_token_losses(module, hidden, input_ids, attention_mask)}


def next_token_losses(
    model: Any, hidden: "Tensor", input_ids: "Tensor", attention_mask: "Tensor | None"
) -> "Tensor":
    """Return the sum over rows of the mean cross-entropy of the next token.

    Args:
        model: a model that projects hidden states to its vocabulary.
        hidden: states of the last layer, (rows, tokens, hidden).
        input_ids: tokens, (rows, tokens), int64, padded on the right.
        attention_mask: 1 for tokens and 0 for padding, (rows, tokens); ``None`` for all 1.

    Returns:
        the sum, a scalar; a row with fewer than two tokens counts as 0.
    """
    tokens = input_ids.shape[1]
    if attention_mask is None:
        lengths = [tokens] * len(hidden)
    else:
        lengths = attention_mask.sum(1).tolist()
    total = at_least_float32(hidden.new_zeros(()))
    for row, length in enumerate(lengths):
        if length < 2:
            continue
        # One row at a time: the logits of a whole batch would take gigabytes.
        projection = model.project(hidden[row, : length - 1])
        loss, _ = summed_cross_entropy(projection, input_ids[row, 1:length])
        total = total + loss / (length - 1)
    return total
