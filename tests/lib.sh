# tests/lib.sh - what scenario, crash and fault tests share. A test is an executable dropped into
# tests/scenarios, tests/crash or tests/faults; written in bash, it begins with
#
#     #!/bin/bash
#     . "$(dirname "$0")/../lib.sh"
#
# and finds $FOREBAY (the program), $T (a private directory) and $FOREBAY_RUNTIME_DIR ($T/run). Exit
# 0 = passed, 77 = skipped, else failed; a command that fails unchecked fails the test. What is
# still mounted below $T or running at the end is unmounted and ended, and $T removed, by
# tools/run-test, however the test ends. To run one by hand: [FOREBAY=...] tests/scenarios/NAME;
# FB_TEST_KEEP=1 keeps $T of a failed one.

FB_SOURCE_DIR=${FB_SOURCE_DIR:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)}
FB_BUILD_DIR=${FB_BUILD_DIR:-$FB_SOURCE_DIR/build/gcc}
FOREBAY=${FOREBAY:-$FB_BUILD_DIR/src/cli/forebay}
export FB_SOURCE_DIR FB_BUILD_DIR FOREBAY

# Started by hand: come back through the runner.
[ -n "${T:-}" ] && [ "${FOREBAY_RUNTIME_DIR:-}" = "$T/run" ] ||
    exec "$FB_SOURCE_DIR/tools/run-test" "$0" "$@"

set -eEuo pipefail
trap 'echo "$0:$LINENO: failed ($?): $BASH_COMMAND" >&2' ERR

# fail MESSAGE... - end the test as failed.
fail()
{
    fail_at "${BASH_LINENO[0]}" "$*"
}

# fail_at LINE MESSAGE - with what daemons have said last. Some of what lies in $T may hang.
fail_at()
{
    echo "FAIL: ${0##*/}:$1: $2" >&2
    timeout -s KILL 10 find "$T" -mindepth 2 -maxdepth 2 -xdev -name forebay.log -size +0 \
        -printf '%P ends:\n' -exec tail -n 12 {} \; >&2 || true
    exit 1
}

# skip MESSAGE... - end the test as skipped; tools/allowed-skips must name it.
skip()
{
    echo "SKIP: $*" >&2
    exit 77
}

# check COMMAND... - the command must succeed.
check()
{
    local status=0
    "$@" || status=$?
    [ $status -eq 0 ] || fail_at "${BASH_LINENO[0]}" "status $status: $*"
}

# refuse COMMAND... - the command must fail, but not by a signal or because it does not exist.
refuse()
{
    local status=0
    "$@" || status=$?
    [ $status -ne 0 ] && [ $status -lt 126 ] || {
        echo "FAIL: ${0##*/}:${BASH_LINENO[0]}: status $status, expected a refusal: $*" >&2
        exit 1
    }
}

# find_traces - real traces, which are not ours to carry, are in $FOREBAY_TRACES, or else beside the
# project; without them the test is skipped.
find_traces()
{
    FOREBAY_TRACES=${FOREBAY_TRACES:-$FB_SOURCE_DIR/../shared/traces}
    [ -e "$FOREBAY_TRACES/reference-miss-ratios.csv" ] ||
        skip "there are no traces at $FOREBAY_TRACES; say where with FOREBAY_TRACES"
    export FOREBAY_TRACES
}

# for_everybody [PROGRAM...] - from now on $FOREBAY, with its library, is where every user may read
# it, and so are the programs, in $T/tree: where they were built others may not look.
for_everybody()
{
    local lib
    lib=$(dirname "$FOREBAY")/../doors/preload/libforebay_preload.so
    mkdir -p "$T/tree/cli" "$T/tree/doors/preload"
    cp "$FOREBAY" "$T/tree/cli/forebay"
    [ ! -e "$lib" ] || cp "$lib" "$T/tree/doors/preload/"
    [ $# -eq 0 ] || cp "$@" "$T/tree/"
    chmod -R a+rX "$T/tree"
    FOREBAY=$T/tree/cli/forebay
}

# wait_until SECONDS COMMAND... - poll until the command succeeds; 1 when the time is over. That is
# never before WAIT_MIN_S: a machine may be slow, and whoever fails has time.
WAIT_MIN_S=60
wait_until()
{
    local end=$((${EPOCHREALTIME//[.,]/} + ($1 > WAIT_MIN_S ? $1 : WAIT_MIN_S) * 1000000))
    shift
    until "$@"; do
        [ "${EPOCHREALTIME//[.,]/}" -lt $end ] || return 1
        sleep 0.05
    done
}

# freeze PID - SIGSTOP, and wait until all of its threads stand still: until the first has seen to
# it the others may go on answering.
freeze()
{
    kill -STOP "$1"
    check wait_until 10 stands_still "$1"
}

stands_still() { ! grep -hs '^State:' "/proc/$1"/task/*/status | grep -qv 'T (stopped)'; }
