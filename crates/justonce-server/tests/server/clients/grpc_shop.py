"""A shop that speaks gRPC, and its client, with the library as it comes: no messages are declared,
they are bytes.

serve          a shop on a free port: it prints its address, and a line for each payment
call TARGET    makes calls that it reads as JSON lines, and prints what comes back
cancel TARGET  makes one call, and cancels it when it reads another line
"""

import json
import os
import sys
import threading
from concurrent import futures

import grpc

PAY = "/shop.Payments/Pay"
# Nothing of the machine decides how they connect, and the host outlasts the port of a gateway.
OPTIONS = [("grpc.enable_http_proxy", 0), ("grpc.default_authority", "shop.test")]


def say(line):
    print(line, flush=True)


class Shop:
    def __init__(self):
        self.count = 0
        self.lock = threading.Lock()
        self.go = threading.Semaphore(0)

    def pay(self, message, context):
        metadata = dict(context.invocation_metadata())
        with self.lock:
            self.count += 1
            number = self.count
        attempt = metadata.get("idempotency-attempt", "none")
        say(f"paid {message.decode()} {metadata.get('idempotency-key', 'none')} {attempt}")
        context.send_initial_metadata((("x-number", str(number)),))
        context.set_trailing_metadata((("x-ledger", str(number)), ("x-seal-bin", b"\x00\xff\x07")))
        if message == b"die":
            os._exit(9)
        if message == b"wait":
            self.go.acquire()
        if message == b"declined":
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "100% declined: zu wenig – leider")
        return b"receipt %d \x00\xff" % number

    def handlers(self):
        return grpc.method_handlers_generic_handler(
            "shop.Payments",
            {
                "Pay": grpc.unary_unary_rpc_method_handler(self.pay),
                "Watch": grpc.unary_stream_rpc_method_handler(
                    lambda message, _: (b"%d" % number for number in range(int(message)))
                ),
                "Upload": grpc.stream_unary_rpc_method_handler(
                    lambda messages, _: b"%d" % sum(len(message) for message in messages)
                ),
                "Chat": grpc.stream_stream_rpc_method_handler(
                    lambda messages, _: (message.upper() for message in messages)
                ),
            },
        )


def serve():
    shop = Shop()
    server = grpc.server(futures.ThreadPoolExecutor(32), options=OPTIONS)
    server.add_generic_rpc_handlers((shop.handlers(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    say(f"127.0.0.1:{port}")
    for _ in sys.stdin:
        shop.go.release()


def lines(metadata):
    def text(value):
        return value.hex() if isinstance(value, bytes) else value

    return sorted([key, text(value)] for key, value in metadata or () if key != "date")


def result(call):
    """What a call of one message ended with."""
    try:
        message = call.result().hex()
    except grpc.RpcError:
        message = None
    return {
        "code": call.code().name,
        "details": call.details(),
        "message": message,
        "initial": lines(call.initial_metadata()),
        "trailing": lines(call.trailing_metadata()),
    }


def chat(channel):
    """Each message is sent only after the answer to the one before."""
    answers = []
    answered = threading.Semaphore(1)

    def messages():
        for number in range(20):
            answered.acquire()
            yield b"message %d" % number

    for answer in channel.stream_stream("/shop.Payments/Chat")(messages(), timeout=20):
        answers.append(answer.decode())
        answered.release()
    return answers


def make(channel, order):
    what = order.pop("what", "pay")
    if what == "pay":
        metadata = [(name, value) for name, value in order.get("metadata", [])]
        message, times = order["message"].encode(), order.get("times", 1)
        pay = channel.unary_unary(PAY)
        calls = [pay.future(message, timeout=20, metadata=metadata) for _ in range(times)]
        return [result(call) for call in calls]
    if what == "chat":
        return chat(channel)
    if what == "watch":
        return [it.decode() for it in channel.unary_stream("/shop.Payments/Watch")(b"30")]
    parts = (b"x" * 50_000 for _ in range(40))
    return channel.stream_unary("/shop.Payments/Upload")(parts, timeout=20).decode()


def main():
    if sys.argv[1] == "serve":
        return serve()
    with grpc.insecure_channel(sys.argv[2], OPTIONS) as channel:
        if sys.argv[1] == "call":
            for line in sys.stdin:
                say(json.dumps(make(channel, json.loads(line))))
        else:
            order = json.loads(sys.stdin.readline())
            metadata = [(name, value) for name, value in order["metadata"]]
            call = channel.unary_unary(PAY).future(order["message"].encode(), metadata=metadata)
            sys.stdin.readline()
            call.cancel()
            say("cancelled")


main()
