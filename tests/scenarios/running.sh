# tests/scenarios/running.sh - for scenarios of `forebay run`: $S is the source, $C the cache
# directory, R the flags that both need. They hold with the preload library and without: each
# library FUNCTION runs once with one that does nothing and, where this build has one that programs
# can load, once with that.

S=$T/source
C=$T/cache
R=(--source "$S" --cache-dir "$C" --cache-size 64M --memory 96M --metrics off)
mkdir -p "$S"
chmod 755 "$S"

# has PATTERN - reads to the end, or the writer would be killed by a closed pipe.
has()
{
    grep "$@" >/dev/null
}

# json EXPRESSION - of `d`, the daemons in `forebay status --json`.
json()
{
    "$FOREBAY" status --json |
        /usr/bin/python3 -c "import json, sys; d = json.load(sys.stdin)['daemons']; print($1)"
}

nobody_left()
{
    [ -z "$(ls "$FOREBAY_RUNTIME_DIR")" ]
}

# expect_nobody - the daemon has ended, or does so soon, and has removed its sockets.
expect_nobody()
{
    wait_until 20 nobody_left || fail "the daemon lives on: $("$FOREBAY" status)"
}

# expect_status STATUS COMMAND... - the command ends so.
expect_status()
{
    local status=0 expected=$1
    shift
    "$@" || status=$?
    [ $status -eq "$expected" ] || fail "status $status, expected $expected: $*"
}

# no_library - programs are not given the preload library.
no_library()
{
    echo 'int forebay_nothing;' >"$T/nothing.c"
    cc -shared -fPIC -o "$T/nothing.so" "$T/nothing.c"
    export FOREBAY_PRELOAD_LIB=$T/nothing.so
}

each_library()
{
    local real
    real=$(dirname "$FOREBAY")/../doors/preload/libforebay_preload.so
    no_library
    "$@"
    # A library with a sanitizer in it needs programs that have it, too.
    if [ -e "$real" ] && [ -z "$(LD_PRELOAD=$real cat /dev/null 2>&1)" ]; then
        unset FOREBAY_PRELOAD_LIB
        rm -rf "$C"
        "$@"
    fi
}
