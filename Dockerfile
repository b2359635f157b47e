# Every step is in exec form: neither the build nor the service needs a shell. tests/ops/test_dockerfile.py replays them.
ARG PYTHON=3.13-slim-bookworm

FROM python:${PYTHON} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy UV_NO_CACHE=1
WORKDIR /src
COPY requirements/ requirements/
RUN ["python", "-m", "pip", "install", "--require-hashes", "--only-binary=:all:", "--requirement=requirements/build.txt"]
RUN ["python", "-m", "venv", "--without-pip", "/opt/webhookd"]
RUN ["uv", "pip", "install", "--python=/opt/webhookd/bin/python", "--require-hashes", "--only-binary=:all:", "--requirement=requirements/image.txt"]
COPY LICENSE README.md pyproject.toml ./
COPY service/ service/
RUN ["python", "-m", "pip", "wheel", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir=/wheels", "."]
RUN ["uv", "pip", "install", "--python=/opt/webhookd/bin/python", "--no-deps", "--no-index", "--find-links=/wheels", "webhookd"]

FROM python:${PYTHON}
ARG VERSION=0.1.0
ARG REVISION=unknown
ARG CREATED=1970-01-01T00:00:00Z
LABEL org.opencontainers.image.title="webhookd" \
      org.opencontainers.image.description="Tells the systems that start jobs, by signed webhook, when the jobs and their batches have finished" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"
COPY --from=build /opt/webhookd /opt/webhookd
# An image without trusted certificate authorities is none: every delivery would fail.
RUN ["/opt/webhookd/bin/python", "-c", "from service.sender.tls import build_tls_context; build_tls_context()"]
# The user needs no entry in /etc/passwd, and so no home directory.
ENV PATH=/opt/webhookd/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    WEBHOOKD_DATA_DIR=/var/lib/webhookd
USER 10001:10001
EXPOSE 8080 9090
STOPSIGNAL SIGTERM
ENTRYPOINT ["/opt/webhookd/bin/webhookd"]
CMD ["serve"]
