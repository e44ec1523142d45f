"""A server of sentence-transformers behind Starlette, as a user writes it in an hour.

python -m benchmarks._sentence_transformers_server MODEL PORT
"""

import sys
import threading
from typing import Any

import uvicorn
from sentence_transformers import SentenceTransformer
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

model = SentenceTransformer(sys.argv[1], device="cpu")
lock = threading.Lock()


def encode(texts: list[str]) -> list[list[float]]:
    """Embed the texts of a request; one request after the other."""
    with lock:
        vectors: list[list[float]] = model.encode(texts, show_progress_bar=False).tolist()
    return vectors


async def embeddings(request: Request) -> JSONResponse:
    """Answer as OpenAI's API does."""
    body: dict[str, Any] = await request.json()
    texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
    vectors = await run_in_threadpool(encode, texts)
    rows = [{"object": "embedding", "index": k, "embedding": v} for k, v in enumerate(vectors)]
    return JSONResponse({"object": "list", "model": body["model"], "data": rows})


app = Starlette(routes=[Route("/v1/embeddings", embeddings, methods=["POST"])])
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="error")
