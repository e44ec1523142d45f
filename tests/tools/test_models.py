"""The page of much used models: it is current, and tests hold what it says."""

from tests.registry.configurations import published_configurations
from tools.models import PAGE, entries_by_repository, listed_models, page

# transformers has no class for their architecture, calls it by another model type, or
# does not compute it in float64
COMPARED_ELSEWHERE = {
    "minishlab/potion-base-8M": "tests/families/test_model2vec.py",
    "nomic-ai/nomic-embed-text-v2-moe": "tests/families/test_nomic_experts.py",
    "jinaai/jina-embeddings-v2-base-en": "tests/families/test_jina.py",
    "jinaai/jina-embeddings-v3": "tests/families/test_jina_tasks.py",
    "jinaai/jina-reranker-v2-base-multilingual": "tests/families/test_jina_tasks.py",
    "Alibaba-NLP/gte-large-en-v1.5": "tests/families/test_gte.py",
    "Alibaba-NLP/gte-multilingual-base": "tests/families/test_gte.py",
    "Alibaba-NLP/gte-multilingual-reranker-base": "tests/families/test_gte.py",
    "facebook/xglm-564M": "tests/families/test_opt.py",
    "allenai/longformer-base-4096": "tests/families/test_longformer.py",
    "allenai/led-base-16384": "tests/families/test_led.py",
    "google/bigbird-roberta-base": "tests/families/test_bigbird.py",
}


def test_the_page_is_current() -> None:
    text = page(listed_models(), entries_by_repository())
    assert PAGE.read_text("utf-8") == text, "run `python -m tools.models`"


def test_each_model_is_held_or_has_a_reason() -> None:
    entries = entries_by_repository()
    for repository, model in listed_models().items():
        assert (repository in entries) == (model.reason is None), repository


def test_each_held_model_has_a_tested_configuration() -> None:
    held = listed_models().keys() & entries_by_repository().keys()
    tested = {name for keys in published_configurations() for name in keys.checkpoints}
    assert held - tested == COMPARED_ELSEWHERE.keys()
