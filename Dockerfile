# Echelon-JAX on an NVIDIA GPU. The CUDA libraries come with JAX's wheels, so that a plain Python image is enough; the host needs
# NVIDIA's driver and its container toolkit.
#
#   docker build -t echelon-jax .
#   docker run --gpus all -v "$PWD/runs:/game/runs" echelon-jax train --preset gpu
#
# `--build-arg EXTRA=` leaves CUDA out, for a machine without a GPU.
FROM python:3.13-slim
ARG EXTRA=[cuda]

WORKDIR /source
COPY pyproject.toml MANIFEST.in README.md CHANGELOG.md LICENSE NOTICE ./
COPY echelon_jax ./echelon_jax
RUN pip install --no-cache-dir ".${EXTRA}" && rm -rf /source

RUN useradd --create-home player && mkdir -p /game && chown player /game
USER player
WORKDIR /game
ENTRYPOINT ["echelon"]
CMD ["--help"]
