#include "dataset.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/mem.h"

#define FOLDER_FILES 64u
#define WORD         sizeof(uint64_t)
#define ODD          0x9e3779b97f4a7c15ULL
#define VERSION_MASK 0xffffULL
#define AHEAD_S      3600

void die(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    flockfile(stderr);
    fputs("FAIL: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    funlockfile(stderr);
    va_end(args);
    _exit(1);
}

char *dataset_name(unsigned file, char *buf)
{
    snprintf(buf, DATASET_NAME_MAX, "d%03u/f%05u", file / FOLDER_FILES, file);
    return buf;
}

static uint64_t key_of(unsigned file, uint32_t version)
{
    return fb_mix64(((uint64_t)file << 32) + version + 1);
}

uint64_t dataset_size(unsigned file, uint32_t version)
{
    uint64_t dice = key_of(file, version / 2); /* every other version keeps the size */

    if (file % 64 == 63)
        return 0;
    if (file % DATASET_LARGE_EVERY == 7)
        return (512u << 10) + dice % (1u << 20);
    return 64 + dice % (file % 4 ? 24u << 10 : 128u << 10);
}

static uint64_t word_at(uint64_t key, uint32_t version, uint64_t offset)
{
    return (((key + offset / WORD) * ODD) & ~VERSION_MASK) | (version & VERSION_MASK);
}

void dataset_fill(unsigned file, uint32_t version, uint64_t offset, void *ret_data, size_t length)
{
    uint64_t key = key_of(file, version);
    uint8_t *out = ret_data;

    while (length > 0) {
        uint64_t word = word_at(key, version, offset);
        size_t skip = offset % WORD;
        size_t n = fb_min_u64(WORD - skip, length);

        memcpy(out, (const uint8_t *)&word + skip, n);
        out += n;
        offset += n;
        length -= n;
    }
}

int64_t dataset_check(unsigned file, uint32_t version, uint64_t offset, const void *data,
                      size_t length)
{
    uint64_t key = key_of(file, version);
    const uint8_t *in = data;
    size_t at = 0;

    while (at < length) {
        uint64_t word = word_at(key, version, offset + at);
        size_t skip = (offset + at) % WORD;
        size_t n = fb_min_u64(WORD - skip, length - at);

        if (memcmp(in + at, (const uint8_t *)&word + skip, n) != 0) {
            while (in[at] == ((const uint8_t *)&word)[skip]) {
                at++;
                skip++;
            }
            return (int64_t)(offset + at);
        }
        at += n;
    }
    return -1;
}

int64_t dataset_claims(uint64_t offset, const void *data, size_t length)
{
    size_t skip = (WORD - offset % WORD) % WORD;
    uint64_t word;

    if (length < skip + WORD)
        return -1;
    memcpy(&word, (const uint8_t *)data + skip, WORD);
    return (int64_t)(word & VERSION_MASK);
}

static void write_all(int fd, const uint8_t *data, size_t length, const char *path)
{
    while (length > 0) {
        ssize_t n = write(fd, data, length);

        if (n < 0)
            die("write %s: %s", path, fb_strerror(-errno));
        data += n;
        length -= (size_t)n;
    }
}

static void make_folder(const char *path)
{
    char folder[PATH_MAX];

    snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = 0;
    if (mkdir(folder, 0755) < 0 && errno != EEXIST)
        die("mkdir %s: %s", folder, fb_strerror(-errno));
}

void dataset_write(const struct dataset *set, unsigned file, uint32_t version)
{
    uint64_t size = dataset_size(file, version);
    FB_AUTO_FREE uint8_t *data = fb_alloc(size + 1);
    struct timespec times[2];
    char name[DATASET_NAME_MAX], path[PATH_MAX], temporary[PATH_MAX + 8];
    int fd;

    snprintf(path, sizeof path, "%s/%s", set->root, dataset_name(file, name));
    snprintf(temporary, sizeof temporary, "%s.tmp", path);
    make_folder(path);
    fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || !data)
        die("open %s: %s", temporary, fb_strerror(-errno));
    dataset_fill(file, version, 0, data, size);
    write_all(fd, data, size, temporary);
    clock_gettime(CLOCK_REALTIME, &times[0]);
    times[0].tv_sec += AHEAD_S;
    times[0].tv_nsec = version;
    times[1] = times[0];
    if (futimens(fd, times) < 0 || close(fd) < 0 || rename(temporary, path) < 0)
        die("%s: %s", path, fb_strerror(-errno));
}

uint32_t dataset_current(const struct dataset *set, unsigned file)
{
    char name[DATASET_NAME_MAX], path[PATH_MAX];
    struct stat st;

    snprintf(path, sizeof path, "%s/%s", set->root, dataset_name(file, name));
    if (stat(path, &st) < 0)
        die("stat %s: %s", path, fb_strerror(-errno));
    return (uint32_t)st.st_mtim.tv_nsec;
}

void dataset_make(const struct dataset *set)
{
    if (mkdir(set->root, 0755) < 0 && errno != EEXIST)
        die("mkdir %s: %s", set->root, fb_strerror(-errno));
    for (unsigned file = 0; file < set->files; file++)
        dataset_write(set, file, 1);
}
