"""tests/s3/service.py - what the fault-injecting server answers when it does not misbehave: as much
of S3 as a file system wants, signatures checked, and the instance metadata service."""
import base64
import binascii
import hashlib
import json
import re
import struct
import threading
import time
import urllib.parse
import uuid
import xml.etree.ElementTree
from email.utils import formatdate
from xml.sax.saxutils import escape

import s3
from store import Bucket, Object

SKEW_S = 900
GATE = "/gate/s3"  # what may stand before all paths, as behind a gateway
CODES = {
    301: "PermanentRedirect", 304: "NotModified", 400: "InvalidRequest", 403: "AccessDenied",
    404: "NoSuchKey", 405: "MethodNotAllowed", 412: "PreconditionFailed", 416: "InvalidRange",
    429: "TooManyRequests", 500: "InternalError", 501: "NotImplemented", 503: "SlowDown",
}
XML = {"content-type": "application/xml"}
TOP = '<?xml version="1.0" encoding="UTF-8"?>\n'


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
        self.forget = None  # a header that is not looked at
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
        if path.startswith(GATE + "/"):
            path = path[len(GATE):]
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


class Service:
    """Buckets, and who may use them."""

    def __init__(self):
        self.lock = threading.Lock()
        self.buckets = {}
        self.keys = {}  # access key -> secret, token, expired; none: all are let in
        self.region = None
        self.skew_s = 0
        self.metadata = None

    def bucket(self, name):
        with self.lock:
            found = self.buckets.get(name)
        if not found:
            raise Refused(404, "NoSuchBucket", "The specified bucket does not exist")
        return found

    def make_bucket(self, name):
        with self.lock:
            return self.buckets.setdefault(name, Bucket())

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
        if key.get("expired"):
            raise Refused(400, "ExpiredToken", "The provided token has expired.")
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
        request.headers.pop(request.forget, None)
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
            return self.list_uploads(request, bucket)
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

    def list_uploads(self, request, bucket):
        prefix = request.parameters.get("prefix", b"")
        with bucket.lock:
            text = "".join(
                f"<Upload><Key>{escape(key.decode(errors='replace'))}</Key><UploadId>{name}"
                f"</UploadId><Initiated>{bucket.begun[name]}</Initiated></Upload>"
                for name, (key, _) in bucket.uploads.items() if key.startswith(prefix))
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
        return Answer(206, headers | what.headers, size=end - start,
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
                raise Refused(412, "PreconditionFailed")
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
                bucket.begun[name] = Object(b"").modified
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
