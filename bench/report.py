"""Writes docs/BENCHMARKS.md from what bench/run has measured."""
import os
import platform
import subprocess
import time


class Row:
    """A line of the table; passed is None where there is no target."""

    def __init__(self, what, ours, other, ratio, target, passed):
        self.what = what
        self.ours = ours
        self.other = other
        self.ratio = ratio
        self.target = target
        self.passed = passed

    def verdict(self):
        return {None: "", True: "met", False: "**missed**"}[self.passed]

    def line(self):
        parts = [self.ours, f"against {self.other}" if self.other else "", self.ratio,
                 f"target {self.target}" if self.target else "", self.verdict().strip("*")]
        return f"{self.what}: " + ", ".join(part for part in parts if part)

    def markdown(self):
        cells = (self.what, self.ours, self.other, self.ratio, self.target, self.verdict())
        return "| " + " | ".join(cells) + " |"


def first_line(command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False,
                              cwd=os.path.dirname(os.path.abspath(__file__)))
    except OSError:
        return ""
    return done.stdout.strip().split("\n")[0]


def field_of(path, name):
    with open(path, encoding="utf-8", errors="replace") as f:
        for line in f:
            key, _, value = line.partition(":")
            if key.strip() == name:
                return value.strip()
    return "unknown"


def system_name():
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()


def machine(folder):
    memory_kib = int(field_of("/proc/meminfo", "MemTotal").split()[0])
    disk = first_line(["findmnt", "-no", "FSTYPE,SOURCE", "-T", folder]).split()
    return [
        f"- {system_name()}, Linux {platform.release()}",
        f"- {os.cpu_count()} x {field_of('/proc/cpuinfo', 'model name')}, "
        f"{memory_kib / (1 << 20):.0f} GiB of memory",
        f"- {' on '.join(disk) if disk else 'unknown file system'}",
        f"- {first_line(['gcc', '--version'])}; {first_line(['fio', '--version'])}",
        f"- {time.strftime('%Y-%m-%d')}, at commit "
        f"{first_line(['git', 'rev-parse', '--short', 'HEAD']) or 'unknown'}",
    ]


def markdown(plan, sections, folder):
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench`; run it to have the numbers of your machine. What is compared was",
        "measured side by side in each round, and the ratio taken round by round: shown are the",
        f"median of {plan.rounds} rounds and, in brackets, the smallest and the largest.",
        "",
        "## Machine",
        "",
        *machine(folder),
        "",
        "## Results",
        "",
        "| what | Forebay | compared with | ratio | target | |",
        "| --- | --- | --- | --- | --- | --- |",
        *[row.markdown() for section in sections for row in section.rows()],
        "",
        "## Commands",
        "",
        "What each section ran; the programs are in `bench/`.",
        "",
    ]
    for section in sections:
        said = " ".join((type(section).__doc__ or section.name).split())
        lines += [said, "", "```"]
        lines += [line.replace(folder, "DIR") for line in section.commands()]
        lines += ["```", ""]
    return "\n".join(lines).rstrip("\n") + "\n"
