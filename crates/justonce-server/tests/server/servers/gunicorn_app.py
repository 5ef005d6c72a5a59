"""An application for gunicorn that appends each effect to a file, and takes a moment for it."""

import os
import time

LEDGER = os.environ["LEDGER"]


def app(environ, start_response):
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    line = environ["HTTP_IDEMPOTENCY_KEY"] + "\n"
    with open(LEDGER, "ab", buffering=0) as ledger:
        ledger.write(line.encode())
    time.sleep(0.002)
    start_response("201 Created", [("Content-Type", "application/json")])
    # Without a length: gunicorn sends chunks.
    yield body[:4]
    yield body[4:]
