# lowpass with its embedded model. Same pins as `make serve`; nothing is downloaded at run time.
FROM python:3.11-slim-bookworm AS build
WORKDIR /src
COPY requirements/runtime.txt requirements/
RUN python -m venv /opt/lowpass \
    && /opt/lowpass/bin/pip install --no-cache-dir --no-deps --require-hashes -r requirements/runtime.txt
COPY LICENSE README.md pyproject.toml ./
COPY router router
COPY adapters adapters
COPY local_serving local_serving
COPY policies policies
RUN /opt/lowpass/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM python:3.11-slim-bookworm
# llama.cpp computes with OpenMP.
RUN apt-get update && apt-get install --yes --no-install-recommends libgomp1 && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 lowpass \
    && install --directory --owner lowpass --mode 700 /var/lib/lowpass
COPY --from=build /opt/lowpass /opt/lowpass
ENV PATH=/opt/lowpass/bin:$PATH \
    LOWPASS_HOME=/var/lib/lowpass \
    LOWPASS_HOST=0.0.0.0 \
    LOWPASS_PORT=4100
USER lowpass
VOLUME /var/lib/lowpass
EXPOSE 4100
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:4100/health/live', timeout=2)"]
ENTRYPOINT ["lowpass"]
CMD ["serve"]
