"""Read files through the Forebay cache.

    import forebay

    data = forebay.read("/nfs/imagenet/n01440764_10026.jpg")        # bytes

    with forebay.open("/nfs/imagenet/n01440764_10026.jpg") as f:    # a binary file, read-only
        image = PIL.Image.open(f)
        image.load()

    with forebay.open("/nfs/samples/0001.bin") as f:                # no copy at all
        samples = numpy.frombuffer(f.view(), dtype=numpy.float32)

Every regular file can be opened. One below a directory that a Forebay daemon serves comes from the
cache, out of memory that the daemon shares with this process; any other one is read as always. A
program may therefore use this module everywhere and never ask whether there is a cache.

The daemon is found by $FOREBAY_SOCKET, which `forebay run` sets:

    forebay run --source /nfs/imagenet -- python train.py

Under `forebay run` the built-in open() is served by the cache as well; this module is for views
without a copy, and for programs that cannot be started that way: connect(socket) names the daemon.
Nobody tells the daemon then what the program writes: a file that it has just written may read as it
was before until --metadata-ttl has passed.

A file is one version: it reads as it was when it was opened, or raises OSError (errno.ESTALE) when
it has changed and the cache does not have all of it; open it anew then. Files, connections and
views may be used by several threads, which run at the same time, and after os.fork(), as in the
workers of a torch DataLoader.
"""
import io
import os

from . import _forebay
from ._forebay import View

__all__ = ["Connection", "File", "View", "connect", "open", "read"]
__version__ = _forebay.version

_LINE_BYTES = 4096


class File(io.RawIOBase):
    """A regular file, open for reading in binary; made by forebay.open().

    A raw file object of the io module: whatever takes one takes this, numpy.load() and
    PIL.Image.open() among others. Reads are not buffered, and short only at the end of the file. For
    many small reads, or lines of text, put a buffer in front: io.BufferedReader(file),
    io.TextIOWrapper(io.BufferedReader(file)).

    name is the path as it was given.
    """

    mode = "rb"

    def __init__(self, handle, name):
        super().__init__()
        self._handle = handle
        self._position = 0
        self.name = name

    def __repr__(self):
        state = "closed" if self.closed else "cached" if self.is_cached else "direct"
        return f"<forebay.File {self.name!r} {state}>"

    # Reading at the position

    def read(self, size=-1):
        """Read up to size bytes from the position on; all that follow if size is negative."""
        if size is None or size < 0:
            data = self._handle.readall(self._position)
        else:
            data = self._handle.pread(size, self._position)
        self._position += len(data)
        return data

    def readall(self):
        """Read all bytes from the position on."""
        return self.read()

    def readinto(self, buffer):
        """Read into a writable buffer; return how many bytes, 0 at the end of the file."""
        count = self._handle.pread_into(buffer, self._position)
        self._position += count
        return count

    def readline(self, size=-1):
        """Read up to and including the next newline byte."""
        parts = []
        left = size if size is not None and size >= 0 else None
        while left is None or left > 0:
            want = _LINE_BYTES if left is None else min(left, _LINE_BYTES)
            part = self._handle.pread(want, self._position)
            newline = part.find(b"\n")
            if newline >= 0:
                part = part[: newline + 1]
            parts.append(part)
            self._position += len(part)
            if newline >= 0 or not part:
                break
            if left is not None:
                left -= len(part)
        return b"".join(parts)

    def seek(self, offset, whence=os.SEEK_SET):
        """Move the position: from the beginning, from where it is (1), or from the end (2)."""
        if self.closed:
            raise ValueError("I/O operation on closed file")
        if whence == os.SEEK_CUR:
            offset += self._position
        elif whence == os.SEEK_END:
            offset += self.size
        elif whence != os.SEEK_SET:
            raise ValueError(f"invalid whence ({whence}, should be 0, 1 or 2)")
        if offset < 0:
            raise ValueError(f"negative seek position {offset}")
        self._position = offset
        return offset

    def tell(self):
        """The position."""
        if self.closed:
            raise ValueError("I/O operation on closed file")
        return self._position

    def readable(self):
        """True."""
        return True

    def seekable(self):
        """True."""
        return True

    def write(self, _data, /):
        """Files cannot be written to."""
        raise io.UnsupportedOperation("write")

    # Reading anywhere

    def pread(self, size, offset):
        """Read up to size bytes at offset, as os.pread() does; the position does not matter."""
        return self._handle.pread(size, offset)

    def view(self, offset=0, length=None):
        """The bytes from offset on, length of them or all, without a copy where that can be.

        The result has the buffer protocol (read-only). Bytes within one block (block_size) that are
        in the cache's memory are not copied; is_zero_copy of the result tells. They stay as they are
        as long as the view or anything made of it lives; the file may be closed meanwhile. Of a
        large file, view a block at a time, beginning at multiples of block_size.
        """
        return self._handle.acquire(offset, -1 if length is None else length)

    # About it

    @property
    def size(self):
        """Bytes in the file, when it was opened."""
        return self._handle.size

    @property
    def block_size(self):
        """Bytes in a block of the cache; 0 when the file is not cached."""
        return self._handle.block_size

    @property
    def is_cached(self):
        """Whether it was opened through the cache."""
        return self._handle.is_cached

    def stat(self):
        """What os.stat() says of the file, when it was opened."""
        fields = self._handle.stat()
        times = fields[7:10]
        names = ("atime", "mtime", "ctime")
        more = {f"st_{n}_ns": ns for n, ns in zip(names, times)}
        # As os.stat() rounds.
        more.update({f"st_{n}": ns // 10**9 + 1e-9 * (ns % 10**9) for n, ns in zip(names, times)})
        more.update(st_blksize=fields[10], st_blocks=fields[11])
        return os.stat_result(fields[:7] + tuple(ns // 10**9 for ns in times), more)

    def close(self):
        """Close the file. Its views stay good."""
        if not self.closed:
            self._handle.close()
            super().close()


class Connection:
    """A way to one daemon; made by forebay.connect().

    Needs no closing: it ends with its last reference, and files and views that came from it stay
    good. Can be pickled, for workers that are spawned.
    """

    __slots__ = ("_connection", "socket")

    def __init__(self, socket=None):
        self._connection = _forebay.Connection(socket)
        self.socket = socket

    def __reduce__(self):
        return Connection, (self.socket,)

    def open(self, path):
        """Open a regular file for reading in binary; see File."""
        return File(self._connection.open(path), path)

    def read(self, path):
        """All bytes of a file."""
        return self._connection.read(path)


_default = None


def _connection():
    global _default  # pylint: disable=global-statement
    if _default is None:
        _default = Connection()  # two threads at once: one of the two is dropped
    return _default


def connect(socket=None):
    """A connection to the daemon that listens at the path socket, by default $FOREBAY_SOCKET.

    Never fails for want of a daemon: while there is none, files are read directly; when one comes,
    files opened from then on are cached.
    """
    return Connection(socket)


def open(path):  # pylint: disable=redefined-builtin
    """Open a regular file for reading in binary, through the cache if it can be; see File.

    OSError, as from the built-in open(): FileNotFoundError, PermissionError, IsADirectoryError ...
    """
    return _connection().open(path)


def read(path):
    """All bytes of a file: open(path).read(), in less time."""
    return _connection().read(path)
