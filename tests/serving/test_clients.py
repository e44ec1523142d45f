"""Published clients get the numbers of ``zoo run`` and of sentence-transformers."""

import json
import re
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import openai
import pytest
from numpy.typing import NDArray

from tests.serving.conftest import KEY, NAMES
from tests.serving.making import LABELS, PROMPTS
from tests.serving.server import Server
from tests.warm import zoo

Vectors = NDArray[np.floating[Any]]
TEXTS = [
    "A cat sat on the mat.",
    "Interest rates rose by a quarter of a percentage point on Thursday.",
    "Kittens sleep for most of the day; " * 12,
    "",
    "naïve façade, 東京, and 🙂",
    "Word",
    "The committee will publish its report before the end of the month. " * 20,
    "A cat sat on the mat.",
]
LETTERS = ["a b c", "j i", "d e f g h i j a b", "c", "f a b", "g g h", "a", "b a"]
QUERY = "a b c"
CUT = {"truncate": True}  # the third text from the end is longer than the model reads
RUN = 1e-6  # allowed difference to ``zoo run`` in float32
PEER = 1e-5  # allowed difference to sentence-transformers


def run(task: str, model: Path, *arguments: object, texts: Sequence[str]) -> list[dict[str, Any]]:
    """Return the results of ``zoo run`` in float32 on the CPU."""
    lines = "\n".join(json.dumps({"text": text}) for text in texts)
    options = ("--backend", "cpu", "--dtype", "float32", "--format", "jsonl", "-q")
    done = zoo("run", task, model, "-", *arguments, *options, stdin=lines)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def embedded(models: Path) -> Vectors:
    """The vectors of TEXTS that ``zoo run embed`` writes."""
    rows = run("embed", models / "minilm", texts=TEXTS)
    return np.array([row["embedding"] for row in rows])


@pytest.fixture(scope="module")
def peer_vectors(models: Path) -> Vectors:
    """The vectors of TEXTS of sentence-transformers."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(models / "minilm"), device="cpu")
    vectors: Vectors = model.encode(TEXTS)
    return vectors


@pytest.fixture
def client(server: Server) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def distance(values: Any, expected: Any) -> float:
    """Return the largest difference; shapes must be equal."""
    first = np.asarray(values, np.float64)
    second = np.asarray(expected, np.float64)
    assert first.shape == second.shape
    return float(np.abs(first - second).max())


def at_once(function: Callable[[Any], Any], items: Sequence[Any], threads: int = 16) -> list[Any]:
    """Return the results of a function that many threads call at once."""
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(function, items))


def test_the_first_line_names_the_models_and_the_address(server: Server) -> None:
    names = server.first_line.removeprefix("serving ").partition(" at ")[0].split(", ")
    assert names == [*NAMES, "classifier:legal"]
    host, port = server.address
    assert host == "127.0.0.1" and server.first_line.endswith(f" at http://127.0.0.1:{port}\n")


@pytest.mark.by_default("base64")
@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_openai_embeddings(
    client: openai.OpenAI, embedded: Vectors, peer_vectors: Vectors, encoding: Any
) -> None:
    reply = client.embeddings.create(
        model="minilm", input=TEXTS, encoding_format=encoding, extra_body=CUT
    )
    assert reply.object == "list" and reply.model == "minilm"
    assert [row.index for row in reply.data] == list(range(len(TEXTS)))
    assert {row.object for row in reply.data} == {"embedding"}
    vectors = [to_numbers(row.embedding) for row in reply.data]
    assert distance(vectors, embedded) < RUN
    assert distance(vectors, peer_vectors) < PEER
    assert reply.usage.prompt_tokens == reply.usage.total_tokens > len(TEXTS)


def to_numbers(embedding: Any) -> Any:
    """Return the numbers of an embedding, which may be in base64."""
    import base64

    if isinstance(embedding, str):
        return np.frombuffer(base64.b64decode(embedding), "<f4")
    return embedding


def test_openai_counts_the_tokens(client: openai.OpenAI) -> None:
    reply = client.embeddings.create(model="minilm", input="a cat")  # [CLS] a cat [SEP]
    assert reply.usage.prompt_tokens == 4 and reply.usage.total_tokens == 4


@pytest.mark.long
def test_openai_dimensions_are_cut_and_scaled(
    client: openai.OpenAI, models: Path, embedded: Vectors
) -> None:
    reply = client.embeddings.create(model="minilm", input=TEXTS, dimensions=32, extra_body=CUT)
    cut = embedded[:, :32]
    expected = cut / np.linalg.norm(cut, axis=1, keepdims=True)
    vectors = [row.embedding for row in reply.data]
    assert distance(vectors, expected) < RUN
    rows = run("embed", models / "minilm", "--dim", 32, texts=TEXTS)
    assert distance(vectors, [row["embedding"] for row in rows]) < RUN


@pytest.mark.long
def test_vectors_do_not_depend_on_what_shares_a_batch(
    client: openai.OpenAI, embedded: Vectors, peer_vectors: Vectors
) -> None:
    def embed(numbers: list[int]) -> list[list[float]]:
        texts = [TEXTS[number] for number in numbers]
        reply = client.embeddings.create(model="minilm", input=texts, extra_body=CUT)
        return [row.embedding for row in reply.data]

    rng = np.random.default_rng(0)
    requests = [rng.integers(0, len(TEXTS), rng.integers(1, 6)).tolist() for _ in range(48)]
    for numbers, vectors in zip(requests, at_once(embed, requests), strict=True):
        assert distance(vectors, embedded[numbers]) < RUN
        assert distance(vectors, peer_vectors[numbers]) < PEER


def test_openai_lists_the_models(client: openai.OpenAI) -> None:
    models = client.models.list().data
    assert [model.id for model in models][:2] == ["minilm", "prompted"]
    assert {model.object for model in models} == {"model"}
    assert client.models.retrieve("minilm").id == "minilm"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nothing")


@cache
def continuation(model: Path, prompt: str, count: int) -> str:
    """Return the greedy continuation that transformers generates."""
    import torch
    import transformers

    tokenizer = transformers.GPT2Tokenizer.from_pretrained(model)
    network = transformers.GPT2LMHeadModel.from_pretrained(model).eval()
    ids = tokenizer(prompt, return_tensors="pt").input_ids
    with torch.inference_mode():
        output = network.generate(
            ids, max_new_tokens=count, do_sample=False, pad_token_id=0, eos_token_id=0
        )
    text: str = tokenizer.decode(output[0, ids.shape[1] :], skip_special_tokens=True)
    return text


def test_openai_completions(client: openai.OpenAI, models: Path) -> None:
    expected = continuation(models / "decoder", "The cat", 12)
    reply = client.completions.create(
        model="decoder", prompt="The cat", max_tokens=12, temperature=0
    )
    assert reply.object == "text_completion" and reply.model == "decoder"
    assert [choice.index for choice in reply.choices] == [0]
    assert reply.choices[0].text == expected
    assert reply.choices[0].finish_reason in ("length", "stop")
    assert reply.usage is not None and reply.usage.completion_tokens <= 12
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens


def test_openai_completions_of_several_prompts(client: openai.OpenAI, models: Path) -> None:
    prompts = ["The cat", "On Thursday the committee"]
    reply = client.completions.create(model="decoder", prompt=prompts, max_tokens=6, temperature=0)
    texts = [choice.text for choice in sorted(reply.choices, key=lambda choice: choice.index)]
    assert texts == [continuation(models / "decoder", prompt, 6) for prompt in prompts]


def test_openai_completions_are_streamed(client: openai.OpenAI, models: Path) -> None:
    pieces = [
        chunk.choices[0].text
        for chunk in client.completions.create(
            model="decoder", prompt="The cat", max_tokens=12, temperature=0, stream=True
        )
        if chunk.choices
    ]
    assert "".join(pieces) == continuation(models / "decoder", "The cat", 12)
    assert len([piece for piece in pieces if piece]) > 1


def test_a_seed_repeats_a_sample(client: openai.OpenAI) -> None:
    def sample(seed: int) -> str:
        completion = client.completions.create(
            model="decoder", prompt="The", max_tokens=16, temperature=1.0, seed=seed
        )
        text: str = completion.choices[0].text
        return text

    first, again, other = at_once(sample, [1, 1, 2], 3)
    assert first == again and first != other


@pytest.mark.parametrize("path", ["", "/embed"])
def test_inference_client_embeds(
    server: Server, embedded: Vectors, peer_vectors: Vectors, path: str
) -> None:
    client = huggingface_hub.InferenceClient(model=f"{server.url}{path}", timeout=60)
    vectors = client.feature_extraction(TEXTS, truncate=True)
    assert distance(vectors, embedded) < RUN and distance(vectors, peer_vectors) < PEER
    one = client.feature_extraction(TEXTS[0])
    assert distance(one, embedded[:1]) < RUN


def test_inference_client_normalizes_and_has_prompts(server: Server, models: Path) -> None:
    from sentence_transformers import SentenceTransformer

    peer = SentenceTransformer(str(models / "prompted"), device="cpu")
    for name, prompt in PROMPTS.items():
        body = {"inputs": LETTERS, "prompt_name": name, "model": "prompted"}
        reply = server.post("/embed", body)
        assert reply.status == 200
        expected = peer.encode(LETTERS, prompt_name=name)
        assert distance(reply.body, expected) < PEER
        rows = run("embed", models / "prompted", "--prompt", name, texts=LETTERS)
        assert distance(reply.body, [row["embedding"] for row in rows]) < RUN
        longer = server.post("/embed", {"inputs": [prompt + LETTERS[0]], "model": "prompted"})
        assert distance(longer.body, reply.body[:1]) < RUN


@pytest.mark.long
def test_langchain_embeds(server: Server, embedded: Vectors, peer_vectors: Vectors) -> None:
    from langchain_huggingface import HuggingFaceEndpointEmbeddings

    texts = TEXTS[:3]
    client = HuggingFaceEndpointEmbeddings(model=server.url, model_kwargs=CUT)
    vectors = client.embed_documents(texts)
    assert distance(vectors, embedded[:3]) < RUN
    assert distance(vectors, peer_vectors[:3]) < PEER
    assert distance(client.embed_query(texts[1]), embedded[1]) < RUN


def test_inference_client_classifies(guarded: Server, models: Path) -> None:
    import torch
    import transformers

    network = transformers.BertForSequenceClassification.from_pretrained(models / "classifier")
    tokenizer = transformers.BertTokenizerFast(str(models / "classifier" / "vocab.txt"))
    with torch.inference_mode():
        inputs = tokenizer(LETTERS, padding=True, return_tensors="pt")
        scores = network.eval()(**inputs).logits.softmax(-1)
    client = huggingface_hub.InferenceClient(model=guarded.url, token=KEY, timeout=60)
    for text, row in zip(LETTERS[:3], scores, strict=False):
        elements = client.text_classification(text)
        assert [element.label for element in elements] == [LABELS[k] for k in row.argsort().flip(0)]
        values = [element.score for element in elements]
        assert distance(values, row.sort(descending=True).values) < PEER


def test_predict_takes_pairs_and_batches(server: Server, models: Path) -> None:
    body = {"inputs": [["a b", "c d"], ["a b"]], "model": "classifier"}
    reply = server.post("/predict", body)
    assert reply.status == 200 and len(reply.body) == 2
    pair = server.post("/predict", {"inputs": ["a b", "c d"], "model": "classifier"})
    single = server.post("/predict", {"inputs": "a b", "model": "classifier"})
    assert by_label(pair.body) == pytest.approx(by_label(reply.body[0]), abs=RUN)
    assert by_label(single.body) == pytest.approx(by_label(reply.body[1]), abs=RUN)
    raw = server.post("/predict", {"inputs": "a b", "raw_scores": True, "model": "classifier"})
    logits = by_label(raw.body)
    total = sum(np.exp(value) for value in logits.values())
    softmax = {label: np.exp(value) / total for label, value in logits.items()}
    assert by_label(single.body) == pytest.approx(softmax, abs=RUN)


def by_label(predictions: list[dict[str, Any]]) -> dict[str, float]:
    """Return label -> score."""
    return {row["label"]: row["score"] for row in predictions}


@pytest.fixture(scope="module")
def pair_scores(models: Path) -> list[float]:
    """Scores of LETTERS for QUERY between 0 and 1, of sentence-transformers."""
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(str(models / "reranker"), device="cpu")
    scores: list[float] = model.predict([(QUERY, text) for text in LETTERS]).tolist()
    return scores


@pytest.fixture(scope="module")
def pair_logits(models: Path) -> list[float]:
    """Scores of LETTERS for QUERY before the activation, of sentence-transformers."""
    import torch
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(str(models / "reranker"), device="cpu")
    pairs = [(QUERY, text) for text in LETTERS]
    scores: list[float] = model.predict(pairs, activation_fn=torch.nn.Identity()).tolist()
    return scores


@pytest.mark.parametrize("raw", [False, True])
def test_rerank_scores_as_sentence_transformers_does(
    server: Server, pair_scores: list[float], pair_logits: list[float], raw: bool
) -> None:
    body = {"query": QUERY, "texts": LETTERS, "model": "reranker"}
    reply = server.post("/rerank", {**body, "raw_scores": raw, "return_text": True})
    assert reply.status == 200
    expected = pair_logits if raw else pair_scores
    order = sorted(range(len(LETTERS)), key=lambda k: -expected[k])
    assert [row["index"] for row in reply.body] == order
    assert [row["text"] for row in reply.body] == [LETTERS[k] for k in order]
    assert distance([row["score"] for row in reply.body], [expected[k] for k in order]) < PEER


def test_rerank_scores_as_zoo_run_does(server: Server, models: Path) -> None:
    rows = run("rerank", models / "reranker", "--query", QUERY, texts=LETTERS)
    scores = sorted((row["score"] for row in rows), reverse=True)
    reply = server.post("/rerank", {"query": QUERY, "texts": LETTERS, "model": "reranker"})
    assert distance([row["score"] for row in reply.body], scores) < RUN
    assert [row for row in reply.body if "text" in row] == []


def test_cohere_rerank(server: Server, pair_scores: list[float]) -> None:
    body = {"model": "reranker", "query": QUERY, "documents": LETTERS, "top_n": 3}
    reply = server.post("/v2/rerank", body)
    assert reply.status == 200 and isinstance(reply.body["id"], str)
    order = sorted(range(len(LETTERS)), key=lambda k: -pair_scores[k])[:3]
    assert [row["index"] for row in reply.body["results"]] == order
    scores = [row["relevance_score"] for row in reply.body["results"]]
    assert distance(scores, [pair_scores[k] for k in order]) < PEER


def test_embed_sparse_has_the_weights_of_sentence_transformers(
    server: Server, models: Path
) -> None:
    from sentence_transformers import SparseEncoder

    model = SparseEncoder(str(models / "sparse"), device="cpu")
    expected = model.encode(LETTERS).to_dense().numpy()
    reply = server.post("/embed_sparse", {"inputs": LETTERS, "model": "sparse"})
    assert reply.status == 200
    vectors = np.zeros(expected.shape)
    for row, weights in enumerate(reply.body):
        assert min(weight["value"] for weight in weights) > 0
        for weight in weights:
            vectors[row, weight["index"]] = weight["value"]
    assert distance(vectors, expected) < PEER


def test_embed_all_has_a_vector_for_each_token(server: Server, models: Path) -> None:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(models / "minilm"), device="cpu")
    texts = TEXTS[:2]
    reply = server.post("/embed_all", {"inputs": texts, "model": "minilm"})
    assert reply.status == 200
    expected = model.encode(texts, output_value="token_embeddings")
    for vectors, tokens in zip(reply.body, expected, strict=True):
        assert distance(vectors, tokens.numpy()) < PEER


def test_tokenize_has_the_offsets_of_the_tokenizer(server: Server, models: Path) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(models / "minilm" / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    texts = ["A cat sat on the mat.", "naïve 東京"]
    reply = server.post("/tokenize", {"inputs": texts, "model": "minilm"})
    assert reply.status == 200
    for tokens, encoding in zip(reply.body, tokenizer.encode_batch(texts), strict=True):
        assert [token["id"] for token in tokens] == encoding.ids
        special = [bool(flag) for flag in encoding.special_tokens_mask]
        assert [token["special"] for token in tokens] == special
        for token, span in zip(tokens, encoding.offsets, strict=True):
            if not token["special"]:
                assert (token["start"], token["stop"]) == span
    plain = {"inputs": texts[0], "add_special_tokens": False, "model": "minilm"}
    ids = [token["id"] for token in server.post("/tokenize", plain).body[0]]
    assert ids == tokenizer.encode(texts[0], add_special_tokens=False).ids


def test_info_says_what_is_served(server: Server) -> None:
    reply = server.get("/info")
    assert reply.status == 200
    assert reply.body["model_dtype"] == "float32" and reply.body["max_input_length"] == 256
    assert reply.body["model_type"] == {"embedding": {"pooling": "mean"}}


@pytest.mark.parametrize("path", ["/health", "/ready", "/metrics", "/openapi.json"])
def test_probes_answer(server: Server, path: str) -> None:
    assert server.get(path).status == 200


def test_openapi_describes_the_paths_that_exist(server: Server) -> None:
    description = server.get("/openapi.json").body
    assert description["openapi"].startswith("3.")
    names = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(description)))
    assert names and names <= description["components"]["schemas"].keys()
    paths = description["paths"]
    assert {"/v1/embeddings", "/rerank", "/v2/rerank", "/run/embed", "/run/answer"} <= paths.keys()
    for path, methods in paths.items():
        for method in methods:
            address = path.format(model="minilm")
            reply = server.get(address) if method == "get" else server.post(address, {"no": 1})
            assert reply.status == (200 if method == "get" else 400) or reply.status == 422, path


def test_run_answers_as_zoo_run_does(server: Server, models: Path) -> None:
    body = {"model": "classifier", "inputs": [{"text": text} for text in LETTERS]}
    reply = server.post("/run/classify", body)
    assert reply.status == 200, reply.body
    rows = run("classify", models / "classifier", texts=LETTERS)
    for result, row in zip(reply.body["results"], rows, strict=True):
        assert result["label"] == row["label"]
        assert result["score"] == pytest.approx(row["score"], abs=RUN)


def test_run_answers_with_passages(server: Server, models: Path) -> None:
    text = "One sentence. Another one. And a third."
    options = {"chunks": "sentences", "late_chunking": True}
    reply = server.post(
        "/run/embed", {"model": "minilm", "inputs": [text, "b"], "options": options}
    )
    assert reply.status == 200, reply.body
    rows = run("embed", models / "minilm", "--chunks", "sentences", "--late-chunking", texts=[text])
    results = reply.body["results"]
    assert [result["text"] for result in results] == [*(row["text"] for row in rows), "b"]
    for result, row in zip(results, rows, strict=False):
        assert (result["start"], result["end"]) == (row["start"], row["end"])
        assert distance(result["embedding"], row["embedding"]) < RUN


def test_curl_embeds(server: Server, embedded: Vectors) -> None:
    words = ["curl", "--silent", "--show-error", "--fail", f"{server.url}/v1/embeddings"]
    body = json.dumps({"model": "minilm", "input": TEXTS[0]})
    words += ["--header", "Content-Type: application/json", "--data", body]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    vector = json.loads(done.stdout)["data"][0]["embedding"]
    assert distance(vector, embedded[0]) < RUN
