#!/usr/bin/python3
"""tests/s3/faulty.py - an S3 server that misbehaves as it is told.

    faulty.py [--host H] [--port N] [--tls CERTIFICATE KEY]    prints `port N`; serves until killed

It speaks as much S3 as a file system wants (GET with ranges and conditions, HEAD, ListObjectsV2,
PUT, COPY, multipart uploads, DELETE), in path style or as BUCKET.localhost, and the instance
metadata service; it is a proxy, too (CONNECT, and absolute addresses, which it answers itself).
Below /-/ a test (rig.Faulty) tells it what to hold and what to do wrong, and reads what it was
asked. A thread a connection, so that one that stalls stalls alone.

A rule is a JSON object. It applies to requests whose method, path (decoded, `/bucket/key`), query
and host match its regular expressions and that have the header `with`, after `skip` of them,
`times` times (for ever when it is not there), each time in so many as `one_in` says. What it does:

    status, code, headers, body   that answer, instead of the right one
    forget: NAME                  a header of the request is not looked at
    delay_s                       the answer comes later
    stall: N                      N bytes of the body, then nothing; -1: not even a head
    reset: N, close: N            N bytes of the body, then the connection ends badly, or well
    length: N                     Content-Length is off by N
    etag, range                   other values of ETag and Content-Range
    add: {NAME: VALUE}            more headers
    flip: N                       the byte at N of the body is another
    whole                         the range is not looked at
    chunked                       in chunks, without Content-Length
    rate: N                       bytes a second
    replace: TEXT                 the object has this body once the answer is on its way
"""
import argparse
import base64
import hashlib
import json
import os
import re
import select
import socket
import ssl
import struct
import sys
import threading
import time
from email.utils import formatdate

sys.dont_write_bytecode = True
# pylint: disable=wrong-import-position
from service import XML, Answer, Refused, Request, Service
from store import Object, Pattern, Row

HEAD_MAX = 1 << 16
CHUNK = 1 << 18
IDLE_S = 600


class Gone(Exception):
    """The connection is over."""


class Rules:
    """See the head of this file."""

    def __init__(self):
        self.lock = threading.Lock()
        self.rules = []

    def set(self, rules):
        with self.lock:
            self.rules = [dict(rule, seen=0, used=0) for rule in rules]

    def counts(self):
        with self.lock:
            return [rule["used"] for rule in self.rules]

    @staticmethod
    def matches(rule, request):
        return (re.fullmatch(rule.get("method", ".*"), request.method)
                and re.search(rule.get("path", ""), request.place)
                and re.search(rule.get("query", ""), request.query)
                and re.search(rule.get("host", ""), request.headers.get("host", ""))
                and ("with" not in rule or rule["with"] in request.headers)
                and ("signed" not in rule
                     or rule["signed"] == ("authorization" in request.headers)))

    def find(self, request):
        with self.lock:
            for rule in self.rules:
                if not self.matches(rule, request):
                    continue
                rule["seen"] += 1
                if rule["seen"] <= rule.get("skip", 0):
                    continue
                if rule["used"] >= rule.get("times", rule["used"] + 1):
                    continue
                if rule["seen"] % rule.get("one_in", 1):
                    continue
                rule["used"] += 1
                return dict(rule)
        return {}


class Server(Service):
    """Adds rules and the record of requests; one for all connections."""

    def __init__(self, host, port, tls):
        super().__init__()
        self.rules = Rules()
        self.log = []
        self.busy = 0
        self.tls = tls
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.listener = socket.create_server((host, port), family=family, backlog=512)

    def serve(self):
        while True:
            peer, _ = self.listener.accept()
            threading.Thread(target=Connection(self, peer).run, daemon=True).start()

    # What a test tells us ------------------------------------------------------------------------

    def told(self, request):
        what = request.path[len("/-/"):]
        body = json.loads(request.body) if request.body else None
        answer = getattr(self, "tell_" + what)(body)
        return Answer(headers={"content-type": "application/json"},
                      body=json.dumps(answer).encode())

    def tell_rules(self, rules):
        self.rules.set(rules)

    def tell_counts(self, _):
        return self.rules.counts()

    def tell_log(self, forget):
        with self.lock:
            log = list(self.log)
            if forget:
                self.log.clear()
            return log

    def tell_settings(self, settings):
        for name, value in settings.items():
            if name not in ("keys", "region", "skew_s", "metadata"):
                raise ValueError(name)
            setattr(self, name, value)

    def tell_object(self, what):
        self.make_bucket(what["bucket"]).put(what["key"].encode(), Object(
            base64.b64decode(what["body"]), etag=what["etag"], headers=what["headers"]))

    def tell_large(self, what):
        pattern = Pattern(what["seed"])
        etag = hashlib.md5(pattern.block).hexdigest() + f"-{what['seed']}"
        self.make_bucket(what["bucket"]).put(
            what["key"].encode(), Object(size=what["size"], pattern=pattern, etag=etag))

    def tell_many(self, what):
        bucket = self.make_bucket(what["bucket"])
        bucket.rows.append(Row(what["prefix"].encode(), what["count"], what["size"]))


class Connection:
    """One client, request by request."""

    def __init__(self, server, peer):
        self.server = server
        self.peer = peer
        self.pending = b""

    def run(self):
        try:
            self.peer.settimeout(IDLE_S)
            self.peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.server.tls:
                self.peer = self.server.tls.wrap_socket(self.peer, server_side=True)
            while self.one():
                pass
        except (Gone, OSError):
            pass
        finally:
            self.peer.close()

    def more(self):
        data = self.peer.recv(CHUNK)
        if not data:
            raise Gone
        return data

    def one(self):
        """Reads and answers one request; False when the connection is not to be used again."""
        while b"\r\n\r\n" not in self.pending:
            if len(self.pending) > HEAD_MAX:
                raise Gone
            self.pending += self.more()
        head, _, self.pending = self.pending.partition(b"\r\n\r\n")
        if head.startswith(b"CONNECT "):
            return self.tunnel(head)
        request = Request(head)
        self.read_body(request)
        if request.path.startswith("/-/"):
            self.send(request, self.server.told(request), {})
            return True
        record = request.record()
        with self.server.lock:
            self.server.busy += 1
            record["at_once"] = self.server.busy
            self.server.log.append(record)
        try:
            return self.answer(request, record)
        finally:
            with self.server.lock:
                self.server.busy -= 1

    def answer(self, request, record):
        rule = self.server.rules.find(request)
        if "delay_s" in rule:
            time.sleep(rule["delay_s"])
        request.forget = rule.get("forget")
        answer = self.right_answer(request) if "status" not in rule else self.wrong_answer(rule)
        record["status"] = answer.status
        if "replace" in rule:
            self.server.bucket(request.bucket).put(request.key, Object(rule["replace"].encode()))
        return self.send(request, answer, rule)

    def read_body(self, request):
        left = int(request.headers.get("content-length", "0"))
        if request.headers.get("expect", "").lower() == "100-continue":
            self.peer.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        parts = [self.pending[:left]]
        self.pending = self.pending[left:]
        left -= len(parts[0])
        while left > 0:
            data = self.more()
            parts.append(data[:left])
            self.pending = data[left:]
            left -= len(parts[-1])
        request.body = b"".join(parts)

    def right_answer(self, request):
        try:
            return self.server.answer(request)
        except Refused as refused:
            body = refused.body() if refused.status != 304 else b""
            return Answer(refused.status, {**XML, **refused.headers}, body)

    @staticmethod
    def wrong_answer(rule):
        status = rule["status"]
        body = rule.get("body")
        if body is None:
            body = Refused(status, rule.get("code"), fields=rule.get("fields", "")).body().decode()
        return Answer(status, {**XML, **rule.get("headers", {})}, body.encode())

    def send(self, request, answer, rule):
        headers = {"server": "faulty", "date": formatdate(self.server.now(), usegmt=True),
                   **answer.headers}
        size = answer.size
        if rule.get("whole") and answer.status == 206:
            whole = self.server.bucket(request.bucket).get(request.key)
            answer.status, answer.read, size = 200, whole.read, whole.size
            headers.pop("content-range", None)
        if "etag" in rule:
            headers["etag"] = rule["etag"]
        headers.update(rule.get("add", {}))
        if "range" in rule and "content-range" in headers:
            headers["content-range"] = rule["range"]
        if answer.status not in (204, 304):
            if rule.get("chunked"):
                headers["transfer-encoding"] = "chunked"
            else:
                headers["content-length"] = str(max(0, size + rule.get("length", 0)))
        if rule.get("stall", 0) < 0:
            self.hang()
        text = f"HTTP/1.1 {answer.status} Whatever\r\n"
        text += "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        cut = min((rule[name] for name in ("stall", "reset", "close") if name in rule),
                  default=None)
        if cut is not None and cut < 0:
            self.end(rule)
        self.peer.sendall(text.encode() + b"\r\n")
        if request.method != "HEAD":
            self.send_body(answer, size if cut is None else min(size, cut), rule)
        if cut is not None:
            self.end(rule)
        return rule.get("length", 0) == 0

    def send_body(self, answer, size, rule):
        piece = CHUNK * 4
        if rule.get("rate"):
            piece = max(1, rule["rate"] // 20)
        at = 0
        while at < size:
            end = min(size, at + piece)
            data = answer.read(at, end)
            if at <= rule.get("flip", -1) < end:
                data = bytearray(data)
                data[rule["flip"] - at] ^= 0x40
            if rule.get("chunked"):
                data = b"%x\r\n%b\r\n" % (len(data), data)
            self.peer.sendall(data)
            at = end
            if rule.get("rate"):
                time.sleep(0.05)
        if rule.get("chunked"):
            self.peer.sendall(b"0\r\n\r\n")

    def end(self, rule):
        if "stall" in rule:
            self.hang()
        if "reset" in rule:
            raw = self.peer
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise Gone

    def hang(self):
        """Until the other side gives up; what it still sends is of no interest."""
        while select.select([self.peer], [], [], IDLE_S)[0]:
            self.more()
        raise Gone

    def tunnel(self, head):
        """A proxy's CONNECT: bytes go through as they are."""
        request = Request(head.replace(b"CONNECT ", b"CONNECT /", 1))
        record = request.record()
        record["path"] = request.target[1:]
        with self.server.lock:
            self.server.log.append(record)
        host, _, port = request.target[1:].rpartition(":")
        with socket.create_connection((host, int(port)), timeout=30) as other:
            other.settimeout(IDLE_S)
            self.peer.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
            ends = {self.peer: other, other: self.peer}
            while True:
                for ready in select.select(list(ends), [], [], IDLE_S)[0] or ():
                    data = ready.recv(CHUNK)
                    if not data:
                        return False
                    ends[ready].sendall(data)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--tls", nargs=2, metavar=("CERTIFICATE", "KEY"))
    options = parser.parse_args()
    tls = None
    if options.tls:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(*options.tls)
    threading.stack_size(1 << 18)
    os.environ["TZ"] = "UTC"
    time.tzset()
    server = Server(options.host, options.port, tls)
    print("port", server.listener.getsockname()[1], flush=True)
    server.serve()


if __name__ == "__main__":
    main()
