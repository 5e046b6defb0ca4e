/*
 * bench/acquire.c - every file of a list through libforebay, without copying: open, acquire,
 * release, close.
 *
 *     acquire DIR LIST       three passes over DIR/<each line of LIST>, shuffled; the last counts
 *
 * Of each file the first and the last byte are looked at. Prints one JSON object; fails when more
 * than one in a hundred had to be copied.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "forebay.h"

#include "core/clock.h"
#include "order.h"

#define PASSES    3
#define FILES_MAX 1000000u
#define LINE_MAX_ 4096

struct pass {
    size_t shared;
    unsigned sum;
    int64_t spent_ns;
};

static size_t load(const char *dir, const char *list, char **paths)
{
    FILE *f = fopen(list, "re");
    char line[LINE_MAX_], path[2 * LINE_MAX_];
    size_t count = 0;

    while (f && count < FILES_MAX && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        snprintf(path, sizeof path, "%s/%s", dir, line);
        paths[count] = strdup(path);
        if (!paths[count])
            break;
        count++;
    }
    if (f)
        fclose(f);
    return count;
}

static int run_pass(struct forebay *fb, char *const *paths, size_t count, struct pass *ret)
{
    int64_t start_ns = fb_now_ns();

    *ret = (struct pass){0};
    for (size_t i = 0; i < count; i++) {
        struct forebay_file *file = forebay_open(fb, paths[i]);
        struct forebay_pin *pin = NULL;
        size_t length = SIZE_MAX;
        const unsigned char *bytes = file ? forebay_acquire(file, 0, &length, &pin) : NULL;

        if (!bytes) {
            perror(paths[i]);
            return 1;
        }
        ret->sum += bytes[0] + bytes[length - 1];
        ret->shared += (size_t)forebay_pin_is_shared(pin);
        forebay_release(pin);
        forebay_close(file);
    }
    ret->spent_ns = fb_now_ns() - start_ns;
    return 0;
}

int main(int argc, char **argv)
{
    static char *paths[FILES_MAX];
    struct forebay *fb;
    struct pass pass;
    size_t count;

    if (argc != 3)
        return 2;
    count = load(argv[1], argv[2], paths);
    if (count == 0 || !fb_bench_shuffle(paths, count, 1))
        return 1;
    fb = forebay_connect(NULL);
    if (!fb)
        return 1;
    for (int i = 0; i < PASSES; i++)
        if (run_pass(fb, paths, count, &pass) != 0)
            return 1;
    forebay_disconnect(fb);
    if (pass.shared < count - count / 100) {
        fprintf(stderr, "acquire: %zu of %zu files were copied\n", count - pass.shared, count);
        return 1;
    }
    printf("{\"us_per_file\": %.3f, \"sum\": %u}\n", (double)pass.spent_ns / 1e3 / (double)count,
           pass.sum);
    return 0;
}
