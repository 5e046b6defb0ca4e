# tests/scenarios/mounting.sh - for scenarios that read through a mount: $S is the source, $M the
# mount point, $C the cache directory.

S=$T/source
M=$T/mnt
C=$T/cache
mkdir -p "$S" "$M" "$C"
chmod 755 "$S" "$M"
chmod 700 "$C"

# mount_it FLAG... - mount $S on $M.
mount_it()
{
    check timeout 60 "$FOREBAY" mount "$S" "$M" --cache-dir "$C" --cache-size 1G --memory 128M \
        --free-space-ratio 0.01 --metrics off "$@"
}

# unmount_it - and wait until the daemon is gone.
unmount_it()
{
    check timeout 60 "$FOREBAY" umount "$M"
    check wait_until 20 no_daemon
}

# daemon_pids - of the daemons this test has started.
daemon_pids()
{
    local exe p
    exe=$(readlink -f "$FOREBAY")
    for p in /proc/[0-9]*; do
        if [ "$(readlink "$p/exe")" = "$exe" ] && grep -qz "^T=$T\$" "$p/environ" 2>/dev/null; then
            echo "${p#/proc/}"
        fi
    done 2>/dev/null
}

no_daemon()
{
    [ -z "$(daemon_pids)" ]
}

is_mounted()
{
    grep -qF " $M fuse.forebay " /proc/mounts
}

not_mounted()
{
    ! is_mounted
}

# settle - wait until what was just written counts as settled (FB_SETTLE_TIME_NS).
settle()
{
    sleep 2.1
}

# drop_caches - make the kernel forget what it can of the mount, so that the daemon is asked again.
# Of the mount alone: tests beside this one count on what the kernel has of theirs.
drop_caches()
{
    mount -i -o remount "$M" 2>/dev/null || true
}

# errno_of COMMAND... - run Python code, print the name of the errno it raises, or ok.
errno_of()
{
    python3 - "$1" "${@:2}" <<'END'
import errno, os, mmap, socket, stat, sys
code = sys.argv[1]
args = sys.argv[2:]
try:
    exec(code)
    print("ok")
except OSError as e:
    print(errno.errorcode.get(e.errno, e.errno))
END
}

# expect_errno NAME CODE ARG... - `args` are the ARGs in the code.
expect_errno()
{
    local got
    got=$(errno_of "${@:2}")
    [ "$got" = "$1" ] || fail "expected $1, got $got: ${*:2}"
}

# counter NAME - of the one daemon.
counter()
{
    "$FOREBAY" status --json | python3 -c \
        'import json, sys; print(json.load(sys.stdin)["daemons"][0]["counters"][sys.argv[1]])' "$1"
}
