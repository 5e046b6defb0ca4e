# tests/scenarios/preloading.sh - for scenarios of programs that read through the preload library:
# $S is the source, $P where the programs of tests/programs are, $LIB the library.
#
# Every command runs without the library first, and then must say the same with it, cold and warm,
# and end the same way.

S=$T/source
P=$FB_BUILD_DIR/tests/programs
LIB=$FB_BUILD_DIR/src/doors/preload/libforebay_preload.so
R=(--source "$S" --cache-dir "$T/cache" --cache-size 512M --memory 256M --metadata-ttl 1h
    --free-space-ratio 0.01 --metrics off)
mkdir -p "$S"
chmod 755 "$S"
[ -e "$LIB" ] || fail "no library: $LIB"

# A library with a sanitizer in it needs programs that have it, too.
foreign_programs()
{
    [ -z "$(LD_PRELOAD=$LIB cat /dev/null 2>&1)" ]
}

need_foreign_programs()
{
    foreign_programs || skip "the library has a sanitizer, and the programs have not"
}

# settle - what was just written is old, and its versions can be trusted (FB_SETTLE_TIME_NS).
settle()
{
    find "$S" -exec touch -h -d '1 hour ago' {} +
    sleep 2.1
}

# with COMMAND... - with the library.
with()
{
    "$FOREBAY" run "${R[@]}" -- "$@"
}

# hold_daemon - it lives until the test ends.
hold_daemon()
{
    with "$P/hold" "$T/held" 2>"$T/hold.err" &
    wait_until 30 test -e "$T/held" || fail "no daemon: $(cat "$T/hold.err")"
}

# same COMMAND... - without the library, cold, and warm; what the warm run opened of the source
# itself is in $T/opened. Standard input is the test's $INPUT.
INPUT=/dev/null
same()
{
    local status=0 got=0
    "$@" >"$T/want" 2>"$T/want.err" <"$INPUT" || status=$?
    [ $status -lt 126 ] || fail "it does not run: status $status: $*: $(tail -5 "$T/want.err")"
    with "$@" >"$T/got" 2>"$T/got.err" <"$INPUT" || got=$?
    same_as "cold: $*" $status $got
    got=0
    "$P/opens" "$T/opened" "$S" -- "$FOREBAY" run "${R[@]}" -- "$@" >"$T/got" 2>"$T/got.err" \
        <"$INPUT" || got=$?
    same_as "warm: $*" $status $got
}

same_as()
{
    [ "$2" = "$3" ] || fail "$1: status $3, not $2: $(tail -5 "$T/got.err")"
    cmp "$T/want" "$T/got" || fail "$1: $(diff -a "$T/want" "$T/got" | head -c 1000)"
    cmp "$T/want.err" "$T/got.err" || fail "$1: $(diff -a "$T/want.err" "$T/got.err" | head -c 1000)"
}

# served COMMAND... - the same, and all of it from the cache: what no room was made for in time the
# first time is there the next.
served()
{
    local try
    for try in 1 2 3; do
        same "$@"
        [ -s "$T/opened" ] || return 0
    done
    fail "not from the cache: $*: $(sort "$T/opened" | uniq -c | head -5)"
}

# counter NAME - of the daemon.
counter()
{
    "$FOREBAY" status --json |
        /usr/bin/python3 -c "import json, sys; print(json.load(sys.stdin)['daemons'][0]['counters']['$1'])"
}
