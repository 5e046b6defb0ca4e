/*
 * Who is in which lane: a message stays in its lane to its end, then the next one takes it. All
 * lanes go on together by as many blocks as each has in one piece; an empty one goes along with
 * another's bytes, and nobody looks at what it makes of them.
 */
#include "source/s3_md5.h"

#include <string.h>
#if defined(__x86_64__)
# include <sys/platform/x86.h>
#endif

#define LANES FB_S3_MD5_LANES
#define BLOCK FB_S3_MD5_BLOCK

struct lane {
    const struct fb_s3_md5 *message; /* NULL: empty */
    size_t at;                       /* where it goes on, in the piece `iov` */
    uint64_t length;                 /* so far */
    const uint8_t *data;             /* what is next, in one piece */
    size_t blocks;
    unsigned iov;
    bool last;               /* there is nothing behind it */
    uint8_t seam[2 * BLOCK]; /* what lies across pieces, and the end */
};

bool fb_s3_md5_able(void)
{
#if defined(__x86_64__)
    return CPU_FEATURE_ACTIVE(AVX2);
#else
    return false;
#endif
}

static fb_s3_md5_fn *blocks_fn(void)
{
#if defined(__x86_64__)
    /* Not CPU_FEATURE_ACTIVE(): glibc's shifts into the sign for this one. */
    return __builtin_cpu_supports("avx512vl") ? fb_s3_md5_blocks_avx512 : fb_s3_md5_blocks_avx2;
#else
    return NULL;
#endif
}

/* What is left, a one bit, zeros, and the length in bits. */
static void finish(struct lane *lane, size_t filled)
{
    uint64_t bits = lane->length * 8;

    lane->blocks = filled + 1 + sizeof bits <= BLOCK ? 1 : 2;
    memset(lane->seam + filled, 0, lane->blocks * BLOCK - filled);
    lane->seam[filled] = 0x80;
    memcpy(lane->seam + lane->blocks * BLOCK - sizeof bits, &bits, sizeof bits);
    lane->data = lane->seam;
    lane->last = true;
}

static void refill(struct lane *lane)
{
    size_t filled = 0;

    for (; lane->iov < lane->message->count; lane->iov++, lane->at = 0) {
        const struct iovec *iov = &lane->message->iov[lane->iov];
        const uint8_t *from = (const uint8_t *)iov->iov_base + lane->at;
        size_t left = iov->iov_len - lane->at, n = left;

        if (left == 0)
            continue;
        if (filled == 0 && left >= BLOCK) {
            lane->data = from;
            lane->blocks = left / BLOCK;
            lane->at += lane->blocks * BLOCK;
            lane->length += lane->blocks * BLOCK;
            return;
        }
        if (n > BLOCK - filled)
            n = BLOCK - filled;
        memcpy(lane->seam + filled, from, n);
        filled += n;
        lane->at += n;
        lane->length += n;
        if (filled == BLOCK) {
            lane->data = lane->seam;
            lane->blocks = 1;
            return;
        }
    }
    finish(lane, filled);
}

static void enter(struct lane *lane, const struct fb_s3_md5 *message, uint32_t state[4][LANES],
                  unsigned no)
{
    static const uint32_t first[4] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};

    for (unsigned i = 0; i < 4; i++)
        state[i][no] = first[i];
    lane->message = message;
    lane->iov = 0;
    lane->at = 0;
    lane->length = 0;
    lane->last = false;
    refill(lane);
}

static void leave(struct lane *lane, uint32_t state[4][LANES], unsigned no)
{
    for (unsigned i = 0; i < 4; i++)
        memcpy(lane->message->digest + 4 * i, &state[i][no], 4);
    lane->message = NULL;
}

/* So many blocks of all that are there. */
static void advance(struct lane lanes[LANES], uint32_t state[4][LANES], size_t blocks)
{
    const uint8_t *data[LANES], *some = NULL;

    for (unsigned i = 0; i < LANES; i++) {
        if (lanes[i].message)
            some = lanes[i].data;
    }
    for (unsigned i = 0; i < LANES; i++)
        data[i] = lanes[i].message ? lanes[i].data : some;
    blocks_fn()(state, data, blocks);
    for (unsigned i = 0; i < LANES; i++) {
        if (!lanes[i].message)
            continue;
        lanes[i].data += blocks * BLOCK;
        lanes[i].blocks -= blocks;
        if (lanes[i].blocks > 0)
            continue;
        if (lanes[i].last)
            leave(&lanes[i], state, i);
        else
            refill(&lanes[i]);
    }
}

void fb_s3_md5_all(const struct fb_s3_md5 *messages, unsigned count)
{
    struct lane lanes[LANES] = {{0}};
    uint32_t state[4][LANES] = {{0}};
    unsigned next = 0;

    for (;;) {
        size_t blocks = 0;

        for (unsigned i = 0; i < LANES; i++) {
            if (!lanes[i].message && next < count)
                enter(&lanes[i], &messages[next++], state, i);
            if (lanes[i].message && (blocks == 0 || lanes[i].blocks < blocks))
                blocks = lanes[i].blocks;
        }
        if (blocks == 0)
            return;
        advance(lanes, state, blocks);
    }
}
