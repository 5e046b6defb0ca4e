# tests/faults/budget.sh - sourced after mounts.sh by the tests of budgets: 1 GiB goes through a
# daemon that may have 128 MiB of memory and 96 MiB of disk.

MEMORY=128         # MiB
DISK=96            # MiB
SMALL=2000         # files
LARGE=30           # files of 32 MiB, sparse: reading them costs no disk
LARGE_BYTES=$((32 << 20))

make_source()
{
    local i
    "$TOOL" make "$T/source" $SMALL
    for i in $(seq $LARGE); do
        truncate -s $LARGE_BYTES "$T/source/large$i"
        touch -d '+1 hour' "$T/source/large$i"
    done
}

# mount_small FLAG... - of $SLOW where that is set.
mount_small()
{
    mkdir -p "$T/mnt"
    timeout 60 "$FOREBAY" mount "${SLOW:-$T/source}" "$T/mnt" --memory ${MEMORY}M \
        --cache-dir "$T/cache" --cache-size ${DISK}M --free-space-ratio 0.01 --metrics off "$@"
}

read_all()
{
    local i
    for _ in 1 2; do
        check "$TOOL" verify "$T/mnt" "$T/source" 0 $SMALL direct
    done
    for i in $(seq $LARGE); do
        check cmp -n $LARGE_BYTES "$T/mnt/large$i" /dev/zero
    done
    check "$TOOL" verify "$T/mnt" "$T/source" 0 $SMALL direct
}
