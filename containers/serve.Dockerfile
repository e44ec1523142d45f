# A server of zoo on CPUs:   docker build -f containers/serve.Dockerfile -t zoo:serve .
#                            docker run --rm -p 8080:8080 -e ZOO_API_KEY \
#                              -v "$PWD/model:/models/model:ro" zoo:serve /models/model
# It needs a key, --api-key-file FILE or the variable ZOO_API_KEY, or --no-auth behind a proxy.
# Where pip's index has CUDA builds of torch only, name an index of CPU builds:
#                            --build-arg TORCH_INDEX=URL
FROM python:3.11-slim AS build
WORKDIR /source
COPY . .
# hadolint ignore=DL3013
RUN pip install --no-cache-dir build && python -m build --wheel --outdir /wheels

FROM python:3.11-slim
ARG TORCH=torch==2.13.0
ARG TORCH_INDEX=
COPY --from=build /wheels /wheels
COPY constraints.txt /wheels/
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# hadolint ignore=DL3013
RUN pip install --no-cache-dir ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "$TORCH" \
    && pip install --no-cache-dir -c /wheels/constraints.txt "$(ls /wheels/*.whl)[serve]" \
    && rm -r /wheels \
    && useradd --create-home --uid 1000 zoo
USER 1000
# models that are converted and downloads: mount a volume here to keep them
ENV ZOO_HOME=/home/zoo/.local/share/zoo
EXPOSE 8080
# curl is not in the image
HEALTHCHECK --interval=10s --timeout=5s --start-period=5m CMD ["python", "-c", \
    "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/health', timeout=4)"]
ENTRYPOINT ["zoo", "serve", "--host", "0.0.0.0", "--port", "8080"]
