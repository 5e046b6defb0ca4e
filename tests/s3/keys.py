"""tests/s3/keys.py - which files and directories a bucket's keys are (docs/SEMANTICS.md)."""

NAME_MAX = 255

LONGEST = b"/".join([b"z" * 204] * 5)  # 1,024 bytes

# Keys that a naive client gets wrong: in the signature, in the listing, or in the tree.
NASTY = [
    b"plain", b"with space", b" ", b"trailing ", b"a+b", b"a=b", b"a&b;c", b"x!*'()~-_.", b"%41",
    b"%2F", b"100%", b"#hash?query", b"@:,$", b'"quoted"<tag>', b"back\\slash", b"tab\there",
    b"new\nline", b"caf\xc3\xa9/\xe6\x97\xa5\xe6\x9c\xac.txt", b"\xf0\x9f\x8c\x8a",
    b"d/e/f/g/h/deep", b"k" * 255, b"l" * 255 + b"/" + b"m" * 255, b".hidden", b"..dots", b"...",
    b"dir with space/+plus", b"d/e/", b"marker/", b"marker/nested/", b"clash", b"clash/b",
    b"clash2/b", b"clash2", LONGEST,
]
# Keys that are no path.
UNSEEN = [
    b"n" * 256, b"p/" + b"n" * 256, b"q/../up", b"r/./same", b"s//two", b"/leading", b"//", b".",
    b"..", b"./here", b"t/..", b"u/.", b"v//",
]


def is_name(part):
    return part not in (b"", b".", b"..") and len(part) <= NAME_MAX


def tree(objects, prefix=b""):
    """Path -> body, or None for a directory. A name that is both is a directory; what cannot be
    named is not there, but the directories that lead to it are."""
    found = {}
    for key, body in objects.items():
        if not key.startswith(prefix) or key == prefix:
            continue
        *folders, last = key[len(prefix):].split(b"/")
        path = []
        for part in folders:
            if not is_name(part):
                break
            path.append(part)
            found[b"/".join(path)] = None
        if len(path) == len(folders) and is_name(last):
            found.setdefault(b"/".join(path + [last]), body)
    return found
