# The learner: starts with the trained model, learns from the stream, publishes. Build it in this folder, or with compose.
FROM python:@{python}-slim
RUN useradd --uid 10001 --create-home pbodl && install -d -o pbodl /var/cache/pbodl /runs
COPY packages /packages
RUN pip install --no-cache-dir -r /packages/trainer.txt /packages/@{wheel}
COPY --chown=10001 model /model
USER 10001
ENV PBODL_CACHE=/var/cache/pbodl PYTHONUNBUFFERED=1@{cpu}
# Compiles the kernels into the image, so that the first rows need not wait.
RUN pbodl warmup @{kind}
EXPOSE 9101
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9101/metrics', timeout=4)"]
# 0.0.0.0 is the inside of the container: who reaches it is decided by the ports of compose.yaml, or by the network policies.
CMD ["pbodl", "online", "--source", "@{source}", "--start-from", "/model", "--out", "/runs/live", \
    "--publish", "/runs/live/published", "--metrics-host", "0.0.0.0", "--metrics-port", "9101"]
