/*
 * tests/scenarios/lib_server.h - a daemon's cache and its door for programs, in a child process
 * that can be asked, stopped and killed.
 *
 * Small: blocks of 64 KiB, segments of 512 KiB, some dozens of them, so that a few hundred files
 * turn all of them over.
 */
#ifndef FB_TESTS_LIB_SERVER_H
#define FB_TESTS_LIB_SERVER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SERVER_BLOCK (64u << 10)

struct server {
    pid_t pid; /* 0: not running */
    int fd;
};

/* What is asked. */
enum server_op {
    SERVER_READ,     /* reads a file through the cache as another program would; bytes */
    SERVER_HITS,     /* reads that programs have served themselves */
    SERVER_CLIENTS,  /* processes connected */
    SERVER_SEGMENTS, /* of DRAM */
    SERVER_MARK,     /* remembers all generations */
    SERVER_MOVED,    /* segments that were emptied since the mark */
    SERVER_EVICT,    /* a path */
    SERVER_END,
};

/* Serves `root` at `socket`. No thread may run in the caller. Ends the test when it fails. */
void server_start(struct server *server, const char *root, const char *socket);
uint64_t server_ask(const struct server *server, enum server_op op, const char *path);
/* As `forebay` ends by itself. */
void server_end(struct server *server);
/* SIGKILL; SIGSTOP and SIGCONT leave it running. */
void server_signal(struct server *server, int number);

#endif
