/*
 * Damage on the media while the engine is away: it must be found out, and the source asked.
 *
 *     damage WORKER
 *
 * In every round one file below the caches is damaged, in turn one of the small ones and one with
 * segments: bits flipped, stretches zeroed or overwritten, pages moved about, the file cut, made
 * longer, put back as it was some rounds ago, or removed. Then the worker reads the whole data set,
 * part of which has changed meanwhile, and compares every byte.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/mem.h"
#include "driver.h"

#define ROUNDS    140u
#define FILES     112u /* all of them fit into the caches: whatever is damaged is read */
#define FILES_MAX 64u
#define PAGE      4096u
#define COPY_MAX  (64u << 20)

struct target {
    char path[2 * PATH_MAX];
    uint8_t *old; /* its bytes some rounds ago */
    size_t old_size;
};

struct damage {
    struct driver driver;
    struct target targets[FILES_MAX];
    unsigned count;
    unsigned noticed; /* rounds in which the engine told of it */
};

static void add_targets(struct damage *g, const char *folder)
{
    DIR *dir = opendir(folder);
    struct dirent *e;

    if (!dir)
        die("opendir %s: %s", folder, fb_strerror(-errno));
    while ((e = readdir(dir))) { /* NOLINT(concurrency-mt-unsafe) */
        struct target *t = &g->targets[g->count];
        struct stat st;

        snprintf(t->path, sizeof t->path, "%s/%s", folder, e->d_name);
        if (e->d_name[0] == '.' && (!e->d_name[1] || e->d_name[1] == '.'))
            continue;
        if (lstat(t->path, &st) < 0)
            die("%s: %s", t->path, fb_strerror(-errno));
        if (S_ISDIR(st.st_mode))
            add_targets(g, t->path);
        else if (S_ISREG(st.st_mode) && ++g->count == FILES_MAX)
            die("more than %u files in the caches", FILES_MAX);
    }
    closedir(dir);
}

static void find_targets(struct damage *g)
{
    static const char *const folders[] = {"n1", "n2", "pmem"};
    char path[PATH_MAX + 8];

    g->count = 0;
    for (unsigned i = 0; i < FB_ARRAY_SIZE(folders); i++) {
        snprintf(path, sizeof path, "%s/%s", g->driver.home, folders[i]);
        add_targets(g, path);
    }
    if (g->count < 3)
        die("only %u files in the caches", g->count);
}

static size_t load(const char *path, uint8_t **ret_data)
{
    FB_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    ssize_t n;

    *ret_data = NULL;
    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd < 0 || fstat(fd, &st) < 0 || st.st_size > COPY_MAX)
        die("%s: cannot be read", path);
    *ret_data = malloc((size_t)st.st_size + PAGE);
    if (!*ret_data)
        die("no memory");
    n = pread(fd, *ret_data, (size_t)st.st_size, 0);
    if (n != st.st_size)
        die("%s: short read", path);
    return (size_t)n;
}

static void store(const char *path, const uint8_t *data, size_t size)
{
    FB_AUTO_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    if (fd < 0 || pwrite(fd, data, size, 0) != (ssize_t)size)
        die("%s: %s", path, fb_strerror(-errno));
}

/* Random stretches, of which at least one byte changes. */
static void scribble(struct fb_rand *dice, uint8_t *data, size_t size, unsigned kind)
{
    unsigned places = 1 + (unsigned)fb_rand_below(dice, 40);

    for (unsigned i = 0; i < places; i++) {
        size_t at = fb_rand_below(dice, size), to = fb_rand_below(dice, size);
        size_t length = 1 + fb_rand_below(dice, 3 * PAGE);

        length = fb_min_u64(length, size - at);
        if (kind == 0) {
            data[at] ^= (uint8_t)(1u << fb_rand_below(dice, 8));
        } else if (kind == 1) {
            memset(data + at, 0, length);
        } else if (kind == 2) {
            for (size_t b = at; b < at + length; b++)
                data[b] = (uint8_t)fb_rand_u64(dice);
        } else if (size >= 2 * PAGE) { /* a write that went astray */
            at = fb_min_u64(at, size - PAGE) / PAGE * PAGE;
            to = fb_min_u64(to, size - PAGE) / PAGE * PAGE;
            memmove(data + to, data + at, PAGE);
        }
    }
}

static void harm(struct damage *g, struct target *t)
{
    struct fb_rand *dice = &g->driver.dice;
    unsigned kind = (unsigned)fb_rand_below(dice, 12);
    FB_AUTO_FREE uint8_t *data = NULL;
    size_t size = load(t->path, &data);

    printf("%s, %zu bytes: kind %u\n", t->path + strlen(g->driver.home) + 1, size, kind);
    if (!data || (size == 0 && kind < 10))
        kind = 11;
    if (kind < 8) { /* bits twice as often as the rest */
        scribble(dice, data, size, kind < 4 ? 0 : kind - 4);
        store(t->path, data, size);
    } else if (kind == 8) {
        if (truncate(t->path, (off_t)fb_rand_below(dice, size + 1)) < 0)
            die("truncate: %s", fb_strerror(-errno));
    } else if (kind == 9) {
        memset(data + size, 0x5a, PAGE);
        store(t->path, data, size + 1 + fb_rand_below(dice, PAGE));
    } else if (kind == 10 && unlink(t->path) < 0) {
        die("unlink: %s", fb_strerror(-errno));
    } else if (kind == 11 && t->old) {
        store(t->path, t->old, t->old_size);
    }
}

/* Segments in two rounds of three, every other file in its turn. */
static struct target *pick(struct damage *g, unsigned round)
{
    unsigned at = round / 3 + round % 3;

    if (round % 3 == 0)
        return &g->targets[round / 3 % g->count];
    for (;; at++)
        if (strstr(g->targets[at % g->count].path, "segments"))
            return &g->targets[at % g->count];
}

static void one_round(struct damage *g, unsigned round)
{
    struct driver *d = &g->driver;
    struct target *t = pick(g, round);
    uint64_t told;

    if (fb_rand_below(&d->dice, 4) == 0) {
        free(t->old);
        t->old_size = load(t->path, &t->old);
    }
    driver_change(d, 3);
    harm(g, t);
    if (fb_rand_below(&d->dice, 4) == 0)
        harm(g, &g->targets[fb_rand_below(&d->dice, g->count)]);
    fflush(stdout);
    driver_end(d, driver_start(d, "verify"), false);
    told = driver_count(d, ENGINE_DAMAGED_ITEMS) + driver_count(d, ENGINE_DAMAGED_SEGMENTS);
    g->noticed += told > 0;
}

int main(int argc, char **argv)
{
    static struct damage g;

    if (argc != 2)
        die("usage: %s WORKER", argv[0]);
    driver_open(&g.driver, argv[1]);
    g.driver.state->files = FILES;
    for (unsigned i = 0; i < 2; i++)
        driver_end(&g.driver, driver_start(&g.driver, "verify"), false);
    find_targets(&g);
    for (unsigned round = 0; round < ROUNDS; round++)
        one_round(&g, round);
    driver_print(&g.driver);
    printf("damage was told of in %u rounds of %u, of %u files\n", g.noticed, ROUNDS, g.count);
    for (unsigned i = 0; i < g.count; i++)
        free(g.targets[i].old);
    if (g.noticed < ROUNDS / 2)
        die("damage was noticed in %u rounds only", g.noticed);
    if (g.driver.total[ENGINE_RECOVERED] < ROUNDS * 10)
        die("only %llu items were found again",
            (unsigned long long)g.driver.total[ENGINE_RECOVERED]);
    return 0;
}
