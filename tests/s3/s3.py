"""tests/s3/s3.py - a small S3 client for tests: what fills buckets, and checks what a mount wrote.

Signs by itself (AWS signature version 4) and knows nothing of Forebay, so that both cannot be wrong
in the same way. Keys are bytes or str; str is UTF-8.
"""
import concurrent.futures
import datetime
import hashlib
import hmac
import http.client
import threading
import urllib.parse
import xml.etree.ElementTree

TIMEOUT_S = 120
THREADS = 8
EMPTY = hashlib.sha256(b"").hexdigest()


class S3Error(Exception):
    """An answer that is none of those expected."""

    def __init__(self, status, code, text):
        super().__init__(f"{status} {code}: {text[:300]}")
        self.status = status
        self.code = code


def quote(text, safe="/"):
    """As the signature wants it: all but unreserved characters, in upper-case hex."""
    raw = text.encode() if isinstance(text, str) else bytes(text)
    return urllib.parse.quote(raw, safe=safe + "-_.~")


def query_of(parameters):
    """Sorted and encoded, as it is sent and as it is signed."""
    pairs = [(quote(name, ""), quote(str(value) if isinstance(value, int) else value, ""))
             for name, value in parameters.items()]
    return "&".join(f"{name}={value}" for name, value in sorted(pairs))


def signature(secret, method, path, query, headers, signed, stamp, scope):
    """Of a request whose path and query are encoded already; `signed` are the names, sorted."""
    lines = [method, path, query]
    lines += [f"{name}:{' '.join(headers[name].split())}" for name in signed]
    lines += ["", ";".join(signed), headers["x-amz-content-sha256"]]
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    key = b"AWS4" + secret.encode()
    for word in scope.split("/"):
        key = hmac.new(key, word.encode(), hashlib.sha256).digest()
    text = "\n".join(("AWS4-HMAC-SHA256", stamp, scope, digest))
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def local(tag):
    return tag.rpartition("}")[2]


def fields(node):
    return {local(child.tag): child.text or "" for child in node}


class S3:
    """A client of one endpoint; any number of threads may use it."""

    def __init__(self, endpoint, access_key, secret_key, region="default"):
        self.host = urllib.parse.urlsplit(endpoint).netloc
        self.access_key = access_key
        self.secret_key = secret_key
        self.region = region
        self.local = threading.local()

    @classmethod
    def of(cls, server):
        return cls(server.endpoint, server.access_key, server.secret_key, server.region)

    def sign(self, method, path, query, headers):
        stamp = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        headers["x-amz-date"] = stamp
        scope = f"{stamp[:8]}/{self.region}/s3/aws4_request"
        signed = sorted(headers)
        value = signature(self.secret_key, method, path, query, headers, signed, stamp, scope)
        headers["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self.access_key}/{scope}, "
            f"SignedHeaders={';'.join(signed)}, Signature={value}")

    def connection(self):
        if not getattr(self.local, "connection", None):
            self.local.connection = http.client.HTTPConnection(self.host, timeout=TIMEOUT_S)
        return self.local.connection

    def request(self, method, bucket, key=b"", body=b"", parameters=None, headers=None):
        """Status, headers and body, whatever the status is."""
        path = "/" + quote(bucket)
        if key:
            path += "/" + quote(key)
        query = query_of(parameters or {})
        headers = {name.lower(): value for name, value in (headers or {}).items()}
        headers["host"] = self.host
        headers["x-amz-content-sha256"] = hashlib.sha256(body).hexdigest() if body else EMPTY
        self.sign(method, path, query, headers)
        headers["content-length"] = str(len(body))
        target = path + ("?" + query if query else "")
        for left in (1, 0):
            connection = self.connection()
            try:
                connection.request(method, target, body=body or None, headers=headers)
                answer = connection.getresponse()
                return answer.status, dict((k.lower(), v) for k, v in answer.getheaders()), (
                    answer.read())
            except (OSError, http.client.HTTPException):
                # A connection kept from before may be closed; a new one is not.
                connection.close()
                self.local.connection = None
                if not left:
                    raise
        raise AssertionError

    def expect(self, expected, method, bucket, key=b"", **more):
        status, headers, body = self.request(method, bucket, key, **more)
        if status not in expected:
            code = ""
            if body.startswith(b"<?xml") or body.startswith(b"<Error"):
                code = fields(xml.etree.ElementTree.fromstring(body)).get("Code", "")
            raise S3Error(status, code, body.decode(errors="replace"))
        return headers, body

    def make_bucket(self, bucket):
        self.expect((200,), "PUT", bucket)

    def put(self, bucket, key, body, **headers):
        """The ETag, without quotes."""
        answer, _ = self.expect((200,), "PUT", bucket, key, body=body,
                                headers={k.replace("_", "-"): v for k, v in headers.items()})
        return answer["etag"].strip('"')

    def put_all(self, bucket, objects):
        """Many, in parallel; `objects` are pairs of key and body."""
        with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
            for _ in pool.map(lambda pair: self.put(bucket, *pair), objects):
                pass

    def get(self, bucket, key):
        return self.expect((200,), "GET", bucket, key)[1]

    def head(self, bucket, key):
        """Headers, or None where there is no such object."""
        status, headers, _ = self.request("HEAD", bucket, key)
        if status == 404:
            return None
        if status != 200:
            raise S3Error(status, "", "HEAD")
        return headers

    def delete(self, bucket, key):
        self.expect((200, 204), "DELETE", bucket, key)

    def list(self, bucket, prefix=""):
        """Key (bytes) -> (size, ETag)."""
        found = {}
        parameters = {"list-type": 2, "prefix": prefix, "encoding-type": "url"}
        while True:
            _, body = self.expect((200,), "GET", bucket, parameters=parameters)
            root = xml.etree.ElementTree.fromstring(body)
            for node in root:
                if local(node.tag) == "Contents":
                    entry = fields(node)
                    key = urllib.parse.unquote_to_bytes(entry["Key"].replace("+", " "))
                    found[key] = int(entry["Size"]), entry["ETag"].strip('"')
            top = fields(root)
            if top.get("IsTruncated") != "true":
                return found
            parameters["continuation-token"] = top["NextContinuationToken"]

    def uploads(self, bucket):
        """Multipart uploads that were begun and neither completed nor aborted: (key, id)."""
        _, body = self.expect((200,), "GET", bucket, parameters={"uploads": ""})
        root = xml.etree.ElementTree.fromstring(body)
        nodes = [fields(node) for node in root if local(node.tag) == "Upload"]
        return [(node["Key"], node["UploadId"]) for node in nodes]

    def parts(self, bucket, key, upload):
        """How many parts an upload has; None when it is no more."""
        status, _, body = self.request("GET", bucket, key, parameters={"uploadId": upload})
        if status == 404:
            return None
        root = xml.etree.ElementTree.fromstring(body)
        return sum(local(node.tag) == "Part" for node in root)

    def begin_upload(self, bucket, key):
        _, body = self.expect((200,), "POST", bucket, key, parameters={"uploads": ""})
        return fields(xml.etree.ElementTree.fromstring(body))["UploadId"]

    def put_parts(self, bucket, key, parts):
        """A multipart upload from its begin to its end; the ETag."""
        upload = self.begin_upload(bucket, key)
        text = "<CompleteMultipartUpload>"
        for number, part in enumerate(parts, 1):
            answer, _ = self.expect((200,), "PUT", bucket, key, body=part, parameters={
                "partNumber": number, "uploadId": upload})
            text += (f"<Part><PartNumber>{number}</PartNumber>"
                     f"<ETag>{answer['etag']}</ETag></Part>")
        text += "</CompleteMultipartUpload>"
        _, body = self.expect((200,), "POST", bucket, key, body=text.encode(),
                              parameters={"uploadId": upload})
        return fields(xml.etree.ElementTree.fromstring(body))["ETag"].strip('"')
