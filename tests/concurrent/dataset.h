/*
 * tests/concurrent/dataset.h - generated files whose bytes tell where they belong.
 *
 * Every aligned word of a file says which version of which file it is and where it stands in it:
 *
 *     word(file, version, offset) = (key(file, version) + offset / 8) * odd, low 16 bits: version
 *
 * so a reader can tell from any stretch of at least 15 bytes whether it got bytes of one version,
 * of the right file, from the right place, without another copy to compare with. A new version
 * replaces the file by rename and has another size for most files; its modification time carries
 * the version in its nanoseconds and lies an hour ahead, by which it counts as settled at once
 * (fb_version_settled), so that tests need not wait for files to grow old.
 */
#ifndef FB_TESTS_DATASET_H
#define FB_TESTS_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DATASET_FILES_MAX    4096u
#define DATASET_VERSIONS_MAX 65535u
#define DATASET_NAME_MAX     32
#define DATASET_LARGE_EVERY  32u /* files of several blocks among small ones */

struct dataset {
    const char *root;
    unsigned files;
};

/* Path below the root. Returns buf, DATASET_NAME_MAX long. */
char *dataset_name(unsigned file, char *buf);

/* Small files of 64 bytes to 128 KiB, large ones of 0.5 to 1.5 MiB; every 64th is empty. */
uint64_t dataset_size(unsigned file, uint32_t version);

void dataset_fill(unsigned file, uint32_t version, uint64_t offset, void *ret_data, size_t length);

/* Where the first wrong byte is, or -1. */
int64_t dataset_check(unsigned file, uint32_t version, uint64_t offset, const void *data,
                      size_t length);

/* The version that the bytes claim to be of; -1: fewer than 15 bytes. */
int64_t dataset_claims(uint64_t offset, const void *data, size_t length);

/* Writes one version of a file, by rename, making the directory. Ends the program on failure. */
void dataset_write(const struct dataset *set, unsigned file, uint32_t version);

/* The version that the source has now, by its time stamp; ends the program on failure. */
uint32_t dataset_current(const struct dataset *set, unsigned file);

/* All files in version 1. */
void dataset_make(const struct dataset *set);

/* Prints to standard error and ends the program at once with status 1. */
void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

#endif
