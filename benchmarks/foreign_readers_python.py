"""Runs exports by sentence-transformers and by the pipelines of optimum; see foreign_readers.py.

Reads a request from standard input, writes {"program: task": results}. This file runs in an
environment of its own, without zoo.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

CLASSES = {
    "fill-mask": "ORTModelForMaskedLM",
    "text-classification": "ORTModelForSequenceClassification",
    "token-classification": "ORTModelForTokenClassification",
    "question-answering": "ORTModelForQuestionAnswering",
    "text-generation": "ORTModelForCausalLM",
    "text2text-generation": "ORTModelForSeq2SeqLM",
}


def sentences(folder: str, texts: list[str]) -> Any:
    """Return the embeddings of sentence-transformers."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(folder, backend="onnx", device="cpu")
    return model.encode(texts).tolist()


def optimum(task: str, folder: str, request: dict[str, Any]) -> Any:
    """Return the results of a pipeline of optimum."""
    import optimum.onnxruntime
    from transformers import AutoTokenizer, pipeline

    kind = getattr(optimum.onnxruntime, CLASSES[task])
    model = kind.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    run = pipeline(task, model=model, tokenizer=tokenizer)
    return RESULTS[task](run, request["texts"], request)


def generated(run: Any, texts: list[str], request: dict[str, Any]) -> list[str]:
    """Return the texts that a pipeline generates greedily."""
    settings: dict[str, Any] = {"max_new_tokens": request["new_tokens"], "do_sample": False}
    settings["num_beams"] = 1  # one of the pipelines has another default
    if run.task == "text-generation":
        settings["return_full_text"] = False
    results = [run(text, **settings)[0]["generated_text"] for text in texts]
    return results


def masked(run: Any, texts: list[str], _: Any) -> list[Any]:
    """Return the five best tokens and their probabilities."""
    results = run(texts[0].replace("cold", "[MASK]"), top_k=5)
    return [[result["token_str"], result["score"]] for result in results]


def spans(run: Any, _: Any, request: dict[str, Any]) -> list[list[float]]:
    """Return the logits of starts and ends; pipelines differ in how they choose among them."""
    question = request["question"]
    inputs = run.tokenizer(question["question"], question["context"], return_tensors="pt")
    outputs = run.model(**inputs)
    return [outputs.start_logits[0].tolist(), outputs.end_logits[0].tolist()]


RESULTS: dict[str, Callable[[Any, list[str], Any], Any]] = {
    "fill-mask": masked,
    "text-classification": lambda run, texts, _: [
        {label["label"]: label["score"] for label in labels} for labels in run(texts, top_k=None)
    ],
    "token-classification": lambda run, texts, _: [
        [[token["entity"], float(token["score"])] for token in tokens]
        for tokens in run(texts, ignore_labels=[])
    ],
    "question-answering": spans,
    "text-generation": generated,
    "text2text-generation": generated,
}


def main() -> None:
    """Run all tasks; a failure is recorded in place of the results."""
    request = json.load(sys.stdin)
    results: dict[str, Any] = {}
    for task, folder in request["exports"].items():
        program = "sentence-transformers" if task == "feature-extraction" else "optimum"
        try:
            results[f"{program}: {task}"] = (
                sentences(folder, request["texts"])
                if task == "feature-extraction"
                else optimum(task, folder, request)
            )
        except Exception as error:
            first = (str(error).splitlines() or [""])[0]
            results[f"{program}: {task}"] = {"error": f"{type(error).__name__}: {first}"}
    print(json.dumps(results))


if __name__ == "__main__":
    main()
