"""A link of limited bandwidth for bench/run: a network namespace of its own, joined to this one by
a pair of virtual interfaces. Who is started with its prefix reaches this machine over that link
alone. It ends with the process that holds the namespace, and leaves nothing behind."""
import os
import signal
import subprocess
import time

from mounts import Failed

START_S = 20


def run(*command):
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              check=False)
    except OSError as error:
        raise Failed(f"{command[0]}: {error.strerror}") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().split("\n")[0]
        raise Failed(f"{' '.join(command[:3])}: {said}")


class Link:
    """Up when the constructor returns; it takes root. What this machine sends into it is limited
    by a token bucket (the kernel may have no way to add latency, so none is added)."""

    def __init__(self, rate_mbit):
        self.rate_mbit = rate_mbit
        self.holder = None
        here, there = (f"fb{side}{os.getpid()}" for side in "ht")
        net = f"10.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"
        self.address = net + ".1"
        try:
            self.holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"],
                                           stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.wait_apart()
            self.prefix = ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net"]
            run("ip", "link", "add", here, "type", "veth", "peer", "name", there, "netns",
                str(self.holder.pid))
            run("ip", "addr", "add", self.address + "/30", "dev", here)
            run("ip", "link", "set", here, "up")
            run("tc", "qdisc", "add", "dev", here, "root", "tbf", "rate", f"{rate_mbit}mbit",
                "burst", "512kb", "latency", "20ms")
            run(*self.prefix, "ip", "addr", "add", net + ".2/30", "dev", there)
            run(*self.prefix, "ip", "link", "set", there, "up")
        except OSError as error:
            self.stop()
            raise Failed(f"a network namespace of our own: {error.strerror}") from error
        except BaseException:
            self.stop()
            raise

    def wait_apart(self):
        """Until the holder is in its namespace."""
        until = time.monotonic() + START_S
        ours = os.readlink("/proc/self/ns/net")
        while os.readlink(f"/proc/{self.holder.pid}/ns/net") == ours:
            if self.holder.poll() is not None or time.monotonic() > until:
                raise Failed("a network namespace of our own is not allowed here")
            time.sleep(0.01)

    def stop(self):
        if self.holder:
            self.holder.send_signal(signal.SIGKILL)
            self.holder.wait()
            self.holder = None
