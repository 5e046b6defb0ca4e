"""tests/s3/rig.py - for tests that read and write buckets through a mount, written in Python.

A test is an executable dropped into tests/scenarios, tests/crash or tests/faults, like those in
bash (tests/lib.sh); it begins with

    #!/usr/bin/python3
    import os, sys
    sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)) + "/../s3")
    import rig

and finds rig.T, its private directory, and rig.FOREBAY. Whatever it leaves mounted or running is
tools/run-test's to end. cases() runs functions one after the other and says which one it is.
"""
import base64
import contextlib
import errno
import hashlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True
# pylint: disable=wrong-import-position
import s3
from radosgw import Radosgw, alive

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.environ.get("FB_SOURCE_DIR") or os.path.dirname(os.path.dirname(HERE))
BUILD = os.environ.get("FB_BUILD_DIR") or os.path.join(ROOT, "build/gcc")
FOREBAY = os.environ.get("FOREBAY") or os.path.join(BUILD, "src/cli/forebay")
T = os.environ.get("T", "")
if not T or os.environ.get("FOREBAY_RUNTIME_DIR") != T + "/run":
    # Started by hand: come back through the runner.
    RUNNER = os.path.join(ROOT, "tools/run-test")
    os.execv(RUNNER, [RUNNER, os.path.abspath(sys.argv[0]), *sys.argv[1:]])

LONG = bool(os.environ.get("FB_TEST_LONG"))  # also what takes minutes
LIMIT_S = 120  # of anything that takes a moment
SMALL = ["--memory", "128M", "--cache-size", "256M", "--segment-size", "4M", "--free-space-ratio",
         "0.01", "--metrics", "off"]


class Failure(Exception):
    """The test has failed: why."""


def expect(truth, *words):
    if not truth:
        raise Failure(" ".join(str(word) for word in words))


def equal(got, wanted, *words):
    expect(got == wanted, *words, f"got {got!r:.300}, expected {wanted!r:.300}")


def wait_until(seconds, question, *words):
    end = time.monotonic() + seconds
    while not question():
        expect(time.monotonic() < end, "waited in vain for", question.__name__, *words)
        time.sleep(0.02)


def raises(names, action, *args):
    """The action must fail, with an errno of these names."""
    try:
        action(*args)
    except OSError as error:
        got = errno.errorcode.get(error.errno, str(error.errno))
        expect(got in names.split(), f"{args!r:.300}: {got}, expected {names}")
        return got
    raise Failure(f"{args!r:.300}: succeeded, expected {names}")


@contextlib.contextmanager
def within(seconds, what):
    """Bounded time: generous, for the machine may be slow, but not for ever."""
    start = time.monotonic()
    yield
    spent = time.monotonic() - start
    expect(spent < seconds, f"{what} took {spent:.1f} s, more than {seconds}")


def read(path):
    with open(path, "rb") as f:
        return f.read()


def write(path, data, mode="wb"):
    with open(path, mode) as f:
        f.write(data)


def listing(path):
    return sorted(os.listdir(os.fsencode(path)))


def walk(top):
    """Relative path (bytes) -> bytes of a file, or None for a directory."""
    top = os.fsencode(top)
    found = {}
    for folder, folders, files in os.walk(top, onerror=fail_walk):
        for name in folders:
            found[os.path.relpath(os.path.join(folder, name), top)] = None
        for name in files:
            path = os.path.join(folder, name)
            found[os.path.relpath(path, top)] = read(path)
    return found


def fail_walk(error):
    raise error


def run(*command, env=None, ok=True, limit=LIMIT_S):
    """The command's result; it must succeed unless ok is False (and fail then)."""
    done = subprocess.run([os.fspath(word) for word in command], env=env, capture_output=True,
                          stdin=subprocess.DEVNULL, text=True, timeout=limit, check=False)
    if ok is not None:
        expect((done.returncode == 0) == ok, f"status {done.returncode}: {done.stdout[-500:]}"
               f"{done.stderr[-1500:]} ({' '.join(map(str, command))})")
    return done


# Mounts -----------------------------------------------------------------------------------------


def environment(server=None, **more):
    """Without anything of AWS that this machine may have, but for the server's keys."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    for name in ("http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "no_proxy", "NO_PROXY"):
        env.pop(name, None)
    env["HOME"] = T + "/home"
    os.makedirs(env["HOME"], exist_ok=True)
    env["AWS_EC2_METADATA_DISABLED"] = "true"
    if server:
        env.update(server.environment())
    env.update(more)
    return {name: value for name, value in env.items() if value is not None}


class Mount:
    """`forebay mount s3://...`, live when the constructor returns; its cache is kept by name."""

    def __init__(self, source, server, *flags, name="a", env=None, region="default"):
        self.name = name
        self.point = os.path.join(T, "mnt-" + name)
        self.cache = os.path.join(T, "cache-" + name)
        self.env = env or environment(server)
        with contextlib.suppress(FileExistsError):  # also a dead mount, which is no directory
            os.makedirs(self.point)
        self.command = [FOREBAY, "mount", source, self.point, "--endpoint-url", server.endpoint,
                        "--region", region, "--cache-dir", self.cache, *SMALL, *flags]
        self.said = run(*self.command, env=self.env).stderr
        self.pid = self.status()["pid"]

    def status(self):
        """Of the daemon whose cache directory is ours."""
        text = run(FOREBAY, "status", "--json", env=self.env).stdout
        for daemon in json.loads(text)["daemons"]:
            if self.cache in daemon["cache_dir"]:
                return daemon
        raise Failure(f"no daemon for {self.cache}: {text[:500]}")

    def path(self, *names):
        return os.path.join(self.point, *names)

    def log(self):
        with open(os.path.join(self.cache, "forebay.log"), encoding="utf-8",
                  errors="replace") as f:
            return f.read()

    def says(self, text):
        """Sooner or later, in the log."""
        wait_until(LIMIT_S, lambda: text in self.log(), text, "in the log")

    def evict(self):
        run(FOREBAY, "evict", self.point, env=self.env)

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        wait_until(LIMIT_S, self.gone)

    def gone(self):
        return not alive(self.pid)

    def mounted(self):
        with open("/proc/self/mounts", encoding="utf-8", errors="replace") as f:
            return any(line.split(" ")[1] == self.point for line in f)

    def stop(self, forget=True):
        """Unmounts; the daemon ends with it."""
        run(FOREBAY, "umount", self.point, env=self.env)
        wait_until(LIMIT_S, self.gone)
        if forget:
            shutil.rmtree(self.cache, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.stop()
            return
        # The next case wants to mount here, too.
        subprocess.run(["umount", "-l", self.point], stderr=subprocess.DEVNULL, check=False)
        if alive(self.pid):
            os.kill(self.pid, signal.SIGTERM)


def refused(source, server, *flags, name="refused", env=None, region="default"):
    """A mount that must fail: its sentence. Nothing may be left of it, in the end."""
    point = os.path.join(T, "mnt-" + name)
    cache = os.path.join(T, "cache-" + name)
    os.makedirs(point, exist_ok=True)
    done = run(FOREBAY, "mount", source, point, "--endpoint-url", server.endpoint, "--region",
               region, "--cache-dir", cache, *SMALL, *flags, env=env or environment(server),
               ok=False)
    said = done.stderr.strip()
    equal(len(said.split("\n")), 1, f"one sentence, not: {said}")
    expect(not os.path.ismount(point), "mounted all the same")
    wait_until(LIMIT_S, lambda: not os.listdir(T + "/run"), "the daemon's end")
    shutil.rmtree(cache, ignore_errors=True)
    return said


def peak(pid):
    """Bytes of memory that the process had at most."""
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as f:
        for line in f:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    raise Failure("no VmHWM")


def in_parallel(action, names):
    """All at once, as each mostly waits; all that went wrong is told."""
    wrong = []

    def one(name):
        try:
            action(name)
        except Exception as why:  # pylint: disable=broad-except
            wrong.append(f"{name}: {type(why).__name__}: {why}")

    threads = [threading.Thread(target=one, args=(name,), daemon=True) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect(not wrong, "\n  ".join(["", *wrong]))


# Servers ----------------------------------------------------------------------------------------


class Faulty:
    """The server of faulty.py, in a process of its own."""

    access_key = "AKFAULTY"
    secret_key = "SKFAULTY0123456789abcdefghijklmnopqrstuv"
    region = "default"

    def __init__(self, tls=None, host="127.0.0.1"):
        command = [sys.executable, os.path.join(HERE, "faulty.py"), "--host", host]
        if tls:
            command += ["--tls", *tls]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        text=True)
        self.port = int(self.process.stdout.readline().split()[1])
        self.scheme = "https" if tls else "http"
        self.host = "localhost" if tls else f"[{host}]" if ":" in host else host
        self.tls = tls
        self.connection = None

    @property
    def endpoint(self):
        return f"{self.scheme}://{self.host}:{self.port}"

    def environment(self):
        return {"AWS_ACCESS_KEY_ID": self.access_key, "AWS_SECRET_ACCESS_KEY": self.secret_key}

    def client(self):
        return s3.S3.of(self)

    def tell(self, what, body=None):
        if self.connection is None:
            if self.tls:
                import ssl  # pylint: disable=import-outside-toplevel
                self.connection = http.client.HTTPSConnection(
                    "localhost", self.port, timeout=LIMIT_S,
                    context=ssl.create_default_context(cafile=self.tls[0]))
            else:
                self.connection = http.client.HTTPConnection(self.host.strip("[]"), self.port,
                                                             timeout=LIMIT_S)
        self.connection.request("POST", "/-/" + what, body=json.dumps(body))
        answer = self.connection.getresponse()
        text = answer.read()
        equal(answer.status, 200, "the fault server:", text)
        return json.loads(text)

    def rules(self, *rules):
        """From now on these and no others."""
        self.tell("rules", rules)

    def counts(self):
        """How often each rule was used."""
        return self.tell("counts")

    def settings(self, **settings):
        self.tell("settings", settings)

    def requests(self, forget=True, **match):
        """Requests so far, or since they were last forgotten, whose fields have these values."""
        return [r for r in self.tell("log", forget)
                if all(r[name] == value for name, value in match.items())]

    def put(self, bucket, key, body, etag=None, **headers):
        """An object as some servers have them: another ETag, more headers."""
        self.tell("object", {"bucket": bucket, "key": key, "etag": etag, "headers": headers,
                             "body": base64.b64encode(body).decode()})

    def large(self, bucket, key, size, seed=1):
        self.tell("large", {"bucket": bucket, "key": key, "size": size, "seed": seed})

    def many(self, bucket, prefix, count, size=0):
        self.tell("many", {"bucket": bucket, "prefix": prefix, "count": count, "size": size})

    def stop(self):
        self.process.kill()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def authority(folder):
    """A certificate authority, and a server's certificate and key: paths of the three."""
    os.makedirs(folder)
    ca, ca_key = folder + "/ca.pem", folder + "/ca.key"
    cert, key, request = folder + "/server.pem", folder + "/server.key", folder + "/request"
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    run("openssl", "req", "-x509", *curve, "-keyout", ca_key, "-out", ca, "-days", "2", "-subj",
        "/CN=Test authority", "-addext", "basicConstraints=critical,CA:TRUE")
    run("openssl", "req", *curve, "-keyout", key, "-out", request, "-subj", "/CN=localhost")
    write(folder + "/names", b"subjectAltName=DNS:localhost,DNS:*.localhost,IP:127.0.0.1\n")
    run("openssl", "x509", "-req", "-in", request, "-CA", ca, "-CAkey", ca_key, "-out", cert,
        "-days", "2", "-CAcreateserial", "-extfile", folder + "/names")
    return ca, cert, key


@contextlib.contextmanager
def radosgw(**settings):
    """The server and a client of it."""
    with Radosgw(T + "/ceph", **settings) as server:
        yield server, s3.S3.of(server)


# Data -------------------------------------------------------------------------------------------


def noise(size, seed=0):
    """Bytes that are the same whenever they are asked for, and cheap."""
    block = hashlib.shake_256(str(seed).encode()).digest(min(size, 1 << 16))
    return (block * (size // max(1, len(block)) + 1))[:size]


def cases(*functions):
    """Runs them; one that fails fails the test, after the others have run."""
    failed = []
    wanted = sys.argv[1:]
    for function in functions:
        name = function.__name__
        if wanted and name not in wanted:
            continue
        start = time.monotonic()
        try:
            function()
            word = "ok"
        except Exception as why:  # pylint: disable=broad-except
            import traceback  # pylint: disable=import-outside-toplevel
            traceback.print_exc()
            word = f"FAILED: {type(why).__name__}: {why}"
            failed.append(name)
        print(f"{name}: {word} ({time.monotonic() - start:.1f} s)", flush=True)
    sys.exit(1 if failed else 0)
