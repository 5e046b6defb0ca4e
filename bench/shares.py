"""Sources served to programs without a mount, for bench/run: a daemon that `forebay run` keeps
alive."""
import os
import shutil
import signal
import subprocess
import time

from mounts import Failed, alive, forebay_binary, Mount

START_S = 60


class Share(Mount):
    """`forebay run --source SOURCE ARGS... -- sleep`, serving when the constructor returns."""

    def __init__(self, source, folder, *args, wrap=lambda words: words):  # pylint: disable=super-init-not-called
        self.folder = folder
        self.source = source
        self.pid = None
        self.holder = None
        self.args = ["--source", source, "--cache-dir", os.path.join(folder, "cache"), "--metrics",
                     "off", *args]
        self.env = {**os.environ, "FOREBAY_RUNTIME_DIR": os.path.join(folder, "run")}
        os.makedirs(os.path.join(folder, "run"), mode=0o700)
        try:
            self.holder = subprocess.Popen(
                wrap(self.command("sleep", "infinity")), env=self.env, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            self.wait_ready()
        except BaseException:
            self.stop()
            raise

    def wait_ready(self):
        """The daemon answers before the command begins."""
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            if self.holder.poll() is not None:
                raise Failed("forebay run: " + self.holder.stderr.read().decode().strip())
            with open(f"/proc/{self.holder.pid}/comm", encoding="ascii") as f:
                if f.read().strip() == "sleep":
                    self.pid = self.status()["pid"]
                    return
            time.sleep(0.02)
        raise Failed("forebay run does not begin")

    def command(self, *words):
        return [forebay_binary(), "run", *self.args, "--", *words]

    def stop(self):
        if self.holder and self.holder.poll() is None:
            self.holder.terminate()
            self.holder.wait()
        until = time.monotonic() + 20
        while self.pid and alive(self.pid) and time.monotonic() < until:
            time.sleep(0.02)
        if self.pid and alive(self.pid):
            os.kill(self.pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)
