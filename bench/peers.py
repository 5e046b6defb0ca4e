"""Other programs that mount a bucket, for bench/run: set up as their manuals say for data that is
read again and again, each with a fresh cache of its own."""
import os
import shutil
import signal
import subprocess
import time

from mounts import Failed, alive

START_S = 60
STOP_S = 20


class Peer:
    """A program that mounts in the foreground; its mount is live when the constructor returns."""

    def __init__(self, folder, server, bucket):
        self.folder = folder
        self.server = server
        self.point = os.path.join(folder, "mnt")
        self.cache = os.path.join(folder, "cache")
        self.log = os.path.join(folder, "log")
        self.process = None
        os.makedirs(self.point)
        os.makedirs(self.cache)
        try:
            command, env = self.prepare(bucket)
            with open(self.log, "wb") as log:
                self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log,
                                                stderr=log, env={**os.environ, **env})
            self.wait_mounted(command[0])
        except OSError as error:
            self.stop()
            raise Failed(f"{command[0]}: {error.strerror}; run tools/deps bench") from error
        except BaseException:
            self.stop()
            raise

    def prepare(self, bucket):
        raise NotImplementedError

    def mounted(self):
        with open("/proc/self/mounts", encoding="utf-8", errors="replace") as f:
            return any(line.split(" ")[1] == self.point for line in f)

    def wait_mounted(self, name):
        until = time.monotonic() + START_S
        while not self.mounted():
            if self.process.poll() is not None or time.monotonic() > until:
                with open(self.log, encoding="utf-8", errors="replace") as f:
                    raise Failed(f"{name} does not mount: {f.read()[-500:].strip()}")
            time.sleep(0.02)

    def stop(self):
        if self.mounted():
            for lazily in ([], ["-z"]):
                subprocess.run(["fusermount3", "-u", *lazily, self.point], check=False,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                if not self.mounted():
                    break
        if self.process:
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.process.send_signal(signal.SIGKILL)
                self.process.wait()
            while alive(self.process.pid):
                time.sleep(0.02)
        shutil.rmtree(self.folder, ignore_errors=True)


class S3fs(Peer):
    """With a cache on disk, attributes and pages kept, and more requests at once than it makes by
    itself."""

    options = ("use_path_request_style", "parallel_count=16", "multireq_max=64", "kernel_cache",
               "max_stat_cache_size=100000", "stat_cache_expire=3600", "enable_noobj_cache")

    def prepare(self, bucket):
        keys = os.path.join(self.folder, "keys")
        with open(keys, "w", encoding="ascii") as f:
            os.chmod(keys, 0o600)
            f.write(f"{self.server.access_key}:{self.server.secret_key}\n")
        options = (f"url={self.server.endpoint}", f"endpoint={self.server.region}",
                   f"passwd_file={keys}", f"use_cache={self.cache}", *self.options)
        return ["s3fs", bucket, self.point, "-f", "-o", ",".join(options)], {}

    @classmethod
    def command(cls):
        return f"s3fs BUCKET MNT -o use_cache=DIR,{','.join(cls.options)}"


class Rclone(Peer):
    """With all files kept on disk, directories and attributes kept, and no request for a time stamp
    of its own making."""

    options = ("--vfs-cache-mode", "full", "--dir-cache-time", "1h", "--attr-timeout", "1h",
               "--vfs-cache-poll-interval", "1h", "--vfs-cache-max-age", "24h", "--no-modtime",
               "--no-checksum", "--poll-interval", "0", "--transfers", "16")

    def prepare(self, bucket):
        name = "RCLONE_CONFIG_BENCH_"
        env = {name + "TYPE": "s3", name + "PROVIDER": "Ceph", name + "ENV_AUTH": "false",
               name + "ACCESS_KEY_ID": self.server.access_key,
               name + "SECRET_ACCESS_KEY": self.server.secret_key,
               name + "ENDPOINT": self.server.endpoint,
               "RCLONE_CONFIG": os.path.join(self.folder, "rclone.conf")}
        with open(env["RCLONE_CONFIG"], "wb"):
            pass
        return ["rclone", "mount", "bench:" + bucket, self.point, "--cache-dir", self.cache,
                *self.options], env

    @classmethod
    def command(cls):
        return f"rclone mount REMOTE:BUCKET MNT --cache-dir DIR {' '.join(cls.options)}"
