#include "cache/epoch_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/checksum.h"
#include "core/mem.h"
#include "io/durable.h"

#define MAGIC       UINT64_C(0x4e414c5059424546) /* "FEBYPLAN" */
#define EPOCH_MAGIC UINT64_C(0x48434f5059424546)
#define VERSION     1u
#define NAME_SIZE   32
#define PIECE_BYTES (64u << 10) /* summed at a time */
#define TEXT_MAX    (UINT64_C(64) << 30)

struct head {
    uint64_t magic;
    uint32_t version;
    uint32_t files;
    uint64_t text_bytes;
    uint64_t text_sum;
    char sampler[32];
    uint64_t seed;
    uint64_t first_epoch;
    uint64_t epochs;
    uint64_t chunk_bytes;
    uint32_t rule;
    uint32_t generator;
    uint32_t world;
    uint32_t rank;
    uint32_t batch;
    uint32_t workers;
    uint8_t persistent_workers;
    uint8_t old_randperm;
    uint8_t drop_last;
    uint8_t drop_uneven;
    uint8_t found;
    uint8_t zero[3];
    uint64_t sum; /* of all before it */
};

static_assert(sizeof(struct head) == 136, "on disk");

struct epoch_file {
    uint64_t magic;
    uint64_t epoch;
    uint64_t sum;
};

static const char *file_name(char name[NAME_SIZE], unsigned number, const char *suffix)
{
    snprintf(name, NAME_SIZE, "plan.%u%s", number, suffix);
    return name;
}

void fb_saved_plan_clear(struct fb_saved_plan *saved)
{
    free(saved->uri);
    free(saved->dir);
    fb_names_free(saved->names);
    *saved = (struct fb_saved_plan){0};
}

/* ---- writing ---- */

struct writer {
    int fd;
    int error;
    uint64_t bytes;
    uint64_t sum;
    uint32_t held;
    uint8_t piece[PIECE_BYTES];
};

static void flush_piece(struct writer *w)
{
    uint32_t done = 0;

    if (w->held == 0 || w->error)
        return;
    w->sum = fb_mix64(w->sum ^ fb_checksum(w->piece, w->held));
    w->bytes += w->held;
    while (done < w->held && !w->error) {
        ssize_t n = write(w->fd, w->piece + done, w->held - done);

        if (n < 0 && errno != EINTR)
            w->error = -errno;
        done += n > 0 ? (uint32_t)n : 0;
    }
    w->held = 0;
}

static void put(struct writer *w, const char *text, size_t len)
{
    while (len > 0) {
        size_t part = fb_min_u64(len, PIECE_BYTES - w->held);

        memcpy(w->piece + w->held, text, part);
        w->held += (uint32_t)part;
        text += part;
        len -= part;
        if (w->held == PIECE_BYTES)
            flush_piece(w);
    }
}

static struct head make_head(const struct fb_saved_plan *plan, const struct writer *w)
{
    const struct fb_plan_spec *spec = &plan->order.spec;
    struct head head = {
        .magic = MAGIC,
        .version = VERSION,
        .files = fb_names_count(plan->names),
        .text_bytes = w->bytes,
        .text_sum = w->sum,
        .seed = spec->shuffle.seed,
        .first_epoch = plan->first_epoch,
        .epochs = plan->order.epochs,
        .chunk_bytes = spec->chunk_bytes,
        .rule = spec->shuffle.rule,
        .generator = spec->shuffle.generator,
        .world = spec->split.world,
        .rank = spec->split.rank,
        .batch = spec->split.batch,
        .workers = spec->split.workers,
        .persistent_workers = spec->shuffle.persistent_workers,
        .old_randperm = spec->shuffle.old_randperm,
        .drop_last = spec->split.drop_last,
        .drop_uneven = spec->split.drop_uneven,
        .found = plan->found,
    };

    snprintf(head.sampler, sizeof head.sampler, "%s", spec->shuffle.sampler->name);
    head.sum = fb_checksum(&head, offsetof(struct head, sum));
    return head;
}

static void put_text(struct writer *w, const struct fb_saved_plan *plan)
{
    char path[FB_NAMES_PATH_SIZE];

    put(w, plan->uri, strlen(plan->uri) + 1);
    put(w, plan->dir, strlen(plan->dir) + 1);
    for (uint32_t i = 0; i < fb_names_count(plan->names) && !w->error; i++)
        put(w, path, fb_names_path(plan->names, i, path) + 1);
    flush_piece(w);
}

/* The head, which knows the sum of the rest, is written last, in its place. */
static int write_plan(struct writer *w, const struct fb_saved_plan *plan)
{
    struct head head = {0};

    if (write(w->fd, &head, sizeof head) != (ssize_t)sizeof head)
        return -EIO;
    put_text(w, plan);
    if (w->error)
        return w->error;
    head = make_head(plan, w);
    if (pwrite(w->fd, &head, sizeof head, 0) != (ssize_t)sizeof head)
        return -EIO;
    return fsync(w->fd) < 0 ? -errno : 0;
}

int fb_plan_save(int dir_fd, unsigned number, const struct fb_saved_plan *plan)
{
    char name[NAME_SIZE], temporary[NAME_SIZE];
    FB_AUTO_FREE struct writer *w = fb_alloc(sizeof *w);
    int rc;

    if (!w)
        return -ENOMEM;
    fb_plan_unsave(dir_fd, number);
    file_name(name, number, "");
    file_name(temporary, number, ".tmp");
    w->fd = openat(dir_fd, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (w->fd < 0)
        return -errno;
    rc = write_plan(w, plan);
    close(w->fd);
    if (rc == 0 && renameat(dir_fd, temporary, dir_fd, name) < 0)
        rc = -errno;
    if (rc == 0 && fsync(dir_fd) < 0)
        rc = -errno;
    if (rc < 0)
        (void)unlinkat(dir_fd, temporary, 0);
    return rc;
}

int fb_plan_save_epoch(int dir_fd, unsigned number, uint64_t epoch)
{
    struct epoch_file file = {.magic = EPOCH_MAGIC, .epoch = epoch};
    char name[NAME_SIZE];

    file.sum = fb_checksum(&file, offsetof(struct epoch_file, sum));
    return fb_durable_write(dir_fd, file_name(name, number, ".epoch"), &file, sizeof file);
}

void fb_plan_unsave(int dir_fd, unsigned number)
{
    char name[NAME_SIZE];

    (void)unlinkat(dir_fd, file_name(name, number, ".epoch"), 0);
    (void)unlinkat(dir_fd, file_name(name, number, ""), 0);
}

/* ---- reading ---- */

static uint64_t load_epoch(int dir_fd, unsigned number, uint64_t first)
{
    FB_AUTO_FREE char *data = NULL;
    struct epoch_file file;
    char name[NAME_SIZE];
    size_t size;

    if (fb_durable_read(dir_fd, file_name(name, number, ".epoch"), sizeof file, &data, &size) < 0 ||
        size != sizeof file)
        return first;
    memcpy(&file, data, sizeof file);
    if (file.magic != EPOCH_MAGIC ||
        file.sum != fb_checksum(&file, offsetof(struct epoch_file, sum)))
        return first;
    return fb_max_u64(file.epoch, first);
}

static int take_head(const struct head *head, struct fb_saved_plan *plan)
{
    const struct fb_sampler *sampler;

    if (head->magic != MAGIC || head->version != VERSION ||
        head->sum != fb_checksum(head, offsetof(struct head, sum)) || head->text_bytes > TEXT_MAX ||
        !memchr(head->sampler, 0, sizeof head->sampler))
        return -EBADMSG;
    sampler = fb_sampler_find(head->sampler);
    if (!sampler || head->rule > FB_EPOCH_FIXED || head->generator > FB_TORCH_SAMPLER)
        return -EBADMSG;
    plan->first_epoch = head->first_epoch;
    plan->found = head->found;
    plan->order = (struct fb_plan_order){
        .epochs = head->epochs,
        .spec = {.shuffle = {.sampler = sampler,
                             .seed = head->seed,
                             .rule = (enum fb_epoch_rule)head->rule,
                             .generator = (enum fb_torch_generator)head->generator,
                             .persistent_workers = head->persistent_workers,
                             .old_randperm = head->old_randperm},
                 .split = {.world = head->world,
                           .rank = head->rank,
                           .batch = head->batch,
                           .workers = head->workers,
                           .drop_last = head->drop_last,
                           .drop_uneven = head->drop_uneven},
                 .chunk_bytes = head->chunk_bytes},
    };
    return 0;
}

/* Texts come in pieces; a path may lie in two. */
struct reader {
    int fd;
    uint64_t left;
    uint64_t sum;
    uint32_t at, held;
    uint8_t piece[PIECE_BYTES];
};

static int next_piece(struct reader *r)
{
    uint32_t want = (uint32_t)fb_min_u64(r->left, PIECE_BYTES), got = 0;

    while (got < want) {
        ssize_t n = read(r->fd, r->piece + got, want - got);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EBADMSG;
        got += (uint32_t)n;
    }
    r->sum = fb_mix64(r->sum ^ fb_checksum(r->piece, want));
    r->left -= want;
    r->held = want;
    r->at = 0;
    return want ? 0 : -EBADMSG;
}

static int next_text(struct reader *r, char text[FB_NAMES_PATH_SIZE], size_t *ret_len)
{
    size_t len = 0;
    int rc;

    for (;;) {
        if (r->at == r->held && (rc = next_piece(r)) < 0)
            return rc;
        if (len == FB_NAMES_PATH_SIZE)
            return -EBADMSG;
        text[len] = (char)r->piece[r->at++];
        if (text[len] == 0)
            break;
        len++;
    }
    *ret_len = len;
    return 0;
}

static int read_names(struct reader *r, const struct head *head, uint64_t most_bytes,
                      struct fb_saved_plan *plan)
{
    char path[FB_NAMES_PATH_SIZE];
    size_t len;
    int rc = 0;

    plan->names = fb_names_new();
    if (!plan->names)
        return -ENOMEM;
    for (uint32_t i = 0; i < head->files && rc == 0; i++) {
        rc = next_text(r, path, &len);
        if (rc == 0)
            rc = fb_names_add_path(plan->names, path, len, FB_NAMES_NO_SIZE);
        if (rc == 0 && fb_names_memory(plan->names) > most_bytes)
            rc = -E2BIG;
    }
    if (rc == 0 && (r->left > 0 || r->at != r->held || r->sum != head->text_sum))
        rc = -EBADMSG;
    return rc == 0 ? fb_names_index(plan->names) : rc;
}

static int read_text(struct reader *r, const struct head *head, uint64_t names_bytes,
                     struct fb_saved_plan *plan)
{
    char text[FB_NAMES_PATH_SIZE];
    size_t len;
    int rc = next_text(r, text, &len);

    if (rc == 0) {
        plan->uri = fb_strdup(text);
        rc = next_text(r, text, &len);
    }
    if (rc == 0) {
        plan->dir = fb_strdup(text);
        rc = plan->uri && plan->dir ? 0 : -ENOMEM;
    }
    return rc == 0 && names_bytes > 0 ? read_names(r, head, names_bytes, plan) : rc;
}

int fb_plan_load(int dir_fd, unsigned number, uint64_t names_bytes, struct fb_saved_plan *ret_plan)
{
    char name[NAME_SIZE];
    FB_AUTO_FREE struct reader *r = fb_alloc(sizeof *r);
    FB_AUTO_CLOSE int fd = openat(dir_fd, file_name(name, number, ""), O_RDONLY | O_CLOEXEC);
    struct fb_saved_plan plan = {0};
    struct head head;
    int rc;

    if (!r)
        return -ENOMEM;
    if (fd < 0)
        return -errno;
    if (read(fd, &head, sizeof head) != (ssize_t)sizeof head)
        return -EBADMSG;
    rc = take_head(&head, &plan);
    r->fd = fd;
    r->left = head.text_bytes;
    if (rc == 0)
        rc = read_text(r, &head, names_bytes, &plan);
    if (rc < 0) {
        fb_saved_plan_clear(&plan);
        return rc;
    }
    plan.order.spec.first_epoch = load_epoch(dir_fd, number, plan.first_epoch);
    *ret_plan = plan;
    return 0;
}
