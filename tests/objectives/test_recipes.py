"""Recipes: complete settings for every size, with existing objectives and options."""

from typing import Any

import pytest
import torch
from msgspec.structs import replace

from zoo.objectives import objective_type
from zoo.objectives.options import parse_options
from zoo.plugins import all_families, get_family
from zoo.training.config.schema import pretrain_config

FAMILIES = ("bert", "roberta", "albert", "distilbert", "deberta", "modernbert")


@pytest.mark.parametrize("name", FAMILIES)
def test_every_size_has_settings_that_fit(name: str) -> None:
    family = get_family(name)
    for size, config in family.sizes().items():
        built: Any = pretrain_config({"family": name, "size": size}, {})
        kind = objective_type(family, config, built.objective)
        parse_options(kind.options_type, built.objective_args, built.objective)
        fitted: Any = replace(config, **built.config)
        assert fitted.max_positions >= built.seq_len
        assert built.lr_scheduler.warmup_steps < built.max_steps


@pytest.mark.by_default("bert", "bart", "deberta", "gpt", "t5", "elmo", "xlnet", "albert")
@pytest.mark.parametrize("name", [n for n in all_families() if n not in ("elmo", "model2vec")])
def test_positions_do_not_drown_tokens(name: str) -> None:
    """A new model by the recipe of ``tiny`` sees its tokens: with sinusoidal positions, whose mean
    square is 0.5, embeddings of a standard deviation of 0.05 need a scale.
    """
    family = get_family(name)
    recipe = family.recipe("tiny")
    config: Any = replace(family.sizes()["tiny"], **recipe.config)
    model: Any = family.model(config, "none").eval()
    ids = torch.arange(5, 35)[:, None].expand(-1, 20)  # Rows of one token each.
    with torch.no_grad():
        embedded = model.embeddings(ids)
    by_token = float(embedded.var(dim=0).mean())
    by_position = float(embedded.var(dim=1).mean())
    assert by_token > 0.2 * by_position


def test_recipes_have_the_numbers_of_the_papers() -> None:
    """Values of arXiv:1810.04805 A.2, 1907.11692 table 9 and 1909.11942 section 4.1."""
    bert, roberta, albert = (
        get_family(name).recipe(size)
        for name, size in (("bert", "base"), ("roberta", "large"), ("albert", "xlarge-v1"))
    )
    assert (bert.objective, bert.max_steps, bert.global_batch_tokens) == (
        "masked-lm+next-sentence", 1_000_000, 131_072,
    )  # fmt: skip
    # A.2: sequences of 128 tokens for 90 % of the steps, then of 512, 256 per batch
    whole: Any = pretrain_config({"family": "bert", "size": "base"}, {})
    assert (whole.seq_len_warmup.seq_len, whole.seq_len) == (128, 512)
    assert whole.seq_len_warmup_steps == 900_000
    assert whole.global_batch_size == 256
    assert (
        pretrain_config({"family": "bert", "size": "base", "seq_len": 128}, {}).seq_len_warmup
        is None
    )
    assert (bert.optimizer.learning_rate, bert.lr_scheduler.warmup_steps) == (1e-4, 10_000)
    assert (roberta.objective, roberta.optimizer.betas) == ("masked-lm", (0.9, 0.98))
    assert (roberta.optimizer.learning_rate, roberta.lr_scheduler.warmup_steps) == (4e-4, 30_000)
    assert (albert.objective, albert.objective_args["mask_strategy"]) == (
        "masked-lm+sentence-order",
        "ngrams",
    )
    # microsoft/DeBERTa: max_ngram of experiments/language_model/mlm.sh, max_gram of rtd_task.py
    deberta = get_family("deberta")
    sizes = [size for size in deberta.sizes() if size != "tiny"]
    chosen = {size: deberta.recipe(size).objective_args["mask_strategy"] for size in sizes}
    assert {size for size in sizes if chosen[size] == "tokens"} == {
        size_name for size_name in sizes if size_name.startswith("v3-")
    }
    assert set(chosen.values()) == {"tokens", "ngrams"}
    assert (albert.optimizer.name, albert.optimizer.learning_rate) == ("lamb", 0.00176)
