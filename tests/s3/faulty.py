#!/usr/bin/python3
"""tests/s3/faulty.py - an S3 server that misbehaves as it is told.

    faulty.py [--port N] [--tls CERTIFICATE KEY]    prints `port N` and serves until it is killed

It speaks as much S3 as a file system wants (GET with ranges and conditions, HEAD, ListObjectsV2,
PUT, COPY, multipart uploads, DELETE), in path style or as BUCKET.localhost, and the instance
metadata service; it is a proxy, too (CONNECT, and absolute addresses, which it answers itself).
Below /-/ a test (rig.Faulty) tells it what to hold and what to do wrong, and reads what it was
asked. A thread a connection, so that one that stalls stalls alone.

A rule is a JSON object. It applies to requests whose method, path (decoded, `/bucket/key`) and
query match its regular expressions, after `skip` of them, `times` times (for ever when it is not
there), each time in so many as `one_in` says. What it does:

    status, code, headers, body   that answer, instead of the right one
    delay_s                       the answer comes later
    stall: N                      N bytes of the body, then nothing; -1: not even a head
    reset: N, close: N            N bytes of the body, then the connection ends badly, or well
    length: N                     Content-Length is off by N
    etag, range                   other values of ETag and Content-Range
    flip: N                       the byte at N of the body is another
    whole                         the range is not looked at
    rate: N                       bytes a second
    replace: TEXT                 the object has this body once the answer is on its way
"""
import argparse
import base64
import binascii
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
import urllib.parse
import uuid
import xml.etree.ElementTree
from email.utils import formatdate
from xml.sax.saxutils import escape

sys.dont_write_bytecode = True
# pylint: disable=wrong-import-position
import s3
from store import Bucket, Object, Pattern, Row

HEAD_MAX = 1 << 16
CHUNK = 1 << 18
IDLE_S = 600
SKEW_S = 900
CODES = {
    301: "PermanentRedirect", 304: "NotModified", 400: "InvalidRequest", 403: "AccessDenied",
    404: "NoSuchKey", 405: "MethodNotAllowed", 412: "PreconditionFailed", 416: "InvalidRange",
    429: "TooManyRequests", 500: "InternalError", 501: "NotImplemented", 503: "SlowDown",
}
XML = {"content-type": "application/xml"}
TOP = '<?xml version="1.0" encoding="UTF-8"?>\n'


class Gone(Exception):
    """The connection is over."""


class Refused(Exception):
    """An answer other than success."""

    def __init__(self, status, code=None, message="", headers=None, fields=""):
        super().__init__(code)
        self.status = status
        self.code = code or CODES.get(status, "Error")
        self.message = message
        self.headers = headers or {}
        self.fields = fields

    def body(self):
        return (f"{TOP}<Error><Code>{self.code}</Code><Message>{escape(self.message)}</Message>"
                f"{self.fields}<RequestId>1</RequestId></Error>").encode()


class Request:
    """What came in."""

    def __init__(self, head):
        lines = head.decode("latin-1").split("\r\n")
        self.method, self.target, _ = lines[0].split(" ", 2)
        self.head = head.decode("latin-1")
        self.headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            self.headers[name.strip().lower()] = value.strip()
        self.proxied = "://" in self.target
        if self.proxied:
            parts = urllib.parse.urlsplit(self.target)
            self.target = parts.path + ("?" + parts.query if parts.query else "")
        self.path, _, self.query = self.target.partition("?")
        self.parameters = {}
        for pair in self.query.split("&") if self.query else ():
            name, _, value = pair.partition("=")
            self.parameters[urllib.parse.unquote(name)] = urllib.parse.unquote_to_bytes(value)
        host = self.headers.get("host", "").partition(":")[0]
        self.bucket_host = host.endswith(".localhost")
        path = self.path
        if self.bucket_host:
            path = "/" + host[:-len(".localhost")] + path
        bucket, _, key = path[1:].partition("/")
        self.bucket = urllib.parse.unquote(bucket)
        self.key = urllib.parse.unquote_to_bytes(key)
        self.place = f"/{self.bucket}/{self.key.decode(errors='surrogateescape')}"
        self.body = b""

    def parameter(self, name, default=""):
        return self.parameters.get(name, default.encode()).decode()

    def record(self):
        return {
            "method": self.method, "path": self.place, "query": self.query,
            "range": self.headers.get("range"), "if_match": self.headers.get("if-match"),
            "signed": "authorization" in self.headers, "agent": self.headers.get("user-agent"),
            "host": self.headers.get("host"), "proxied": self.proxied, "head": self.head,
            "bytes": len(self.body), "time": time.time(),
        }


class Answer:
    """What goes out; the body is given piece by piece."""

    def __init__(self, status=200, headers=None, body=b"", size=None, read=None):
        self.status = status
        self.headers = headers or {}
        self.size = len(body) if size is None else size
        self.read = read or (lambda start, end: body[start:end])
        self.replaces = None


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


class Server:
    """Buckets, rules and the record of requests; one for all connections."""

    def __init__(self, port, tls):
        self.lock = threading.Lock()
        self.buckets = {}
        self.rules = Rules()
        self.log = []
        self.keys = {}  # access key -> {"secret": ..., "token": ...}; none: all are let in
        self.region = None
        self.skew_s = 0
        self.metadata = None
        self.tls = tls
        self.listener = socket.create_server(("127.0.0.1", port), backlog=512)

    def serve(self):
        while True:
            peer, _ = self.listener.accept()
            threading.Thread(target=Connection(self, peer).run, daemon=True).start()

    def bucket(self, name):
        with self.lock:
            found = self.buckets.get(name)
        if not found:
            raise Refused(404, "NoSuchBucket", "The specified bucket does not exist")
        return found

    def make_bucket(self, name):
        with self.lock:
            return self.buckets.setdefault(name, Bucket())

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

    def tell_large(self, what):
        pattern = Pattern(what["seed"])
        etag = hashlib.md5(pattern.block).hexdigest() + f"-{what['seed']}"
        self.make_bucket(what["bucket"]).put(
            what["key"].encode(), Object(size=what["size"], pattern=pattern, etag=etag))

    def tell_many(self, what):
        bucket = self.make_bucket(what["bucket"])
        bucket.rows.append(Row(what["prefix"].encode(), what["count"], what["size"]))

    # Who may ask ---------------------------------------------------------------------------------

    def check_signature(self, request):
        given = request.headers.get("authorization", "")
        if not given:
            if self.keys:
                raise Refused(403, "AccessDenied", "Access Denied")
            return
        found = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d+/([^/]+)/s3/aws4_request), "
                             r"?SignedHeaders=([^,]+), ?Signature=([0-9a-f]{64})", given)
        if not found:
            raise Refused(400, "AuthorizationHeaderMalformed", given)
        name, scope, region, signed, value = found.groups()
        if self.region and region != self.region:
            raise Refused(400, "AuthorizationHeaderMalformed",
                          f"the region '{region}' is wrong; expecting '{self.region}'",
                          {"x-amz-bucket-region": self.region},
                          f"<Region>{self.region}</Region>")
        stamp = request.headers.get("x-amz-date", "")
        self.check_time(stamp)
        if not self.keys:
            return
        if name not in self.keys:
            raise Refused(403, "InvalidAccessKeyId", "The key id does not exist")
        key = self.keys[name]
        if request.headers.get("x-amz-security-token") != key.get("token"):
            raise Refused(400, "InvalidToken", "The provided token is malformed")
        names = signed.split(";")
        must = {"host", "x-amz-content-sha256", "x-amz-date"}
        must |= {n for n in request.headers if n.startswith("x-amz-")}
        path = request.path or "/"
        query = "&".join(sorted(request.query.split("&"))) if request.query else ""
        right = must <= set(names) and s3.signature(
            key["secret"], request.method, path, query,
            {n: request.headers.get(n, "") for n in names} | {
                "x-amz-content-sha256": request.headers.get("x-amz-content-sha256", "")},
            names, stamp, scope) == value
        if not right:
            raise Refused(403, "SignatureDoesNotMatch", "The signature does not match")

    def check_time(self, stamp):
        try:
            when = time.mktime(time.strptime(stamp, "%Y%m%dT%H%M%SZ")) - time.timezone
        except ValueError as error:
            raise Refused(403, "AccessDenied", "no date") from error
        if abs(when - self.now()) > SKEW_S:
            server = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.now()))
            raise Refused(403, "RequestTimeTooSkewed", "The difference between the request time "
                          "and the current time is too large.",
                          fields=f"<ServerTime>{server}</ServerTime>")

    def now(self):
        return time.time() + self.skew_s

    def check_body(self, request):
        claimed = request.headers.get("x-amz-content-sha256", "UNSIGNED-PAYLOAD")
        if len(claimed) == 64 and hashlib.sha256(request.body).hexdigest() != claimed:
            raise Refused(400, "XAmzContentSHA256Mismatch", claimed)
        md5 = request.headers.get("content-md5")
        if md5 and base64.b64encode(hashlib.md5(request.body).digest()).decode() != md5:
            raise Refused(400, "BadDigest", md5)
        claimed = request.headers.get("x-amz-checksum-crc32")
        crc = base64.b64encode(struct.pack(">I", binascii.crc32(request.body))).decode()
        if claimed and claimed != crc:
            raise Refused(400, "BadDigest", claimed)

    # S3 ------------------------------------------------------------------------------------------

    def answer(self, request):
        if request.path.startswith("/latest/"):
            return self.instance(request)
        self.check_signature(request)
        self.check_body(request)
        if not request.key:
            return self.on_bucket(request)
        bucket = self.bucket(request.bucket)
        handler = getattr(self, "on_" + request.method.lower(), None)
        if not handler:
            raise Refused(405)
        return handler(request, bucket)

    def on_bucket(self, request):
        if request.method == "PUT":
            self.make_bucket(request.bucket)
            return Answer()
        bucket = self.bucket(request.bucket)
        region = {"x-amz-bucket-region": self.region or "default"}
        if request.method == "HEAD":
            return Answer(headers=region)
        if request.method == "GET" and "location" in request.parameters:
            return xml_answer(f"<LocationConstraint>{self.region or ''}</LocationConstraint>")
        if request.method == "GET" and "uploads" in request.parameters:
            return self.list_uploads(bucket)
        if request.method == "GET":
            return self.list(request, bucket, region)
        if request.method == "POST" and "delete" in request.parameters:
            return self.delete_many(request, bucket)
        raise Refused(501)

    def list(self, request, bucket, headers):
        prefix = request.parameters.get("prefix", b"")
        delimiter = request.parameters.get("delimiter", b"")
        most = min(1000, int(request.parameter("max-keys", "1000")))
        after = request.parameters.get("start-after", b"")
        if "continuation-token" in request.parameters:
            after = base64.urlsafe_b64decode(request.parameters["continuation-token"])
        encoded = request.parameter("encoding-type") == "url"

        def name(raw):
            if encoded:
                return urllib.parse.quote(raw, safe="/-_.~")
            return escape(raw.decode(errors="replace"))

        found, more = bucket.list(prefix, delimiter, after, most)
        lines = []
        for key, what in found:
            if what is None:
                lines.append(f"<CommonPrefixes><Prefix>{name(key)}</Prefix></CommonPrefixes>")
            else:
                lines.append(
                    f"<Contents><Key>{name(key)}</Key><LastModified>{what.modified}"
                    f"</LastModified><ETag>&quot;{what.etag}&quot;</ETag><Size>{what.size}</Size>"
                    "<StorageClass>STANDARD</StorageClass></Contents>")
        if more:
            token = base64.urlsafe_b64encode(found[-1][0]).decode()
            lines.append(f"<NextContinuationToken>{token}</NextContinuationToken>")
        top = (f"<Name>{request.bucket}</Name><Prefix>{name(prefix)}</Prefix>"
               f"<MaxKeys>{most}</MaxKeys><KeyCount>{len(found)}</KeyCount>"
               f"<IsTruncated>{str(more).lower()}</IsTruncated>")
        return xml_answer(f"<ListBucketResult>{top}{''.join(lines)}</ListBucketResult>", headers)

    def list_uploads(self, bucket):
        with bucket.lock:
            text = "".join(
                f"<Upload><Key>{escape(key.decode(errors='replace'))}</Key><UploadId>{name}"
                f"</UploadId></Upload>" for name, (key, _) in bucket.uploads.items())
        return xml_answer(f"<ListMultipartUploadsResult>{text}<IsTruncated>false</IsTruncated>"
                          "</ListMultipartUploadsResult>")

    def delete_many(self, request, bucket):
        for node in xml.etree.ElementTree.fromstring(request.body):
            if s3.local(node.tag) == "Object":
                bucket.delete(s3.fields(node)["Key"].encode())
        return xml_answer("<DeleteResult></DeleteResult>")

    def on_head(self, request, bucket):
        return self.on_get(request, bucket)

    def on_get(self, request, bucket):
        what = bucket.get(request.key)
        if not what:
            raise Refused(404, "NoSuchKey", "The specified key does not exist.")
        check_conditions(request, what)
        headers = {"etag": f'"{what.etag}"', "accept-ranges": "bytes",
                   "last-modified": formatdate(what.time, usegmt=True),
                   "content-type": "binary/octet-stream"}
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", request.headers.get("range", ""))
        if not asked or asked.groups() == ("", ""):
            return Answer(200, headers | what.headers, size=what.size, read=what.read)
        first, last = asked.groups()
        if first:
            start = int(first)
            end = min(int(last) + 1, what.size) if last else what.size
        else:
            start, end = max(0, what.size - int(last)), what.size
        if start >= end:
            raise Refused(416, headers={"content-range": f"bytes */{what.size}"})
        headers["content-range"] = f"bytes {start}-{end - 1}/{what.size}"
        return Answer(206, headers, size=end - start,
                      read=lambda a, b: what.read(start + a, start + b))

    def on_put(self, request, bucket):
        what = self.incoming(request)
        if "uploadId" in request.parameters:
            with bucket.lock:
                upload = self.upload(request, bucket)
                upload[1][int(request.parameter("partNumber"))] = what
        else:
            self.put_checked(request, bucket, what)
        if "x-amz-copy-source" in request.headers:
            return xml_answer(f"<CopyObjectResult><LastModified>{what.modified}</LastModified>"
                              f"<ETag>&quot;{what.etag}&quot;</ETag></CopyObjectResult>")
        return Answer(headers={"etag": f'"{what.etag}"'})

    def put_checked(self, request, bucket, what):
        with bucket.lock:
            old = bucket.get(request.key)
            if request.headers.get("if-none-match") == "*" and old:
                raise Refused(412)
            match = request.headers.get("if-match")
            if match and (not old or match.strip('"') != old.etag):
                raise Refused(412)
            bucket.put(request.key, what)

    def incoming(self, request):
        source = request.headers.get("x-amz-copy-source")
        kept = {n: v for n, v in request.headers.items() if n.startswith("x-amz-meta-")}
        if not source:
            return Object(request.body, headers=kept)
        name, _, key = urllib.parse.unquote_to_bytes(source).lstrip(b"/").partition(b"/")
        old = self.bucket(name.decode()).get(key)
        if not old:
            raise Refused(404, "NoSuchKey", "The copy's source does not exist.")
        match = request.headers.get("x-amz-copy-source-if-match")
        if match and match.strip('"') != old.etag:
            raise Refused(412)
        part = re.fullmatch(r"bytes=(\d+)-(\d+)",
                            request.headers.get("x-amz-copy-source-range", ""))
        if part:
            return Object(old.read(int(part[1]), int(part[2]) + 1), headers=kept)
        return Object(old.read(0, old.size), headers=kept or old.headers)

    def upload(self, request, bucket):
        found = bucket.uploads.get(request.parameter("uploadId"))
        if not found or found[0] != request.key:
            raise Refused(404, "NoSuchUpload", "The specified upload does not exist.")
        return found

    def on_post(self, request, bucket):
        if "uploads" in request.parameters:
            name = uuid.uuid4().hex
            with bucket.lock:
                bucket.uploads[name] = [request.key, {}]
            return xml_answer(
                f"<InitiateMultipartUploadResult><Bucket>{request.bucket}</Bucket><Key>"
                f"{escape(request.key.decode(errors='replace'))}</Key><UploadId>{name}</UploadId>"
                "</InitiateMultipartUploadResult>")
        with bucket.lock:
            key, parts = self.upload(request, bucket)
            wanted = [s3.fields(node) for node in xml.etree.ElementTree.fromstring(request.body)]
            numbers = [int(part["PartNumber"]) for part in wanted]
            if numbers != sorted(set(numbers)) or not numbers:
                raise Refused(400, "InvalidPartOrder")
            for part in wanted:
                had = parts.get(int(part["PartNumber"]))
                if not had or had.etag != part["ETag"].strip('"'):
                    raise Refused(400, "InvalidPart")
            body = b"".join(parts[number].body for number in numbers)
            digest = hashlib.md5(b"".join(bytes.fromhex(parts[n].etag) for n in numbers))
            what = Object(body, etag=f"{digest.hexdigest()}-{len(numbers)}")
            self.put_checked(request, bucket, what)
            del bucket.uploads[request.parameter("uploadId")]
        return xml_answer(f"<CompleteMultipartUploadResult><Key>"
                          f"{escape(key.decode(errors='replace'))}</Key><ETag>"
                          f"&quot;{what.etag}&quot;</ETag></CompleteMultipartUploadResult>")

    def on_delete(self, request, bucket):
        with bucket.lock:
            if "uploadId" in request.parameters:
                self.upload(request, bucket)
                del bucket.uploads[request.parameter("uploadId")]
            else:
                bucket.delete(request.key)
        return Answer(204)

    def instance(self, request):
        """Instance metadata, version 2: a token first, then the role, then its keys."""
        if not self.metadata:
            raise Refused(404)
        if request.method == "PUT" and request.path == "/latest/api/token":
            return Answer(body=b"metadata-token")
        if request.headers.get("x-aws-ec2-metadata-token") != "metadata-token":
            raise Refused(401)
        if request.path.rstrip("/").endswith("/security-credentials"):
            return Answer(body=b"training-role")
        return Answer(body=json.dumps(self.metadata).encode())


def xml_answer(text, headers=None):
    return Answer(200, {**XML, **(headers or {})}, (TOP + text).encode())


def check_conditions(request, what):
    match = request.headers.get("if-match")
    if match and match != "*" and match.strip('"') != what.etag:
        raise Refused(412)
    if request.headers.get("if-none-match", "").strip('"') == what.etag:
        raise Refused(304)


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
            self.server.log.append(record)
        rule = self.server.rules.find(request)
        if "delay_s" in rule:
            time.sleep(rule["delay_s"])
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
        if "range" in rule and "content-range" in headers:
            headers["content-range"] = rule["range"]
        if answer.status not in (204, 304):
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
            self.peer.sendall(data)
            at = end
            if rule.get("rate"):
                time.sleep(0.05)

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
    server = Server(options.port, tls)
    print("port", server.listener.getsockname()[1], flush=True)
    server.serve()


if __name__ == "__main__":
    main()
