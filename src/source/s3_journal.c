#include "source/s3_journal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"
#include "io/durable.h"
#include "source/s3_journal_priv.h"
#include "source/s3_key.h"

#define HEAD         "forebay-uploads 1"
#define SUM_CHARS    16
#define FIELDS_MAX   6
#define BEGIN_FIELDS 6
#define END_FIELDS   2

/* ---- lines ----------------------------------------------------------------------------------- */

static uint64_t checksum(const char *line, size_t len)
{
    return fb_hash64(line, len);
}

/* Ends the line that begins at `start`. */
static void put_sum(struct fb_s3_text *text, size_t start)
{
    char sum[SUM_CHARS + 3];

    if (!fb_s3_text_ok(text))
        return;
    snprintf(sum, sizeof sum, " %016" PRIx64 "\n", checksum(text->data + start, text->len - start));
    fb_s3_text_adds(text, sum);
}

static void put_head(struct fb_s3_text *text)
{
    size_t start = text->len;

    fb_s3_text_adds(text, HEAD);
    put_sum(text, start);
}

static void put_name(struct fb_s3_text *text, const char *name)
{
    fb_s3_text_addc(text, ' ');
    fb_s3_text_add_encoded(text, name, strlen(name), true);
}

static void put_begin(struct fb_s3_text *text, uint64_t ticket, const struct fb_s3_upload *upload)
{
    char begin[32], asked[32];
    size_t start = text->len;

    snprintf(begin, sizeof begin, "%s %" PRIu64, upload->id ? "begin" : "ask", ticket);
    snprintf(asked, sizeof asked, "%" PRId64, upload->asked_s);
    fb_s3_text_adds(text, begin);
    put_name(text, upload->endpoint);
    put_name(text, upload->bucket);
    put_name(text, upload->key);
    put_name(text, upload->id ? upload->id : asked);
    put_sum(text, start);
}

static void put_end(struct fb_s3_text *text, uint64_t ticket)
{
    char end[32];
    size_t start = text->len;

    snprintf(end, sizeof end, "end %" PRIu64, ticket);
    fb_s3_text_adds(text, end);
    put_sum(text, start);
}

/* Whether the checksum at the end of the line is right; *ret_len is the length before it. */
static bool sum_ok(const char *line, size_t len, size_t *ret_len)
{
    uint64_t sum = 0;

    if (len < SUM_CHARS + 1 || line[len - SUM_CHARS - 1] != ' ')
        return false;
    for (size_t i = len - SUM_CHARS; i < len; i++) {
        int digit = fb_s3_hex_digit(line[i]);

        if (digit < 0 || (line[i] >= 'A' && line[i] <= 'F'))
            return false;
        sum = sum << 4 | (uint64_t)digit;
    }
    *ret_len = len - SUM_CHARS - 1;
    return sum == checksum(line, *ret_len);
}

/* ---- reading --------------------------------------------------------------------------------- */

static struct upload *find(struct fb_s3_journal *journal, uint64_t ticket)
{
    struct fb_list *it, *tmp;

    FB_LIST_FOREACH (it, tmp, &journal->uploads) {
        struct upload *upload = FB_LIST_ENTRY(it, struct upload, link);

        if (upload->ticket == ticket)
            return upload;
    }
    return NULL;
}

static int add(struct fb_s3_journal *journal, uint64_t ticket, const char *line, size_t len)
{
    struct upload *upload = fb_alloc(sizeof *upload + len);

    if (!upload)
        return -ENOMEM;
    upload->ticket = ticket;
    upload->len = len;
    memcpy(upload->line, line, len);
    fb_list_push_back(&journal->uploads, &upload->link);
    journal->count++;
    journal->live_bytes += len;
    return 0;
}

static void drop(struct fb_s3_journal *journal, struct upload *upload)
{
    fb_list_remove(&upload->link);
    journal->count--;
    journal->live_bytes -= upload->len;
    free(upload);
}

static bool parse_ticket(const char *text, uint64_t *ret_ticket)
{
    uint64_t ticket = 0;

    for (; *text >= '0' && *text <= '9' && ticket < UINT64_MAX / 100; text++)
        ticket = ticket * 10 + (uint64_t)(*text - '0');
    *ret_ticket = ticket;
    return !*text && ticket > 0;
}

/* NULL without memory. */
static char *copy_text(const char *text, size_t len)
{
    char *copy = fb_alloc(len + 1);

    if (copy)
        memcpy(copy, text, len);
    return copy;
}

/* Cuts a copy of a line into its words; 0 when there are too many. */
static unsigned split(char *line, char *ret_words[FIELDS_MAX])
{
    unsigned count = 0;
    char *word;

    while ((word = strsep(&line, " "))) {
        if (count == FIELDS_MAX)
            return 0;
        ret_words[count++] = word;
    }
    return count;
}

static bool decode(char *name)
{
    ssize_t len = fb_s3_decode(name, strlen(name));

    if (len < 0 || memchr(name, 0, (size_t)len))
        return false;
    name[len] = '\0';
    return true;
}

/* One line with a right checksum; `len` is that of the line with its end. */
static int take_line(struct fb_s3_journal *journal, char *words[FIELDS_MAX], unsigned count,
                     const char *line, size_t len)
{
    struct upload *known;
    uint64_t ticket;

    if (count < 2 || !parse_ticket(words[1], &ticket))
        return 0;
    known = find(journal, ticket);
    journal->last_ticket = ticket > journal->last_ticket ? ticket : journal->last_ticket;
    if (count == END_FIELDS && !strcmp(words[0], "end") && known)
        drop(journal, known);
    else if (count == BEGIN_FIELDS && (!strcmp(words[0], "begin") || !strcmp(words[0], "ask")) &&
             !known && journal->count < FB_S3_UPLOADS_MAX)
        return add(journal, ticket, line, len);
    return 0;
}

/* `data` is zero-terminated. */
static int read_lines(struct fb_s3_journal *journal, const char *data, size_t size,
                      unsigned *ret_damaged)
{
    int r = 0;

    for (const char *line = data; r == 0 && line < data + size;) {
        const char *end = memchr(line, '\n', (size_t)(data + size - line));
        size_t len = end ? (size_t)(end - line) : (size_t)(data + size - line), inner;
        FB_AUTO_FREE char *copy = NULL;
        char *words[FIELDS_MAX];

        if (!end || !sum_ok(line, len, &inner)) {
            *ret_damaged += len > 0;
        } else {
            copy = copy_text(line, inner);
            if (!copy)
                return -ENOMEM;
            r = take_line(journal, words, split(copy, words), line, len + 1);
        }
        line += len + 1;
    }
    return r;
}

static int read_file(struct fb_s3_journal *journal, bool *ret_found, struct fb_error *err)
{
    FB_AUTO_FREE char *data = NULL;
    unsigned damaged = 0;
    size_t size = 0;
    int r = fb_durable_read(journal->dir_fd, journal->name, FB_S3_JOURNAL_MAX, &data, &size);

    if (r == -ENOENT)
        return 0;
    if (r < 0)
        return fb_error_set(err, r, "cannot read the journal of uploads %s: %s", journal->name,
                            fb_strerror(r));
    *ret_found = true;
    r = read_lines(journal, data, size, &damaged);
    if (damaged > 0)
        fb_log_warn("the journal of uploads %s has %u damaged lines", journal->name, damaged);
    return r;
}

/* ---- records --------------------------------------------------------------------------------- */

static bool name_ok(const char *name)
{
    return *name && strlen(name) <= FB_S3_JOURNAL_FIELD_MAX;
}

char *fb_s3_journal_image(struct fb_s3_journal *journal, size_t *ret_size)
{
    struct fb_list *it, *tmp;
    struct fb_s3_text *head = &journal->text;
    size_t size;
    char *image;

    fb_s3_text_clear(head);
    put_head(head);
    image = fb_s3_text_ok(head) ? fb_alloc(head->len + journal->live_bytes) : NULL;
    if (!image)
        return NULL;
    memcpy(image, head->data, head->len);
    size = head->len;
    FB_LIST_FOREACH (it, tmp, &journal->uploads) {
        const struct upload *upload = FB_LIST_ENTRY(it, struct upload, link);

        memcpy(image + size, upload->line, upload->len);
        size += upload->len;
    }
    *ret_size = size;
    return image;
}

static int begin(struct fb_s3_journal *journal, const struct fb_s3_upload *upload,
                 uint64_t *ret_ticket) FB_REQUIRES(&journal->lock)
{
    uint64_t ticket = journal->last_ticket + 1;
    struct upload *begun;
    int r;

    if (journal->count == FB_S3_UPLOADS_MAX)
        return -EAGAIN;
    fb_s3_text_clear(&journal->text);
    put_begin(&journal->text, ticket, upload);
    r = fb_s3_text_ok(&journal->text) ? add(journal, ticket, journal->text.data, journal->text.len)
                                      : -ENOMEM;
    if (r < 0)
        return r;
    begun = FB_LIST_ENTRY(journal->uploads.prev, struct upload, link);
    r = fb_s3_journal_queue(journal, &journal->text);
    if (r < 0) {
        drop(journal, begun);
        return r;
    }
    begun->taken = true;
    begun->asked = !upload->id;
    begun->batch = journal->batch;
    begun->since_ns = fb_now_ns();
    journal->flushes = true;
    journal->last_ticket = ticket;
    *ret_ticket = ticket;
    return 0;
}

int fb_s3_journal_begin(struct fb_s3_journal *journal, const struct fb_s3_upload *upload,
                        uint64_t *ret_ticket)
{
    int r;

    if (!name_ok(upload->endpoint) || !name_ok(upload->bucket) || !name_ok(upload->key) ||
        (upload->id && !name_ok(upload->id)))
        return -ENAMETOOLONG;
    fb_mutex_lock(&journal->lock);
    r = begin(journal, upload, ret_ticket);
    fb_mutex_unlock(&journal->lock);
    return r;
}

void fb_s3_journal_end(struct fb_s3_journal *journal, uint64_t ticket)
{
    struct upload *upload;
    int r = 0;

    fb_mutex_lock(&journal->lock);
    upload = find(journal, ticket);
    if (upload) {
        drop(journal, upload);
        fb_s3_text_clear(&journal->text);
        put_end(&journal->text, ticket);
        r = fb_s3_journal_queue(journal, &journal->text);
    }
    fb_mutex_unlock(&journal->lock);
    if (r < 0)
        fb_log_warn("cannot write to the journal of uploads %s: %s", journal->name, fb_strerror(r));
}

int64_t fb_s3_journal_until(struct fb_s3_journal *journal, uint64_t ticket, int64_t patience_ns)
{
    const struct upload *upload;
    int64_t until_ns = 0;

    fb_mutex_lock(&journal->lock);
    upload = find(journal, ticket);
    if (upload && upload->batch > (upload->asked ? journal->written : journal->flushed)) {
        until_ns = upload->since_ns;
        /* Whoever comes later does not wait for what others have given up. */
        if (journal->busy_since_ns > 0 && journal->busy_since_ns < until_ns)
            until_ns = journal->busy_since_ns;
        until_ns += patience_ns;
    }
    if (until_ns > 0 && until_ns <= fb_now_ns()) {
        until_ns = 0;
        if (!journal->told)
            fb_log_warn("the disk of the journal of uploads %s does not answer; uploads go on, but "
                        "parts of one that a crash cuts off now may stay in its bucket",
                        journal->name);
        journal->told = true;
    }
    fb_mutex_unlock(&journal->lock);
    return until_ns;
}

void fb_s3_journal_watch(struct fb_s3_journal *journal, struct fb_s3_journal_watch *watch)
{
    fb_mutex_lock(&journal->lock);
    fb_list_push_back(&journal->watchers, &watch->link);
    fb_mutex_unlock(&journal->lock);
}

void fb_s3_journal_unwatch(struct fb_s3_journal *journal, struct fb_s3_journal_watch *watch)
{
    fb_mutex_lock(&journal->lock);
    fb_list_remove(&watch->link);
    fb_mutex_unlock(&journal->lock);
}

bool fb_s3_journal_knows(struct fb_s3_journal *journal, const char *id)
{
    struct fb_list *it, *tmp;
    bool known = false;

    fb_mutex_lock(&journal->lock);
    /* As it stands in a line: a word of its own. */
    fb_s3_text_clear(&journal->text);
    put_name(&journal->text, id);
    fb_s3_text_addc(&journal->text, ' ');
    FB_LIST_FOREACH (it, tmp, &journal->uploads) {
        const struct upload *upload = FB_LIST_ENTRY(it, struct upload, link);

        known |= fb_s3_text_ok(&journal->text) &&
                 memmem(upload->line, upload->len, journal->text.data, journal->text.len);
    }
    fb_mutex_unlock(&journal->lock);
    return known;
}

unsigned fb_s3_journal_count(struct fb_s3_journal *journal)
{
    unsigned count;

    fb_mutex_lock(&journal->lock);
    count = journal->count;
    fb_mutex_unlock(&journal->lock);
    return count;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* The lock is held, or nobody else knows the journal yet. */
static int tell(struct fb_s3_journal *journal, fb_s3_upload_fn *left, void *arg)
{
    struct fb_list *it, *tmp;

    FB_LIST_FOREACH (it, tmp, &journal->uploads) {
        struct upload *upload = FB_LIST_ENTRY(it, struct upload, link);
        FB_AUTO_FREE char *copy = copy_text(upload->line, upload->len - SUM_CHARS - 2);
        char *words[FIELDS_MAX];

        if (!copy)
            return -ENOMEM;
        if (upload->taken)
            continue;
        if (split(copy, words) == BEGIN_FIELDS && decode(words[2]) && decode(words[3]) &&
            decode(words[4]) && decode(words[5])) {
            struct fb_s3_upload found = {words[2], words[3], words[4], words[5], 0};

            if (!strcmp(words[0], "ask")) {
                found.id = NULL;
                found.asked_s = strtoll(words[5], NULL, 10);
            }
            upload->taken = left(arg, upload->ticket, &found);
        } else {
            drop(journal, upload); /* not ours, for all its checksum */
        }
    }
    return 0;
}

int fb_s3_journal_left(struct fb_s3_journal *journal, fb_s3_upload_fn *left, void *arg)
{
    int r;

    fb_mutex_lock(&journal->lock);
    r = tell(journal, left, arg);
    fb_mutex_unlock(&journal->lock);
    return r;
}

static int write_first(struct fb_s3_journal *journal)
{
    FB_AUTO_FREE char *image = NULL;
    size_t size = 0;

    fb_mutex_lock(&journal->lock);
    image = fb_s3_journal_image(journal, &size);
    fb_mutex_unlock(&journal->lock);
    return image ? fb_durable_write(journal->dir_fd, journal->name, image, size) : -ENOMEM;
}

int fb_s3_journal_open(int dir_fd, const char *name, struct fb_s3_journal **ret_journal,
                       struct fb_error *err)
{
    struct fb_s3_journal *journal = fb_alloc(sizeof *journal);
    bool is_there = false;
    int r;

    if (!journal)
        return -ENOMEM;
    fb_mutex_init(&journal->lock, FB_RANK_JOURNAL);
    fb_cond_init(&journal->cond);
    fb_cond_init(&journal->ended);
    fb_list_init(&journal->uploads);
    fb_list_init(&journal->watchers);
    atomic_init(&journal->users, 1);
    journal->batch = 1;
    journal->fd = -1;
    journal->dir_fd = fcntl(dir_fd, F_DUPFD_CLOEXEC, 0);
    r = journal->dir_fd < 0 ? -errno : 0;
    journal->name = fb_strdup(name);
    if (r == 0 && !journal->name)
        r = -ENOMEM;
    if (r == 0)
        r = read_file(journal, &is_there, err);
    /* One that is not there is made by the first upload. */
    if (r == 0 && is_there) {
        r = write_first(journal);
        if (r < 0)
            r = fb_error_set(err, r, "cannot write the journal of uploads %s: %s", name,
                             fb_strerror(r));
    }
    if (r < 0) {
        fb_s3_journal_free(journal);
        return r;
    }
    *ret_journal = journal;
    return 0;
}

/* ---- closing --------------------------------------------------------------------------------- */

struct fb_s3_journal *fb_s3_journal_share(struct fb_s3_journal *journal)
{
    if (journal)
        atomic_fetch_add_explicit(&journal->users, 1, memory_order_relaxed);
    return journal;
}

void fb_s3_journal_free(struct fb_s3_journal *journal)
{
    struct fb_list *it, *tmp;

    FB_LIST_FOREACH (it, tmp, &journal->uploads)
        free(FB_LIST_ENTRY(it, struct upload, link));
    fb_s3_text_free(&journal->text);
    fb_s3_text_free(&journal->queued);
    fb_s3_text_free(&journal->writing);
    fb_closep(&journal->dir_fd);
    fb_cond_destroy(&journal->cond);
    fb_cond_destroy(&journal->ended);
    fb_mutex_destroy(&journal->lock);
    free(journal->name);
    free(journal);
}

bool fb_s3_journal_close(struct fb_s3_journal *journal)
{
    /* Acquire and release: the last one sees what the others did. */
    if (!journal || atomic_fetch_sub_explicit(&journal->users, 1, memory_order_acq_rel) != 1)
        return true;
    if (!fb_s3_journal_join(journal, fb_now_ns() + FB_S3_JOURNAL_CLOSE_NS))
        return false;
    fb_s3_journal_free(journal);
    return true;
}
