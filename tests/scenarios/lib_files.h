/*
 * tests/scenarios/lib_files.h - files whose every byte is known, for the tests of libforebay.
 */
#ifndef FB_TESTS_LIB_FILES_H
#define FB_TESTS_LIB_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "forebay.h"

#include "lib_server.h"

/* Where everything lies: below the test's private directory. */
struct files {
    char home[200];
    char root[220];   /* what the server serves */
    char socket[220]; /* where it listens */
};

/* What all begin with: the file "small", and the folder "churn" of CHURN files, which is twice what
 * the cache holds. */
enum {
    SMALL = 10000,
    LARGE = 1000000,
    CHURN = 120,
    CHURN_SIZE = 512 << 10,
};

/* Makes the directories, and in them what all begin with. */
void files_init(struct files *files);
/* A file below the root; `version` says which bytes. 1: it has the same bytes nowhere else. */
void files_write(const struct files *files, const char *name, size_t size, unsigned version);
/* root/name */
const char *files_path(const struct files *files, const char *name, char ret_path[256]);
/* The cache keeps what has not changed for two seconds. */
void files_settle(void);

bool files_good(const char *name, unsigned version, const void *data, size_t length,
                uint64_t offset);

/* `count` files of `size` bytes, folder/0 ... */
void files_write_many(const struct files *files, const char *folder, unsigned count, size_t size);
/* Reads them all in the server. */
void files_read_many(const struct server *server, const char *folder, unsigned count);
/* Reads "churn", so that the server turns over whatever it holds. */
void files_churn(const struct server *server);

/* Waits for at most `seconds` until a file that was not read before is served by the cache. */
struct forebay_file *files_open_cached(struct forebay *fb, const char *path, int seconds);
/* Waits until bytes of the file can be acquired without a copy; NULL: not within five seconds. */
const void *files_acquire_shared(struct forebay_file *file, size_t length,
                                 struct forebay_pin **ret_pin);
int64_t files_now_ms(void);

#endif
