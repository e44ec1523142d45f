"""``zoo serve``: models behind HTTP.

Requests are records that ``msgspec`` checks (``endpoints/``, one file an interface). Their texts go
to the engine (``engine.py``), one thread that forms batches from all requests that wait
(``fair_queue.py``) and runs tasks of ``zoo run``. Starlette and uvicorn do the rest.
"""
