# The image of `classifier worker` and `classifier migrate`: the wheel in a virtual environment, and nothing else.
FROM python:3.13.14-slim-trixie AS build
ARG EXTRAS=local,serve
WORKDIR /source
RUN python -m venv /opt/classifier
COPY pyproject.toml constraints.txt README.md LICENSE worker.py cli.py ./
COPY classifier classifier
COPY activities activities
COPY workflows workflows
COPY service service
COPY commands commands
COPY embedded embedded
RUN /opt/classifier/bin/pip install --no-cache-dir --disable-pip-version-check \
    --constraint constraints.txt ".[${EXTRAS}]"

FROM python:3.13.14-slim-trixie
RUN useradd --uid 10001 --user-group --create-home --home-dir /var/lib/classifier --shell /usr/sbin/nologin classifier
COPY --from=build /opt/classifier /opt/classifier
ENV PATH=/opt/classifier/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    CLASSIFIER_HOME=/var/lib/classifier
# An app of your own goes here: the command line imports from its working directory.
WORKDIR /app
USER classifier
VOLUME /var/lib/classifier
STOPSIGNAL SIGTERM
ENTRYPOINT ["classifier"]
CMD ["worker"]
