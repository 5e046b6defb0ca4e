/*
 * VSCSI traces of virtual disks, little-endian and packed.
 *
 * Version 1, 32 bytes: u32 sn, u32 len, u32 nSG, u16 cmd, u16 ver, u64 lbn, u64 time_us.
 * Version 2, 40 bytes: u16 cmd, u16 ver, u32 sn, u32 len, u32 nSG, u64 lbn, u64 time_us, u64 rt.
 * The version is ver >> 8. The key is the block number; reads and writes both count.
 */
#include <endian.h>
#include <string.h>

#include "trace/format_priv.h"

#define V1_SIZE  32
#define V2_SIZE  40
#define LOOK_MAX 16 /* records */

#define US_PER_S 1000000

static uint16_t u16(const uint8_t *p)
{
    uint16_t x;

    memcpy(&x, p, sizeof x);
    return le16toh(x);
}

static uint32_t u32(const uint8_t *p)
{
    uint32_t x;

    memcpy(&x, p, sizeof x);
    return le32toh(x);
}

static uint64_t u64(const uint8_t *p)
{
    uint64_t x;

    memcpy(&x, p, sizeof x);
    return le64toh(x);
}

/* SCSI READ and WRITE of 6, 10, 12 and 16 bytes. */
static bool known_command(uint16_t cmd)
{
    static const uint8_t known[] = {0x08, 0x0a, 0x28, 0x2a, 0xa8, 0xaa, 0x88, 0x8a};

    return cmd <= UINT8_MAX && memchr(known, cmd, sizeof known) != NULL;
}

static bool check(uint16_t cmd, uint16_t ver, unsigned version, const char **ret_why)
{
    if (ver >> 8 != version)
        *ret_why = "its version is another";
    else if (!known_command(cmd))
        *ret_why = "its command is neither read nor write";
    else
        return true;
    return false;
}

static void request(struct fb_trace *trace, uint64_t lbn, uint32_t len, uint64_t time_us,
                    struct fb_trace_request *ret)
{
    if (!trace->time_known) {
        trace->time_known = true;
        trace->time_first = time_us;
    }
    time_us = time_us > trace->time_first ? time_us - trace->time_first : 0;
    *ret = (struct fb_trace_request){lbn, 0, len, (uint32_t)(time_us / US_PER_S)};
}

static bool record_v1(struct fb_trace *trace, const uint8_t *r, struct fb_trace_request *ret,
                      const char **ret_why)
{
    request(trace, u64(r + 16), u32(r + 4), u64(r + 24), ret);
    return check(u16(r + 12), u16(r + 14), 1, ret_why);
}

static bool record_v2(struct fb_trace *trace, const uint8_t *r, struct fb_trace_request *ret,
                      const char **ret_why)
{
    request(trace, u64(r + 16), u32(r + 8), u64(r + 24), ret);
    return check(u16(r), u16(r + 2), 2, ret_why);
}

static bool looks_like_v1(const uint8_t *head, size_t len, bool whole)
{
    const char *why;

    (void)whole;
    for (size_t i = 0; i < LOOK_MAX && (i + 1) * V1_SIZE <= len; i++) {
        const uint8_t *r = head + i * V1_SIZE;

        if (!check(u16(r + 12), u16(r + 14), 1, &why))
            return false;
    }
    return len >= V1_SIZE;
}

static bool looks_like_v2(const uint8_t *head, size_t len, bool whole)
{
    const char *why;

    (void)whole;
    for (size_t i = 0; i < LOOK_MAX && (i + 1) * V2_SIZE <= len; i++) {
        const uint8_t *r = head + i * V2_SIZE;

        if (!check(u16(r), u16(r + 2), 2, &why))
            return false;
    }
    return len >= V2_SIZE;
}

const struct fb_trace_format fb_trace_vscsi1 = {
    .name = "vscsi1",
    .summary = "virtual disks, 32-byte records (VSCSI version 1)",
    .record_size = V1_SIZE,
    .looks_like = looks_like_v1,
    .record = record_v1,
};

const struct fb_trace_format fb_trace_vscsi2 = {
    .name = "vscsi2",
    .summary = "virtual disks, 40-byte records (VSCSI version 2)",
    .record_size = V2_SIZE,
    .looks_like = looks_like_v2,
    .record = record_v2,
};
