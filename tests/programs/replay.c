/*
 * replay make DIR COUNT SIZE     files 0 ... COUNT-1 of SIZE bytes, all holes
 * replay read DIR KEYS LOG       reads a byte of the file of each number in KEYS (u32, little
 *                                endian), one after the other, through libforebay
 *
 * The daemon writes the access log LOG: the reader waits so that it is never more than WINDOW
 * requests ahead of it. So no ring overflows, and what the daemon knows of its items is as young,
 * however slow the machine is.
 */
#include <endian.h>
#include <err.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "forebay.h"

#define WINDOW      96
#define LOG_HEAD    16
#define LOG_RECORD  24
#define PATIENCE_MS 60000

static void make(const char *dir, unsigned long count, off_t size)
{
    const struct timespec old[2] = {{.tv_sec = 1600000000}, {.tv_sec = 1600000000}};

    if (chdir(dir) != 0)
        err(1, "%s", dir);
    for (unsigned long i = 0; i < count; i++) {
        char name[24];
        int fd;

        snprintf(name, sizeof name, "%lu", i);
        fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        if (fd < 0 || ftruncate(fd, size) != 0 || futimens(fd, old) != 0 || close(fd) != 0)
            err(1, "%s", name);
    }
}

static long logged(const char *log)
{
    struct stat st;

    return stat(log, &st) == 0 ? (long)(st.st_size - LOG_HEAD) / LOG_RECORD : 0;
}

static void await(const char *log, long records)
{
    for (int ms = 0; logged(log) < records; ms++) {
        if (ms == PATIENCE_MS)
            errx(1, "%ld of %ld requests are in the log", logged(log), records);
        usleep(1000);
    }
}

/* A daemon that is late is passed by, and asked again a moment later. */
static struct forebay_file *open_cached(struct forebay *fb, const char *path)
{
    for (int ms = 0; ms < PATIENCE_MS; ms += 50) {
        struct forebay_file *file = forebay_open(fb, path);

        if (!file)
            err(1, "%s", path);
        if (forebay_is_cached(file))
            return file;
        forebay_close(file);
        usleep(50000);
    }
    errx(1, "%s is not read through the cache", path);
}

static void read_one(struct forebay *fb, const char *dir, uint32_t key)
{
    struct forebay_file *file;
    char path[4096];
    char byte;

    snprintf(path, sizeof path, "%s/%u", dir, key);
    file = open_cached(fb, path);
    if (forebay_pread(file, &byte, 1, 0) != 1)
        err(1, "%s", path);
    forebay_close(file);
}

static void read_all(const char *dir, const char *keys, const char *log)
{
    struct forebay *fb = forebay_connect(NULL);
    FILE *in = fopen(keys, "re");
    uint32_t key;
    long count = 0;

    if (!fb || !in)
        err(1, "%s", keys);
    while (fread(&key, sizeof key, 1, in) == 1) {
        read_one(fb, dir, le32toh(key));
        if (++count % 32 == 0 && count > WINDOW)
            await(log, count - WINDOW);
    }
    await(log, count);
    fclose(in);
    forebay_disconnect(fb);
}

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "make") == 0)
        make(argv[2], strtoul(argv[3], NULL, 10), (off_t)strtoul(argv[4], NULL, 10));
    else if (argc == 5 && strcmp(argv[1], "read") == 0)
        read_all(argv[2], argv[3], argv[4]);
    else
        errx(2, "see the top of replay.c");
    return 0;
}
