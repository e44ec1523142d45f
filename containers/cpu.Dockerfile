# zoo on CPUs:   docker build -f containers/cpu.Dockerfile -t zoo:cpu .
#                docker run --rm -v "$PWD:/work" zoo:cpu run embed ./model "A text."
# Where pip's index has CUDA builds of torch only, name an index of CPU builds:
#                --build-arg TORCH_INDEX=URL
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
# hadolint ignore=DL3013
RUN pip install --no-cache-dir ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "$TORCH" \
    && pip install --no-cache-dir -c /wheels/constraints.txt /wheels/*.whl \
    && rm -r /wheels \
    && useradd --create-home --uid 1000 zoo
USER 1000
# models and downloads: mount a volume here to keep them
ENV ZOO_HOME=/home/zoo/.local/share/zoo
WORKDIR /work
ENTRYPOINT ["zoo"]
