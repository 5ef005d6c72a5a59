"""A server of Python's standard library that soon closes connections on which nothing is asked.

It writes a line for each effect, and for each connection when it begins and when it has ended.
"""

import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def tell(line):
    # In one piece, whichever thread it comes from.
    os.write(1, (line + "\n").encode())


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # In seconds, for everything that a connection waits for.
    timeout = 0.2

    def setup(self):
        super().setup()
        tell("opened")

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        key = self.headers["Idempotency-Key"]
        tell("effect " + key)
        self.send_response(201)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def finish(self):
        super().finish()
        self.connection.close()
        tell("closed")

    def log_message(self, *args):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
