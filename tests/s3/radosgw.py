#!/usr/bin/python3
"""tests/s3/radosgw.py - a real S3 server for tests and benchmarks: Ceph's radosgw over an object
store in memory, with ports and a directory of its own.

    with Radosgw(folder) as server:         # up, and answering, when the block begins
        server.endpoint, server.access_key, server.secret_key, server.region

    radosgw.py start DIR [NAME=VALUE...]    # prints the endpoint; Ceph's own settings may follow
    radosgw.py lose DIR | back DIR          # the gateway alone dies and returns: the data stay
    radosgw.py stop DIR                     # all of it is killed, and DIR removed

The monitor and the store are as small as Ceph has them: one of each, no keys between them, no
replicas, decisions at once. Nothing is worth a clean stop (which takes five seconds), so the three
processes are killed, by the ids that they were started with.
"""
import contextlib
import http.client
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid

START_S = 120  # of each step; they take two seconds together on a quiet machine
PORTS = range(14000, 30000)  # below those that the kernel gives to clients
PORTS_A_SERVER = 24
TRIES = 3
PROGRAMS = ("ceph", "ceph-authtool", "ceph-mon", "ceph-osd", "monmaptool", "radosgw",
            "radosgw-admin")

# Without tcp_nodelay an answer's body waits until the client has confirmed its head: 40 ms for
# each GET below 64 KiB, whoever asks.
CONFIG = """\
[global]
fsid = {fsid}
mon_host = {monitor}
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
ms_mon_client_mode = crc
ms_bind_port_min = {osd_first}
ms_bind_port_max = {osd_last}
run_dir = {folder}/run
crash_dir = {folder}/run
admin_socket =
{quiet}
log_file = {folder}/log/$name.log
log_to_stderr = false
mon_cluster_log_file = {folder}/log/cluster.log
keyring = {folder}/keyring
mon_data = {folder}/mon
mon_data_avail_crit = 1
mon_allow_pool_size_one = true
paxos_propose_interval = 0.05
paxos_min_wait = 0.01
objecter_tick_interval = 0.2
osd_data = {folder}/osd
osd_objectstore = memstore
memstore_device_bytes = {store_bytes}
osd_crush_chooseleaf_type = 0
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 4
osd_pool_default_pgp_num = 4
osd_pool_default_pg_autoscale_mode = off
rgw_data = {folder}/rgw
rgw_dynamic_resharding = false
[client.rgw]
rgw_frontends = beast endpoint=127.0.0.1:{port} {also} tcp_nodelay=1
{extra}
"""


# Ceph keeps its last ten thousand lines of debugging in memory, ready for a crash; who wants speed
# switches that off, as its manuals advise.
QUIET = ("asok", "auth", "context", "crush", "filer", "finisher", "heartbeatmap", "lockdep", "mon",
         "monc", "ms", "none", "objclass", "objecter", "optracker", "osd", "perfcounter", "rados",
         "rgw", "rgw_sync", "throttle", "timer", "tp")


class Failed(Exception):
    """What went wrong, as a sentence."""


def free_ports():
    """The first of a row of ports that nobody listens on."""
    for _ in range(1000):
        first = random.choice(range(PORTS.start, PORTS.stop, PORTS_A_SERVER))
        try:
            for port in range(first, first + PORTS_A_SERVER):
                with socket.socket() as s:
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    s.bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
    raise Failed("there are no free ports for radosgw")


def alive(pid):
    """Whether any thread of a process is left. The first one may be dead long before the last, and
    until then the process's ports are taken."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
        if len(threads) > 1:
            return True
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
            return f.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class Radosgw:
    """See above. The folder is made, and must not be there before."""

    access_key = "AKTEST"
    secret_key = "SKTEST0123456789"
    region = "default"

    def __init__(self, folder, store_bytes=4 << 30, also=None, **settings):
        """`also`: another address of this machine's to answer at, at the same port."""
        self.folder = os.path.abspath(folder)
        self.config = os.path.join(self.folder, "ceph.conf")
        self.store_bytes = store_bytes
        self.also = also
        self.settings = settings
        self.port = None

    @classmethod
    def found(cls, folder):
        """One that was started by somebody else."""
        server = cls(folder)
        try:
            with open(server.path("port"), encoding="ascii") as f:
                server.port = int(f.read())
        except OSError as error:
            raise Failed(f"no radosgw was started in {folder}") from error
        return server

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.port}"

    def environment(self):
        """What a client of S3 wants to find in its environment."""
        return {"AWS_ACCESS_KEY_ID": self.access_key, "AWS_SECRET_ACCESS_KEY": self.secret_key}

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def start(self):
        for program in PROGRAMS:
            if not shutil.which(program):
                raise Failed(f"there is no {program}; run tools/deps test")
        os.makedirs(os.path.dirname(self.folder), exist_ok=True)
        for left in range(TRIES, 0, -1):
            try:
                self.start_all(free_ports())
                return self
            except Failed:
                # Somebody else may have taken a port meanwhile.
                self.stop()
                if left == 1:
                    raise
            except BaseException:
                self.stop()
                raise
        raise AssertionError

    def start_all(self, first):
        self.port = first
        for name in ("mon", "osd", "rgw", "run", "log"):
            os.makedirs(self.path(name))
        fsid, osd = str(uuid.uuid4()), str(uuid.uuid4())
        monitor = f"[v2:127.0.0.1:{first + 1},v1:127.0.0.1:{first + 2}]"
        with open(self.config, "w", encoding="ascii") as f:
            f.write(CONFIG.format(
                fsid=fsid, monitor=monitor, folder=self.folder, port=first,
                osd_first=first + 3, osd_last=first + PORTS_A_SERVER - 1,
                store_bytes=self.store_bytes,
                also=f"endpoint={self.also}:{first}" if self.also else "",
                quiet="\n".join(f"debug_{name} = 0/0" for name in QUIET),
                extra="\n".join(f"{name} = {value}" for name, value in self.settings.items())))
        with open(self.path("port"), "w", encoding="ascii") as f:
            f.write(str(first))
        self.run("ceph-authtool", "--create-keyring", self.path("keyring"), "--gen-key", "-n",
                 "mon.", "--cap", "mon", "allow *")
        self.run("monmaptool", "--create", "--addv", "a", monitor, "--fsid", fsid,
                 self.path("monmap"))
        conf = ("-c", self.config)
        self.run("ceph-mon", *conf, "--mkfs", "-i", "a", "--monmap", self.path("monmap"),
                 "--keyring", self.path("keyring"))
        self.spawn("mon", "ceph-mon", *conf, "-i", "a")
        self.run("ceph", *conf, "osd", "new", osd)
        self.run("ceph-osd", *conf, "-i", "0", "--mkfs", "--osd-uuid", osd)
        self.spawn("osd", "ceph-osd", *conf, "-i", "0")
        self.run("radosgw-admin", *conf, "-n", "client.rgw", "user", "create", "--uid=test",
                 "--display-name=test", "--access-key=" + self.access_key,
                 "--secret-key=" + self.secret_key)
        self.back()

    def run(self, *command):
        with open(self.path("log", "start"), "a+b") as log:
            try:
                status = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                        timeout=START_S, check=False).returncode
            except subprocess.TimeoutExpired:
                status = f"not answered for {START_S} s"
            if status != 0:
                log.seek(0)
                said = log.read()[-1000:].decode(errors="replace")
                raise Failed(f"{command[0]}: {status}\n{said}")

    def spawn(self, name, *command):
        with open(self.path("log", name + ".out"), "ab") as log:
            process = subprocess.Popen((*command, "-f"), stdin=subprocess.DEVNULL, stdout=log,
                                       stderr=log, start_new_session=True)
        with open(self.path("run", name + ".pid"), "w", encoding="ascii") as f:
            f.write(str(process.pid))
        # It may outlive us; who has started it forgets it.
        process.returncode = 0

    def pid(self, name):
        try:
            with open(self.path("run", name + ".pid"), encoding="ascii") as f:
                return int(f.read())
        except OSError:
            return None

    def answers(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/")
            return connection.getresponse().status > 0
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def wait_up(self):
        """False: it has ended by itself."""
        end = time.monotonic() + START_S
        while not self.answers():
            if not alive(self.pid("rgw")):
                return False
            if time.monotonic() > end:
                raise Failed(f"radosgw does not answer for {START_S} s")
            time.sleep(0.02)
        return True

    def last_words(self):
        words = []
        for name in ("client.rgw.log", "rgw.out"):
            try:
                with open(self.path("log", name), "rb") as f:
                    words.append(f.read()[-1000:].decode(errors="replace"))
            except OSError:
                pass
        return "\n".join(words)

    def kill(self, name):
        pid = self.pid(name)
        if pid is None:
            return
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        end = time.monotonic() + START_S
        while alive(pid) and time.monotonic() < end:
            time.sleep(0.01)
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            pass
        os.unlink(self.path("run", name + ".pid"))

    def lose(self):
        """The gateway is killed in whatever it does; connections are reset."""
        self.kill("rgw")

    def back(self):
        """The gateway is back at the same port. It gives up by itself when the monitor does not
        answer it for a while, which may happen on a busy machine."""
        for _ in range(TRIES):
            self.spawn("rgw", "radosgw", "-c", self.config, "-n", "client.rgw")
            if self.wait_up():
                return
            self.kill("rgw")
        raise Failed(f"radosgw has ended, {TRIES} times; it said:\n" + self.last_words())

    @contextlib.contextmanager
    def away(self):
        """Without the gateway."""
        self.lose()
        try:
            yield
        finally:
            self.back()

    def stop(self):
        for name in ("rgw", "osd", "mon"):
            self.kill(name)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()


def main():
    words = sys.argv[1:]
    if len(words) < 2 or words[0] not in ("start", "lose", "back", "stop"):
        sys.exit("usage: radosgw.py start DIR [NAME=VALUE...] | lose DIR | back DIR | stop DIR")
    try:
        if words[0] == "start":
            server = Radosgw(words[1], **dict(word.split("=", 1) for word in words[2:]))
            print(server.start().endpoint)
        else:
            getattr(Radosgw.found(words[1]), words[0])()
    except Failed as failed:
        sys.exit(f"radosgw.py: {failed}")


if __name__ == "__main__":
    main()
