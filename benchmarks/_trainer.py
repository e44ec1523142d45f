"""The speed of the ``Trainer`` of transformers, for comparison."""

import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch


def trainer_speed(
    model: Any,
    examples: Sequence[Any],
    collate: Callable[[Any], Any],
    count_tokens: Callable[[Any], int],
    *,
    warm_up: int,
    steps: int,
    barrier: tuple[int, Callable[[], None]] | None = None,
    **arguments: Any,
) -> float:
    """Return the tokens per second of the steps after the warm-up.

    Args:
        model: the model.
        examples: the training data.
        collate: function from some examples to a batch.
        count_tokens: function from a batch to its number of tokens without padding.
        warm_up: number of steps that are not timed.
        steps: number of steps that are timed.
        barrier: a step of the warm-up, and what is called after it.
        **arguments: further ``TrainingArguments``.
    """
    import transformers

    clock: dict[int, float] = {}
    tokens: list[int] = []

    def counted(items: Any) -> Any:
        batch = collate(items)
        tokens.append(count_tokens(batch))
        return batch

    class Clock(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            if barrier is not None and state.global_step == barrier[0]:
                barrier[1]()
            if state.global_step in (warm_up, warm_up + steps):
                if torch.cuda.is_available():
                    torch.cuda.synchronize()
                clock[state.global_step] = time.perf_counter()

    with tempfile.TemporaryDirectory() as scratch:
        settings = transformers.TrainingArguments(
            scratch,
            max_steps=warm_up + steps,
            learning_rate=1e-4,
            weight_decay=0.01,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            **arguments,
        )
        transformers.Trainer(
            model=model,
            args=settings,
            train_dataset=list(examples),
            data_collator=counted,
            callbacks=[Clock()],
        ).train()
    seconds = clock[warm_up + steps] - clock[warm_up]
    return sum(tokens[warm_up : warm_up + steps]) / seconds
