"""Mounts for tools/demo and bench/run: each with a daemon, a cache and a runtime directory of its own.

Whatever a mount leaves behind lies in one folder, so that a run can clean up after itself whatever
happened to it, and no daemon of the user's is ever spoken to.
"""
import json
import os
import shutil
import signal
import subprocess
import time

STOP_S = 20


class Failed(Exception):
    """What went wrong, as a sentence."""


def forebay_binary():
    """The binary under test, from FOREBAY or the default build directory."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    path = os.path.abspath(os.environ.get("FOREBAY") or root + "/build/gcc/src/cli/forebay")
    if not os.access(path, os.X_OK):
        raise Failed(f"there is no program {path}; build it with `make`, or set FOREBAY")
    return path


def bench_program(name):
    """A program of bench/ from the build directory that the binary lies in (or FB_BUILD_DIR)."""
    build = os.environ.get("FB_BUILD_DIR")
    if not build:
        build = os.path.dirname(os.path.dirname(os.path.dirname(forebay_binary())))
    path = os.path.join(build, "bench", "bench_" + name)
    if not os.access(path, os.X_OK):
        raise Failed(f"there is no program {path}; build it with `make`")
    return path


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Mount:
    """`forebay mount SOURCE FOLDER/mnt ARGS...`, live when the constructor returns. `prefix`: words
    before the command."""

    def __init__(self, source, folder, *args, prefix=()):
        self.point = os.path.join(folder, "mnt")
        self.folder = folder
        self.pid = None
        self.env = {**os.environ, "FOREBAY_RUNTIME_DIR": os.path.join(folder, "run")}
        os.makedirs(self.point)
        os.makedirs(os.path.join(folder, "run"), mode=0o700)
        self.command = [*prefix, forebay_binary(), "mount", source, self.point]
        self.command += ["--cache-dir", os.path.join(folder, "cache"), "--metrics", "off", *args]
        try:
            self.run(self.command)
            self.pid = self.status()["pid"]
        except BaseException:
            self.stop()
            raise

    def run(self, command):
        done = subprocess.run(
            command, env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            check=False)
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip() or f"exit status {done.returncode}"
            raise Failed(f"{os.path.basename(command[0])} {command[1]}: {said}")
        return done.stdout

    def status(self):
        """Of the daemon behind this mount: the only one in its runtime directory."""
        daemons = json.loads(self.run([forebay_binary(), "status", "--json"]))["daemons"]
        if not daemons:
            raise Failed(f"the daemon behind {self.point} is gone")
        return daemons[0]

    def source_bytes(self):
        return self.status()["source_read_bytes"]

    def disk_bytes(self):
        """What the daemon has caused to be read from disks, the page cache aside."""
        with open(f"/proc/{self.pid}/io", encoding="ascii") as f:
            return int(dict(line.split(": ") for line in f)["read_bytes"])

    def mounted(self):
        with open("/proc/self/mounts", encoding="utf-8", errors="replace") as f:
            return any(line.split(" ")[1] == self.point for line in f)

    def restart(self):
        """Ends the daemon as a user does, and starts it again over the same cache."""
        self.run([forebay_binary(), "umount", self.point])
        until = time.monotonic() + STOP_S
        while alive(self.pid):
            if time.monotonic() > until:
                raise Failed(f"the daemon behind {self.point} does not end")
            time.sleep(0.02)
        self.run(self.command)
        self.pid = self.status()["pid"]

    def stop(self):
        """Unmounts and ends the daemon, by whatever works."""
        if not self.pid:
            try:
                self.pid = self.status()["pid"]
            except (Failed, ValueError, KeyError):
                pass  # there is none
        for command in (
                [forebay_binary(), "umount", self.point], ["fusermount3", "-u", self.point],
                ["fusermount3", "-uz", self.point]):
            if not self.mounted():
                break
            subprocess.run(command, env=self.env, stdin=subprocess.DEVNULL, timeout=STOP_S,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        for signum in (signal.SIGTERM, signal.SIGKILL):
            until = time.monotonic() + STOP_S / 2
            if self.pid and alive(self.pid):
                time.sleep(0.05)  # it ends by itself when its last mount goes
            while self.pid and alive(self.pid) and time.monotonic() < until:
                try:
                    os.kill(self.pid, signum)
                except ProcessLookupError:
                    break
                time.sleep(0.05)
        shutil.rmtree(self.folder, ignore_errors=True)


class BareMount:
    """`bench_bare SOURCE FOLDER/mnt`: what the kernel alone costs. Like a Mount, but no Forebay."""

    def __init__(self, source, folder):
        self.point = os.path.join(folder, "mnt")
        self.folder = folder
        os.makedirs(self.point)
        self.server = subprocess.Popen([bench_program("bare"), source, self.point],
                                       stdin=subprocess.DEVNULL)
        until = time.monotonic() + STOP_S
        while not os.path.ismount(self.point):
            if self.server.poll() is not None or time.monotonic() > until:
                self.stop()
                raise Failed(f"bench_bare does not mount {self.point}")
            time.sleep(0.02)

    def stop(self):
        self.server.terminate()
        try:
            self.server.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.server.kill()
            self.server.wait()
        if os.path.ismount(self.point):
            subprocess.run(["fusermount3", "-uz", self.point], stdin=subprocess.DEVNULL,
                           check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


class Mounts:
    """A working folder and its mounts; as a context manager it takes all of it away, last first."""

    def __init__(self, folder):
        self.folder = folder
        self.mounts = []

    def add(self, name, source, *args, prefix=()):
        mount = Mount(source, os.path.join(self.folder, name), *args, prefix=prefix)
        self.mounts.append(mount)
        return mount

    def hold(self, mount):
        """One that was made elsewhere."""
        self.mounts.append(mount)
        return mount

    def stop(self, mount):
        self.mounts.remove(mount)
        mount.stop()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(signum, signal.SIG_IGN)
        while self.mounts:
            self.mounts.pop().stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def die_cleanly():
    """TERM and HUP unwind the stack as INT does."""

    def leave(signum, _frame):
        raise SystemExit(128 + signum)

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGHUP, leave)
