/*
 * tests/fuzz/driver.c - feeds a fuzzer with inputs made of its seeds and words.
 *
 *     fuzz_NAME [ITERATIONS [SEED]]   the same inputs for the same numbers
 *     fuzz_NAME --write DIR           the seeds as files, for libFuzzer
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/rand.h"
#include "fuzz.h"

#define ITERATIONS  50000
#define SIZE_MAX_   4096
#define CHANGES_MAX 8

static unsigned count(const char *const *texts)
{
    unsigned n = 0;

    while (texts[n])
        n++;
    return n;
}

struct input {
    uint8_t bytes[SIZE_MAX_];
    size_t size;
};

/* Puts bytes in the place of `gone` others; what is too long falls off the end. */
static void splice(struct input *input, size_t at, size_t gone, const void *bytes, size_t len)
{
    size_t tail = input->size - at - gone;

    if (len > SIZE_MAX_ - at)
        len = SIZE_MAX_ - at;
    if (tail > SIZE_MAX_ - at - len)
        tail = SIZE_MAX_ - at - len;
    memmove(input->bytes + at + len, input->bytes + at + gone, tail);
    memcpy(input->bytes + at, bytes, len);
    input->size = at + len + tail;
}

static void change(struct input *input, struct fb_rand *rand)
{
    size_t at = fb_rand_below(rand, input->size + 1);
    size_t rest = input->size - at;
    size_t some = fb_rand_below(rand, (rest < 32 ? rest : 32) + 1);
    const char *word = fb_fuzz_words[fb_rand_below(rand, count(fb_fuzz_words))];
    const char *seed = fb_fuzz_seeds[fb_rand_below(rand, count(fb_fuzz_seeds))];
    uint8_t byte = (uint8_t)fb_rand_u64(rand), copy[32];

    switch (fb_rand_below(rand, 7)) {
    case 0:
        if (rest > 0)
            input->bytes[at] ^= (uint8_t)(1u << fb_rand_below(rand, 8));
        break;
    case 1:
        splice(input, at, rest > 0, &byte, 1);
        break;
    case 2:
        splice(input, at, 0, word, strlen(word));
        break;
    case 3:
        splice(input, at, some, word, strlen(word));
        break;
    case 4:
        splice(input, at, some, word, 0);
        break;
    case 5: /* again, elsewhere */
        memcpy(copy, input->bytes + at, some);
        splice(input, fb_rand_below(rand, input->size + 1), 0, copy, some);
        break;
    default: /* the rest from another seed */
        some = fb_rand_below(rand, strlen(seed) + 1);
        splice(input, at, rest, seed + some, strlen(seed) - some);
    }
}

static void make(struct input *input, struct fb_rand *rand)
{
    const char *seed = fb_fuzz_seeds[fb_rand_below(rand, count(fb_fuzz_seeds))];

    input->size = 0;
    splice(input, 0, 0, seed, strlen(seed));
    for (uint64_t i = fb_rand_below(rand, CHANGES_MAX + 1); i > 0; i--)
        change(input, rand);
}

static int write_seeds(const char *dir)
{
    if (mkdir(dir, 0700) < 0 && errno != EEXIST)
        return 1;
    for (unsigned i = 0; fb_fuzz_seeds[i]; i++) {
        char path[4096];
        FILE *f;

        snprintf(path, sizeof path, "%s/seed-%u", dir, i);
        f = fopen(path, "we");
        if (!f || fputs(fb_fuzz_seeds[i], f) < 0 || fclose(f) != 0)
            return 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    unsigned long long iterations = argc > 1 ? strtoull(argv[1], NULL, 10) : ITERATIONS;
    struct fb_rand rand = {.state = argc > 2 ? strtoull(argv[2], NULL, 10) : 1};
    struct input input;

    if (argc == 3 && !strcmp(argv[1], "--write"))
        return write_seeds(argv[2]);
    for (unsigned long long i = 0; i < iterations; i++) {
        uint8_t *exact;

        make(&input, &rand);
        /* In memory of exactly its size, so that a step beyond is seen. */
        exact = malloc(input.size ? input.size : 1);
        if (!exact)
            return 1;
        memcpy(exact, input.bytes, input.size);
        LLVMFuzzerTestOneInput(exact, input.size);
        free(exact);
    }
    printf("%llu inputs\n", iterations);
    return 0;
}
