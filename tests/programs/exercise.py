#!/usr/bin/env python3
"""A file-system exerciser: the same random operations on a mount and on a plain directory.

Every step is done in both places and its outcome compared: the error, the bytes, the attributes
that must agree, the names in a directory. From time to time, and at the end, the whole trees are
compared, and at the very end the source's own directory with the reference. The same seed gives
the same steps.

    exercise.py MOUNT REFERENCE [--source DIR] [--seed N] [--steps N] [--no-KIND ...]

What a source refuses is switched off by kind: random-write (writing anywhere but at the end of a
new file), symlink, link, mode (modes, times), xattr, fifo, mmap, exchange, rename-dir, fallocate,
unfinished (a file is looked at while it is written, or was truncated and nothing written).

Two things are avoided because the mount documents them otherwise: a descriptor opened for reading
only, of a file that is then removed or replaced; and descriptors of files with several names.
"""
import argparse
import ctypes
import errno
import mmap
import os
import random
import stat
import sys

KINDS = ("random-write", "symlink", "link", "mode", "xattr", "fifo", "mmap", "exchange",
         "rename-dir", "fallocate", "unfinished")
NAMES = ("a", "b", "c", "d e", "\u00e9", "f" * 40)
DESCRIPTORS_MAX = 8
CHECK_EVERY = 500
RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2
PUNCH_HOLE, KEEP_SIZE = 2, 1
libc = ctypes.CDLL(None, use_errno=True)


def renameat2(old, new, flags):
    if libc.renameat2(-100, os.fsencode(old), -100, os.fsencode(new), flags) != 0:
        raise OSError(ctypes.get_errno(), "renameat2")


def fallocate(fd, mode, offset, length):
    if libc.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(length)) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


class Difference(Exception):
    pass


class Pair:
    """One open file in both places."""

    def __init__(self, fds, path, flags):
        self.fds = fds
        self.path = path
        self.writes = flags & os.O_ACCMODE != os.O_RDONLY
        self.reads = flags & os.O_ACCMODE != os.O_WRONLY
        self.size = 0  # of what a source without random writes was given


class Exerciser:
    def __init__(self, args):
        self.args = args
        self.tops = (args.mount, args.reference)
        self.rand = random.Random(args.seed)
        self.without = {kind for kind in KINDS if getattr(args, "no_" + kind.replace("-", "_"))}
        self.open_pairs = []
        self.step = 0
        self.said = ""
        self.counts = {}
        self.errors = 0

    # ---- doing a thing twice ----

    def both(self, what, function):
        """function(top, index) in both places; the outcome, or the errno as a negative number."""
        self.said = what
        outcomes = []
        for i, top in enumerate(self.tops):
            try:
                outcomes.append(function(top, i))
            except OSError as e:
                outcomes.append(("errno", errno.errorcode.get(e.errno, e.errno)))
        if outcomes[0] != outcomes[1]:
            raise Difference(f"step {self.step}: {what}: mount {self.short(outcomes[0])}, "
                             f"reference {self.short(outcomes[1])}")
        failed = isinstance(outcomes[0], tuple) and outcomes[0][:1] == ("errno",)
        self.errors += failed
        return None if failed else outcomes[0]

    @staticmethod
    def short(outcome):
        text = repr(outcome)
        return text if len(text) < 300 else f"{text[:200]}... ({len(text)} characters)"

    def attributes(self, st):
        kept = [stat.S_IFMT(st.st_mode)]
        if not stat.S_ISDIR(st.st_mode):
            kept += [st.st_size if not stat.S_ISFIFO(st.st_mode) else 0]
            if "link" not in self.without:
                kept += [st.st_nlink]
        if "mode" not in self.without:
            kept += [stat.S_IMODE(st.st_mode), st.st_uid, st.st_gid]
        return tuple(kept)

    # ---- choosing ----

    def some_path(self):
        depth = self.rand.choice((1, 1, 1, 2, 2, 3))
        return "/".join(self.rand.choice(NAMES) for _ in range(depth))

    def some_file(self):
        """A path, more often than not of a regular file that is there."""
        for _ in range(4):
            path = self.some_path()
            if os.path.isfile(os.path.join(self.tops[1], path)):
                return path
        return path

    def some_pair(self, test):
        pairs = [p for p in self.open_pairs if test(p)]
        return self.rand.choice(pairs) if pairs else None

    def some_bytes(self):
        size = self.rand.choice((0, 1, 10, 1000, 4095, 4096, 4097, 70000, 300000))
        if "unfinished" in self.without:
            size = max(size, 1)
        return self.rand.randbytes(size)

    def some_offset(self):
        return self.rand.choice((0, 0, 1, 1000, 4095, 4096, 8192, 65536, 100000, 1 << 20))

    def close(self, pair):
        self.open_pairs.remove(pair)
        self.both(f"close {pair.path}", lambda top, i: os.close(pair.fds[i]))

    def spare(self, path):
        """Closes what the mount says it may lose when `path` goes; below a directory, too."""
        for pair in list(self.open_pairs):
            if pair.path == path or pair.path.startswith(path + "/"):
                if not pair.writes or "random-write" in self.without:
                    self.close(pair)

    def moved(self, old, new):
        for pair in self.open_pairs:
            if pair.path == old or pair.path.startswith(old + "/"):
                pair.path = new + pair.path[len(old):]

    def named_once(self, path):
        try:
            st = os.lstat(os.path.join(self.tops[1], path))
        except OSError:
            return True
        return not stat.S_ISREG(st.st_mode) or st.st_nlink == 1

    # ---- operations: files ----

    def op_open(self):
        path = self.some_file()
        if len(self.open_pairs) >= DESCRIPTORS_MAX:
            self.close(self.rand.choice(self.open_pairs))
        if not self.named_once(path):
            return
        if "random-write" in self.without:
            flags = self.rand.choice((os.O_RDONLY, os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
            if "unfinished" in self.without:
                flags = os.O_RDONLY
            if any(p.path == path and p.writes for p in self.open_pairs):
                return
            if flags != os.O_RDONLY:
                self.spare(path)
        else:
            flags = self.rand.choice((os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_RDWR))
            for flag in (os.O_CREAT, os.O_EXCL, os.O_TRUNC, os.O_APPEND):
                if self.rand.random() < 0.3:
                    flags |= flag
        if flags & os.O_EXCL and not flags & os.O_CREAT:
            flags &= ~os.O_EXCL  # undefined otherwise
        fds = [None, None]

        def do(top, i):
            fds[i] = os.open(os.path.join(top, path), flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
            return True

        if self.both(f"open {path} {flags:#o}", do):
            if not stat.S_ISREG(os.fstat(fds[1]).st_mode):
                for fd in fds:
                    os.close(fd)
            else:
                self.open_pairs.append(Pair(fds, path, flags))

    def op_close(self):
        pair = self.some_pair(lambda p: True)
        if pair:
            self.close(pair)

    def op_pwrite(self):
        pair = self.some_pair(lambda p: p.writes)
        data = self.some_bytes()
        if not pair:
            return
        offset = pair.size if "random-write" in self.without else self.some_offset()
        pair.size = offset + len(data)
        self.both(f"pwrite {pair.path} {offset}+{len(data)}",
                  lambda top, i: os.pwrite(pair.fds[i], data, offset))

    def op_write(self):
        pair = self.some_pair(lambda p: p.writes)
        data = self.some_bytes()
        if pair and "random-write" not in self.without:
            self.both(f"write {pair.path} {len(data)}", lambda top, i: os.write(pair.fds[i], data))

    def op_pread(self):
        pair = self.some_pair(lambda p: p.reads)
        offset, size = self.some_offset(), self.rand.choice((1, 100, 4096, 100000))
        if pair:
            self.both(f"pread {pair.path} {offset}+{size}",
                      lambda top, i: os.pread(pair.fds[i], size, offset))

    def op_ftruncate(self):
        pair = self.some_pair(lambda p: p.writes)
        size = self.some_offset()
        if pair and "random-write" not in self.without:
            self.both(f"ftruncate {pair.path} {size}",
                      lambda top, i: os.ftruncate(pair.fds[i], size))

    def op_fsync(self):
        pair = self.some_pair(lambda p: p.writes)
        if pair and "random-write" not in self.without:
            sync = self.rand.choice((os.fsync, os.fdatasync))
            self.both(f"fsync {pair.path}", lambda top, i: sync(pair.fds[i]))

    def op_fstat(self):
        pair = self.some_pair(lambda p: True)
        if pair:
            self.both(f"fstat {pair.path}",
                      lambda top, i: self.attributes(os.fstat(pair.fds[i])))

    def op_fallocate(self):
        pair = self.some_pair(lambda p: p.writes)
        offset, length = self.some_offset(), self.rand.choice((1, 4096, 50000))
        mode = self.rand.choice((0, KEEP_SIZE, PUNCH_HOLE | KEEP_SIZE))
        if pair and "fallocate" not in self.without:
            self.both(f"fallocate {pair.path} {mode} {offset}+{length}",
                      lambda top, i: fallocate(pair.fds[i], mode, offset, length))

    def op_mmap(self):
        pair = self.some_pair(lambda p: p.writes and p.reads)
        data = self.rand.randbytes(100)
        at = self.rand.random()

        def do(top, i):
            size = os.fstat(pair.fds[i]).st_size
            if size < len(data):
                return None
            with mmap.mmap(pair.fds[i], size) as m:
                start = int(at * (size - len(data)))
                m[start:start + len(data)] = data
            return size

        if pair and "mmap" not in self.without:
            self.both(f"mmap {pair.path}", do)

    def op_write_file(self):
        path, data = self.some_path(), self.some_bytes()
        if "random-write" in self.without:
            self.spare(path)
        if not self.named_once(path) and self.open_pairs:
            return

        def do(top, i):
            fd = os.open(os.path.join(top, path),
                         os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                return os.write(fd, data)
            finally:
                os.close(fd)

        self.both(f"write file {path} {len(data)}", do)

    def op_replace_file(self):
        """Temporary file, then rename: as programs do who save."""
        path, data = self.some_path(), self.some_bytes()
        self.spare(path)

        def do(top, i):
            target = os.path.join(top, path)
            with open(target + ".tmp", "wb") as f:
                f.write(data)
                f.flush()
                os.fsync(f.fileno())
            try:
                os.rename(target + ".tmp", target)
            except OSError:
                os.unlink(target + ".tmp")
                raise

        if self.both(f"replace {path} {len(data)}", do) is None:
            for pair in self.open_pairs:
                if pair.path == path:
                    pair.path = "(replaced)"

    def op_append(self):
        path, data = self.some_file(), self.some_bytes()
        if "random-write" in self.without or not self.named_once(path):
            return

        def do(top, i):
            fd = os.open(os.path.join(top, path),
                         os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                return os.write(fd, data)
            finally:
                os.close(fd)

        self.both(f"append {path} {len(data)}", do)

    def op_truncate(self):
        path, size = self.some_file(), self.some_offset()
        if "random-write" not in self.without and self.named_once(path):
            self.both(f"truncate {path} {size}",
                      lambda top, i: os.truncate(os.path.join(top, path), size))

    def op_read_file(self):
        path = self.some_file()

        def do(top, i):
            fd = os.open(os.path.join(top, path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                return self.read_all(fd)
            finally:
                os.close(fd)

        self.both(f"read file {path}", do)

    @staticmethod
    def read_all(fd):
        parts = []
        while part := os.read(fd, 1 << 20):
            parts.append(part)
        return b"".join(parts)

    # ---- operations: names ----

    def op_mkdir(self):
        path = self.some_path()
        self.both(f"mkdir {path}", lambda top, i: os.mkdir(os.path.join(top, path), 0o755))

    def op_rmdir(self):
        path = self.some_path()
        self.both(f"rmdir {path}", lambda top, i: os.rmdir(os.path.join(top, path)))

    def op_unlink(self):
        path = self.some_path()
        self.spare(path)
        self.both(f"unlink {path}", lambda top, i: os.unlink(os.path.join(top, path)))
        for pair in self.open_pairs:
            if pair.path == path:
                pair.path = "(removed)"

    def op_rename(self):
        old, new = self.some_path(), self.some_path()
        top = os.path.join(self.tops[1], old)
        if "rename-dir" in self.without and os.path.isdir(top):
            return
        if old.startswith(new + "/"):
            return  # always an error; which one depends on what the kernel knows of the names
        if "random-write" in self.without:
            self.spare(old)
        if old != new:
            self.spare(new)
        if not self.named_once(old) or not self.named_once(new):
            if self.open_pairs:
                return
        flags = self.rand.choice((0, 0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE))
        if flags == RENAME_EXCHANGE and "exchange" in self.without:
            flags = 0
        if flags == RENAME_EXCHANGE:
            for pair in list(self.open_pairs):  # which of the two it is now is not followed here
                if pair.path.split("/")[0] in (old.split("/")[0], new.split("/")[0]):
                    self.close(pair)
        done = self.both(f"rename {old} -> {new} {flags}",
                         lambda top, i: renameat2(os.path.join(top, old), os.path.join(top, new),
                                                  flags) or True)
        if done and flags != RENAME_EXCHANGE and old != new:
            for pair in self.open_pairs:
                if pair.path == new:
                    pair.path = "(replaced)"
            self.moved(old, new)

    def op_link(self):
        old, new = self.some_file(), self.some_path()
        if "link" in self.without or any(p.path == old for p in self.open_pairs):
            return
        self.both(f"link {old} {new}",
                  lambda top, i: os.link(os.path.join(top, old), os.path.join(top, new),
                                         follow_symlinks=False))

    def op_symlink(self):
        path, target = self.some_path(), self.some_path()
        if "symlink" not in self.without:
            self.both(f"symlink {path} -> {target}",
                      lambda top, i: os.symlink(target, os.path.join(top, path)))

    def op_readlink(self):
        path = self.some_path()
        if "symlink" not in self.without:
            self.both(f"readlink {path}", lambda top, i: os.readlink(os.path.join(top, path)))

    def op_mkfifo(self):
        path = self.some_path()
        if "fifo" not in self.without:
            self.both(f"mkfifo {path}", lambda top, i: os.mkfifo(os.path.join(top, path), 0o640))

    def op_listdir(self):
        path = self.rand.choice(("", self.some_path()))
        self.both(f"listdir {path}", lambda top, i: sorted(os.listdir(os.path.join(top, path))))

    def op_scandir(self):
        path = self.rand.choice(("", self.some_path()))

        def do(top, i):
            with os.scandir(os.path.join(top, path)) as entries:
                return sorted((e.name, self.attributes(e.stat(follow_symlinks=False)))
                              for e in entries)

        self.both(f"scandir {path}", do)

    # ---- operations: attributes ----

    def op_stat(self):
        path = self.some_path()
        self.both(f"lstat {path}",
                  lambda top, i: self.attributes(os.lstat(os.path.join(top, path))))

    def op_chmod(self):
        path, mode = self.some_file(), self.rand.choice((0o600, 0o644, 0o755, 0o640))
        if "mode" not in self.without:
            self.both(f"chmod {path} {mode:o}",
                      lambda top, i: os.chmod(os.path.join(top, path), mode))

    def op_chown(self):
        path, uid = self.some_file(), self.rand.choice((0, 1, 1000))
        if "mode" not in self.without and os.geteuid() == 0:
            self.both(f"chown {path} {uid}",
                      lambda top, i: os.lchown(os.path.join(top, path), uid, uid))

    def op_utime(self):
        path = self.some_file()
        times = (self.rand.randrange(1 << 31) * 10**9, self.rand.randrange(1 << 31) * 10**9 + 5)

        def do(top, i):
            full = os.path.join(top, path)
            os.utime(full, ns=times, follow_symlinks=False)
            return os.lstat(full).st_mtime_ns

        if "mode" not in self.without:
            self.both(f"utime {path}", do)

    def op_setxattr(self):
        path, value = self.some_file(), self.rand.randbytes(self.rand.choice((0, 5, 200)))
        name = self.rand.choice(("user.a", "user.b"))
        flags = self.rand.choice((0, 0, os.XATTR_CREATE, os.XATTR_REPLACE))
        if "xattr" not in self.without:
            self.both(f"setxattr {path} {name} {flags}",
                      lambda top, i: os.setxattr(os.path.join(top, path), name, value, flags,
                                                 follow_symlinks=False))

    def op_removexattr(self):
        path, name = self.some_file(), self.rand.choice(("user.a", "user.b"))
        if "xattr" not in self.without:
            self.both(f"removexattr {path} {name}",
                      lambda top, i: os.removexattr(os.path.join(top, path), name,
                                                    follow_symlinks=False))

    def op_getxattr(self):
        path, name = self.some_file(), self.rand.choice(("user.a", "user.b"))
        if "xattr" not in self.without:
            self.both(f"getxattr {path} {name}",
                      lambda top, i: os.getxattr(os.path.join(top, path), name,
                                                 follow_symlinks=False))

    # ---- the whole ----

    def tree(self, top):
        """Every path below with its attributes and bytes."""
        found = {}
        for where, dirs, files in os.walk(top):
            for name in dirs + files:
                full = os.path.join(where, name)
                path = os.path.relpath(full, top)
                st = os.lstat(full)
                entry = [self.attributes(st)]
                if stat.S_ISREG(st.st_mode):
                    with open(full, "rb") as f:
                        entry.append(f.read())
                elif stat.S_ISLNK(st.st_mode):
                    entry.append(os.readlink(full))
                if "xattr" not in self.without and stat.S_ISREG(st.st_mode):
                    entry.append(sorted((n, os.getxattr(full, n)) for n in os.listxattr(full)
                                        if n.startswith("user.")))
                found[path] = entry
        return found

    def compare_trees(self, left, right):
        a, b = self.tree(left), self.tree(right)
        for path in sorted(a.keys() | b.keys()):
            if a.get(path) != b.get(path):
                raise Difference(f"step {self.step}: {path}: {left} has "
                                 f"{self.short(a.get(path))}, {right} {self.short(b.get(path))}")

    def run(self):
        operations = sorted(name for name in dir(self) if name.startswith("op_"))
        often = ("op_pwrite", "op_pread", "op_open", "op_write_file", "op_read_file", "op_mkdir",
                 "op_rename")
        weights = [4 if name in often else 1 if name == "op_rmdir" else 2 for name in operations]
        for self.step in range(self.args.steps):
            name = self.rand.choices(operations, weights)[0]
            self.counts[name] = self.counts.get(name, 0) + 1
            if self.args.verbose:
                print(self.step, name, file=sys.stderr)
            getattr(self, name)()
            if self.step % CHECK_EVERY == CHECK_EVERY - 1:
                if "random-write" in self.without:
                    for pair in list(self.open_pairs):
                        self.close(pair)
                self.compare_trees(*self.tops)
        for pair in list(self.open_pairs):
            self.close(pair)
        self.compare_trees(*self.tops)
        if self.args.source:
            self.compare_trees(self.args.source, self.tops[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mount")
    parser.add_argument("reference")
    parser.add_argument("--source")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--verbose", action="store_true")
    for kind in KINDS:
        parser.add_argument("--no-" + kind, action="store_true")
    args = parser.parse_args()
    exerciser = Exerciser(args)
    try:
        exerciser.run()
    except Difference as e:
        sys.exit(f"seed {args.seed}: {e}")
    print(f"seed {args.seed}: {args.steps} steps, {exerciser.errors} of them errors in both places")


if __name__ == "__main__":
    main()
