"""Sections of bench/run about buckets: Forebay beside s3fs, rclone and curl, all on one radosgw."""
import os
import subprocess
import sys
import time

import report
from link import Link
from measure import can_drop_caches, drop_caches, epoch
from mounts import Failed
from peers import Rclone, S3fs
from sections import Bench, alternate

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "s3"))
# pylint: disable=wrong-import-position
import radosgw
import s3

BUCKET = "bench"
MODES = ("static", "close-to-open")
PEERS = {"s3fs": S3fs, "rclone": Rclone}
WARM_TURNS = 2
CURL_RANGE = 8 << 20
CURL_AT_ONCE = 16
LINK_MBIT = 2000
MB = 1e-6


class Buckets(Bench):
    """What both sections need: a server, its objects, and mounts of it that nobody has used."""

    rounds_max = 3
    link = None

    def start_server(self):
        try:
            self.server = radosgw.Radosgw(os.path.join(self.folder, "ceph"),
                                          store_bytes=8 << 30,
                                          also=self.link and self.link.address).start()
        except radosgw.Failed as failed:
            raise Failed(str(failed)) from failed
        self.mounts.hold(self.server)
        self.client = s3.S3.of(self.server)
        for word in [word for word in os.environ if word.startswith("AWS_")]:
            del os.environ[word]  # of this machine's own buckets
        os.environ.update(self.server.environment(), no_proxy="127.0.0.1")
        if self.link:
            os.environ["no_proxy"] += "," + self.link.address
        self.client.make_bucket(BUCKET)

    def endpoint(self, over_link=False):
        return (f"http://{self.link.address}:{self.server.port}" if over_link
                else self.server.endpoint)

    def mount_args(self, mode, over_link=False):
        return ["--endpoint-url", self.endpoint(over_link), "--region", self.server.region,
                "--consistency", mode, "--metadata-ttl", "1h", "--memory", "1G", "--cache-size",
                "4G", "--free-space-ratio", "0.01"]

    def fresh(self, name, over_link=False):
        """A mount with an empty cache, and the page cache dropped where we may."""
        if can_drop_caches():
            drop_caches()
        folder = f"s3-{name}-{time.monotonic_ns()}"
        if name in PEERS:
            place = os.path.join(self.mounts.folder, folder)
            return self.mounts.hold(PEERS[name](place, self.server, BUCKET))
        return self.mounts.add(folder, f"s3://{BUCKET}", *self.mount_args(name, over_link),
                               prefix=self.link.prefix if over_link else ())

    def finish(self):
        self.mounts.stop(self.server)
        super().finish()

    def forebay_commands(self):
        words = [" ".join(["forebay mount s3://BUCKET MNT"] + self.mount_args(mode))
                 for mode in MODES]
        return [word.replace(self.server.endpoint, "URL") for word in words]


class SmallObjects(Buckets):
    """Shuffled epochs over small objects of a bucket, cold and warm. Cold: a fresh mount with an
    empty cache directory and the page cache dropped, so that every byte comes from the server.
    Warm: the best of the two epochs that follow on that mount, nothing dropped. The peer that
    counts is the better one in that round."""

    name = "s3"
    readers = (1, 4)

    def prepare(self):
        self.start_server()
        count, size = self.plan.objects, self.plan.file_bytes
        block = os.urandom(size + count)
        names = [f"small/class{i % 20:02}/sample{i:06}.bin" for i in range(count)]
        self.client.put_all(BUCKET, ((names[i], block[i:i + size]) for i in range(count)))
        self.listing = os.path.join(self.folder, "list")
        with open(self.listing, "w", encoding="ascii") as f:
            f.write("\n".join(names) + "\n")

    def round(self, no):
        for readers in self.readers:
            for name in alternate(no, *MODES, *PEERS):
                mount = self.fresh(name)
                order = 1000 * no + 10 * readers
                rate = 1e6 / epoch(mount.point, self.listing, order, readers)
                self.see(f"{name} cold {readers}", rate)
                warm = max(1e6 / epoch(mount.point, self.listing, order + 1 + turn, readers)
                           for turn in range(WARM_TURNS))
                self.see(f"{name} warm {readers}", warm)
                self.mounts.stop(mount)
            for heat in ("cold", "warm"):
                self.see(f"peer {heat} {readers}", max(
                    self.seen[f"{peer} {heat} {readers}"].values[-1] for peer in PEERS))

    def rows(self):
        rows = []
        for heat, targets in (("cold", (3, 3)), ("warm", (15, 5))):
            for mode, target in zip(MODES, targets):
                for readers in self.readers:
                    ours = self.seen[f"{mode} {heat} {readers}"]
                    peer = self.seen[f"peer {heat} {readers}"]
                    ratio = ours.over(peer)
                    each = ", ".join(f"{name} " + self.seen[f"{name} {heat} {readers}"].text(
                        "{:,.0f}") for name in PEERS)
                    rows.append(report.Row(
                        f"{heat} epoch over {self.plan.objects:,} objects of 100 KiB in S3, "
                        f"{mode}, {readers} reader{'s' if readers > 1 else ''}, files/s",
                        ours.text("{:,.0f}"), each, ratio.text("{:.1f}") + "x the better peer",
                        f"at least {target}x", ratio.median >= target))
        return rows

    def commands(self):
        return self.forebay_commands() + [peer.command() for peer in PEERS.values()] + [
            "bench_reader MNT --list FILE --seed EPOCH --threads N"]


class LargeObjects(Buckets):
    """Large objects read from end to end, cold (as above), against curl with parallel range GETs
    into /dev/null, which has nothing to keep and nothing to hand on. On one machine the server
    takes most of the processors from either; so the same once more over a link that is the
    narrowest place, as networks are: a namespace of its own, limited to 2 Gbit/s."""

    name = "s3-large"
    readers = (1, 4)

    def prepare(self):
        try:
            self.link = self.mounts.hold(Link(LINK_MBIT))
        except Failed as failed:
            print(f"s3-large: nothing is measured over a limited link: {failed}", file=sys.stderr)
        self.start_server()
        self.names = [f"large/{i}.bin" for i in range(self.plan.large_objects)]
        body = os.urandom(self.plan.large_bytes)
        for name in self.names:
            # Whoever reads without a name is let in: curl is spared the signing.
            self.client.put(BUCKET, name, body, x_amz_acl="public-read")

    def round(self, no):
        for readers in self.readers:
            for name in alternate(no, "curl", *MODES, *PEERS):
                if name == "curl":
                    self.see(f"curl {readers}", self.rate(
                        readers, lambda key, n=CURL_AT_ONCE // readers: self.curl_command(key, n)))
                    continue
                mount = self.fresh(name)
                self.see(f"{name} {readers}", self.rate_of(mount, readers))
                self.mounts.stop(mount)
        if self.link:
            self.round_over_link(no)

    def round_over_link(self, no):
        for readers in self.readers:
            for name in alternate(no, "curl", *MODES):
                if name == "curl":
                    self.see(f"curl {readers} link", self.rate(
                        readers, lambda key, n=CURL_AT_ONCE // readers:
                        self.link.prefix + self.curl_command(key, n, over_link=True)))
                    continue
                mount = self.fresh(name, over_link=True)
                self.see(f"{name} {readers} link", self.rate_of(mount, readers))
                self.mounts.stop(mount)

    def rate_of(self, mount, readers):
        return self.rate(readers, lambda key: ["dd", f"if={mount.point}/{key}", "of=/dev/null",
                                               "bs=1M", "status=none"])

    def rate(self, readers, command):
        """Bytes a second of all objects, so many of them at a time."""
        start = time.monotonic()
        left, running = list(self.names), []
        while left or running:
            while left and len(running) < readers:
                running.append(subprocess.Popen(command(left.pop(0)), stdin=subprocess.DEVNULL,
                                                stdout=subprocess.DEVNULL))
            first = running.pop(0)
            if first.wait() != 0:
                raise Failed(f"{first.args[0]}: exit status {first.returncode}")
        return len(self.names) * self.plan.large_bytes / (time.monotonic() - start)

    def curl_command(self, key, at_once, over_link=False):
        url = f"{self.endpoint(over_link)}/{BUCKET}/{key}"
        words = ["curl", "--no-progress-meter", "--parallel", "--parallel-immediate",
                 "--parallel-max", str(at_once)]
        for start in range(0, self.plan.large_bytes, CURL_RANGE):
            if start:
                words.append("--next")
            words += ["--fail", "--range", f"{start}-{start + CURL_RANGE - 1}", "--output",
                      "/dev/null", url]
        return words

    def rows(self):
        rows = []
        size = self.plan.large_bytes >> 20
        for readers in self.readers:
            curl = self.seen[f"curl {readers}"]
            peers = ", ".join(f"{name} " + self.seen[f"{name} {readers}"].text("{:,.0f}", MB)
                              for name in PEERS)
            for mode in MODES:
                ours = self.seen[f"{mode} {readers}"]
                ratio = ours.over(curl)
                rows.append(report.Row(
                    f"{len(self.names)} objects of {size} MiB in S3 read cold, {mode}, "
                    f"{readers} at a time, MB/s", ours.text("{:,.0f}", MB),
                    f"curl {curl.text('{:,.0f}', MB)}, {peers}", ratio.text("{:.0%}") + " of curl",
                    "at least 90%", ratio.median >= 0.9))
        return rows + (self.link_rows(size) if self.link else [])

    def link_rows(self, size):
        rows = []
        for readers in self.readers:
            curl = self.seen[f"curl {readers} link"]
            for mode in MODES:
                ours = self.seen[f"{mode} {readers} link"]
                ratio = ours.over(curl)
                rows.append(report.Row(
                    f"{len(self.names)} objects of {size} MiB in S3 read cold over a link of "
                    f"{LINK_MBIT / 1000:g} Gbit/s, {mode}, {readers} at a time, MB/s",
                    ours.text("{:,.0f}", MB), f"curl {curl.text('{:,.0f}', MB)}",
                    ratio.text("{:.0%}") + " of curl", "at least 90%", ratio.median >= 0.9))
        return rows

    def commands(self):
        return self.forebay_commands() + ["dd if=MNT/OBJECT of=/dev/null bs=1M",
                                          "curl --parallel --parallel-max N --range ... "
                                          f"({CURL_RANGE >> 20} MiB each, {CURL_AT_ONCE} "
                                          "connections in all)",
                                          f"tc qdisc add dev VETH root tbf rate {LINK_MBIT}mbit "
                                          "burst 512kb latency 20ms"]


SECTIONS = (SmallObjects, LargeObjects)
