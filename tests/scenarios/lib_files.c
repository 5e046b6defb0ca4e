#include "lib_files.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"

#define SETTLE_MS 2200

static _Noreturn void give_up(const char *what)
{
    fprintf(stderr, "lib_files: %s: %m\n", what);
    _exit(1);
}

int64_t files_now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

const char *files_path(const struct files *files, const char *name, char ret_path[256])
{
    if (snprintf(ret_path, 256, "%s/%s", files->root, name) >= 256)
        give_up("a path is too long");
    return ret_path;
}

static uint64_t word_at(uint64_t seed, uint64_t offset)
{
    return fb_mix64(seed + offset / 8);
}

static uint8_t byte_at(uint64_t seed, uint64_t offset)
{
    return (uint8_t)(word_at(seed, offset) >> (8 * (offset % 8)));
}

static uint64_t seed_of(const char *name, unsigned version)
{
    return fb_hash64_seed(name, strlen(name), version);
}

void files_write(const struct files *files, const char *name, size_t size, unsigned version)
{
    uint8_t *bytes = malloc(size + 1);
    uint64_t seed = seed_of(name, version);
    char path[256];
    int fd = open(files_path(files, name, path), O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0644);

    if (!bytes || fd < 0)
        give_up(path);
    for (size_t i = 0; i < size; i++)
        bytes[i] = byte_at(seed, i);
    if (write(fd, bytes, size) != (ssize_t)size || close(fd) != 0)
        give_up(path);
    free(bytes);
}

void files_settle(void)
{
    usleep(SETTLE_MS * 1000);
}

bool files_good(const char *name, unsigned version, const void *data, size_t length,
                uint64_t offset)
{
    uint64_t seed = seed_of(name, version);
    const uint8_t *bytes = data;

    for (size_t i = 0; i < length;) {
        uint64_t word = word_at(seed, offset + i);

        if ((offset + i) % 8 == 0 && length - i >= sizeof word) {
            if (memcmp(bytes + i, &word, sizeof word) != 0)
                return false;
            i += sizeof word;
        } else if (bytes[i] != byte_at(seed, offset + i)) {
            return false;
        } else {
            i++;
        }
    }
    return true;
}

void files_write_many(const struct files *files, const char *folder, unsigned count, size_t size)
{
    char path[256], name[64];

    if (mkdir(files_path(files, folder, path), 0755) != 0)
        give_up(path);
    for (unsigned i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%s/%u", folder, i);
        files_write(files, name, size, 1);
    }
}

void files_init(struct files *files)
{
    const char *home = getenv("T"); /* NOLINT(concurrency-mt-unsafe): before any thread */

    snprintf(files->home, sizeof files->home, "%s", home ? home : "/tmp");
    snprintf(files->root, sizeof files->root, "%s/root", files->home);
    snprintf(files->socket, sizeof files->socket, "%s/run/s", files->home);
    if (mkdir(files->root, 0755) != 0)
        give_up(files->root);
    files_write(files, "small", SMALL, 1);
    files_write_many(files, "churn", CHURN, CHURN_SIZE);
}

void files_read_many(const struct server *server, const char *folder, unsigned count)
{
    char name[64];

    for (unsigned i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%s/%u", folder, i);
        if (server_ask(server, SERVER_READ, name) == 0)
            give_up("the server could not read");
    }
}

void files_churn(const struct server *server)
{
    files_read_many(server, "churn", CHURN);
}

struct forebay_file *files_open_cached(struct forebay *fb, const char *path, int seconds)
{
    int64_t end_ms = files_now_ms() + seconds * 1000LL;

    for (;;) {
        struct forebay_file *file = forebay_open(fb, path);

        if (!file)
            give_up(path);
        if (forebay_is_cached(file) || files_now_ms() > end_ms)
            return file;
        forebay_close(file);
        usleep(50000);
    }
}

const void *files_acquire_shared(struct forebay_file *file, size_t length,
                                 struct forebay_pin **ret_pin)
{
    int64_t end_ms = files_now_ms() + 60000;

    for (;;) {
        size_t got = length;
        const void *data = forebay_acquire(file, 0, &got, ret_pin);

        if (!data)
            return NULL;
        if (forebay_pin_is_shared(*ret_pin) && got == length)
            return data;
        forebay_release(*ret_pin);
        *ret_pin = NULL;
        if (files_now_ms() > end_ms)
            return NULL;
        usleep(50000);
    }
}
