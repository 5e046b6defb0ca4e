# tests/crash/mounts.sh - sourced after lib.sh by tests that mount: small caches over generated data
# sets (tests/concurrent/dataset.h).

TOOL=$FB_BUILD_DIR/tests/crash/dataset_tool
FILES=384 # 23 MiB
STATUS_S=20

# Errors as numbers, for dataset_tool.
EIO=5 ENOENT=2 ECONNABORTED=103 ENOTCONN=107 ETIMEDOUT=110 ESTALE=116

# A sanitizer needs memory and time of its own.
sanitized()
{
    grep -q __asan_init "$FOREBAY"
}

# up SOURCE MOUNTPOINT OPTION... - mounts; the first option of a kind is the default, the last wins.
up()
{
    local source=$1 mountpoint=$2
    shift 2
    [ -e "$mountpoint" ] || mkdir -p "$mountpoint" 2>/dev/null || true
    timeout 120 "$FOREBAY" mount "$source" "$mountpoint" --memory 64M --cache-dir "$T/cache" \
        --cache-size 64M --segment-size 1M --free-space-ratio 0.01 --metrics off "$@"
}

# down MOUNTPOINT - unmounts; the daemon ends with its last mount.
down()
{
    local pid
    pid=$(daemon_pid)
    timeout 120 "$FOREBAY" umount "$1" || return 1
    wait_until 60 gone "$pid" || fail "the daemon $pid outlives its last mount"
}

daemon_pid()
{
    status_of pid
}

# status_of NAME - a number of `forebay status --json`, the first of that name.
status_of()
{
    timeout $STATUS_S "$FOREBAY" status --json | tr ',{}' '\n\n\n' |
        sed -n "s/^ *\"$1\": *\([0-9]*\).*/\1/p" | sed -n 1p
}

# gone PID - it runs no more; a zombie does not run.
gone()
{
    local state
    state=$(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "/proc/$1/status" 2>/dev/null) || true
    [ -z "$state" ] || [ "$state" = Z ]
}

mounted()
{
    grep -q " $1 " /proc/self/mounts
}

not_mounted()
{
    ! mounted "$1"
}
