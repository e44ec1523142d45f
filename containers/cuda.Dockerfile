# zoo on NVIDIA GPUs:   docker build -f containers/cuda.Dockerfile -t zoo:cuda .
#                       docker run --rm --gpus all -v "$PWD:/work" zoo:cuda pretrain bert
# The host needs the driver and the NVIDIA Container Toolkit; torch brings its CUDA libraries.
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
# torch.compile needs a C compiler; onnxruntime-gpu replaces the build for CPUs
# hadolint ignore=DL3008,DL3013
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/* \
    && pip install --no-cache-dir ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "$TORCH" \
    && pip install --no-cache-dir -c /wheels/constraints.txt /wheels/*.whl \
    && pip install --no-cache-dir --force-reinstall --no-deps onnxruntime-gpu \
    && rm -r /wheels \
    && useradd --create-home --uid 1000 zoo
USER 1000
ENV ZOO_HOME=/home/zoo/.local/share/zoo \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
WORKDIR /work
ENTRYPOINT ["zoo"]
