"""An S3 server on this machine for tests, and one that misbehaves."""

import http.server
import threading
import urllib.request
from contextlib import contextmanager

import boto3
from moto.server import ThreadedMotoServer

from tpkd.remote_files import THREAD_NAME

BUCKET = "bucket"


@contextmanager
def object_store(monkeypatch, cache):
    """A client of a store with one bucket; s3:// leads there for fsspec, and copies go to `cache`."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        use_endpoint(monkeypatch, "http://{}:{}".format(*server.get_host_and_port()), cache)
        client = boto3.client("s3", region_name="us-east-1")
        # Every server of a process shows the same buckets, those of earlier tests too.
        urllib.request.urlopen(
            urllib.request.Request(f"{client.meta.endpoint_url}/moto-api/reset", method="POST")
        ).close()
        client.create_bucket(Bucket=BUCKET)
        yield client
    finally:
        server.stop()


def use_endpoint(monkeypatch, address, cache):
    monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("TPKD_CACHE", str(cache))


def upload(client, folder, prefix):
    """Put every file of a folder under a prefix."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            client.put_object(Bucket=BUCKET, Key=f"{prefix}/{path.relative_to(folder)}", Body=path.read_bytes())


@contextmanager
def bad_store(monkeypatch, cache, behaviour):
    """A store with one object `bucket/x` of 1,000 bytes that answers `behaviour(handler)` when it is read."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self):
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.send_header("ETag", '"tag"')
            self.send_header("Last-Modified", "Wed, 01 Jan 2025 00:00:00 GMT")
            self.end_headers()

        def do_GET(self):
            behaviour(self)

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.released = threading.Event()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        use_endpoint(monkeypatch, "http://{}:{}".format(*server.server_address), cache)
        yield
    finally:
        server.released.set()
        server.shutdown()
        server.server_close()
        for thread in threading.enumerate():  # clients that try again would draw random numbers in later tests
            if thread.name == THREAD_NAME:
                thread.join(timeout=120)


def stall(handler):
    """Say nothing until the test is over."""
    handler.server.released.wait(120)
