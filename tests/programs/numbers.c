/*
 * tests/programs/numbers - numbers many|few|closing|overwriting|racing|exchanging|unsharing DIR:
 * descriptors by the thousand, with almost no room, and programs that close what they do not know,
 * or take its number, also while another thread uses it.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "raw.h"
#include "transcript.h"

#define MANY 3000

static char buffer[1 << 20];
static char data_path[4096];

static void limit(unsigned n)
{
    struct rlimit l;

    if (getrlimit(RLIMIT_NOFILE, &l) != 0)
        die("getrlimit");
    l.rlim_cur = n;
    if (setrlimit(RLIMIT_NOFILE, &l) != 0)
        die("setrlimit");
}

static int open_data(void)
{
    return open(data_path, O_RDONLY | O_CLOEXEC);
}

/* Each at an offset of its own, which none of the others moves. */
static void many(void)
{
    static char all[MANY + 100], other[MANY + 100];
    static int fds[MANY];
    int good = 0;

    limit(MANY + 1200);
    for (int i = 0; i < MANY; i++) {
        fds[i] = open_data();
        if (fds[i] < 0 || lseek(fds[i], i, SEEK_SET) != i)
            die("open");
    }
    say_bytes("all", all, pread(fds[MANY - 1], all, sizeof all, 0));
    for (int i = 0; i < MANY; i++)
        good += read(fds[i], buffer, 100) == 100 && memcmp(buffer, all + i, 100) == 0;
    for (int i = MANY - 1; i >= 0; i--)
        good += lseek(fds[i], 0, SEEK_CUR) == i + 100;
    for (int i = 0; i < MANY; i += 299)
        good += pread(fds[i], other, sizeof other, 0) == sizeof other &&
                memcmp(other, all, sizeof all) == 0;
    say("good", good);
    for (int i = 0; i < MANY; i++)
        if (close(fds[i]) != 0)
            die("close");
    say("again", open_data());
}

static void few(void)
{
    int fds[64] = {0}, count = 0;
    pid_t pid;

    limit(64);
    say("first", open_data());
    while (count < 64 && (fds[count] = open_data()) >= 0)
        count++;
    say("then", count < 64 ? -1 : 0);
    /* The library keeps a few for itself. */
    say("enough", count > 40);
    for (int i = 0; i < count; i += 9)
        say_bytes("read", buffer, pread(fds[i], buffer, 1000, i));
    say("dup", dup(fds[0]));
    for (int i = 0; i < 8; i++)
        close(fds[--count]);
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        say_bytes("child", buffer, read(fds[3], buffer, 1000));
        fflush(stdout);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    say("where", lseek(fds[3], 0, SEEK_CUR));
    limit(3);
    say("no room", open_data());
    limit(64); /* what looks for leaks at the end needs some */
}

/* Reads while all above 2 is closed under it, in every way. */
static void closing(void)
{
    int sockets[2];

    for (int i = 0; i < 3; i++) {
        int fd = open_data();

        say_bytes("before", buffer, read(fd, buffer, 100));
        for (int n = 3; n < 2000; n++)
            close(n);
        say("closed", read(fd, buffer, 100));
        say("lowest", fd = open_data());
        say_bytes("after", buffer, read(fd, buffer, 100));
        close(fd);
    }
    for (int i = 0; i < 3; i++) {
        int fd = open_data();

        say_bytes("before", buffer, read(fd, buffer, 100));
        say("close_range", close_range(3, ~0u, 0));
        say("closed", read(fd, buffer, 100));
        say("lowest", fd = open_data());
        say_bytes("after", buffer, read(fd, buffer, 100));
        closefrom(3);
        say("closed", read(fd, buffer, 100));
    }
    for (int i = 0; i < 3; i++) {
        int fd = open_data();

        say_bytes("before", buffer, read(fd, buffer, 100));
        say("raw close_range", raw(SYS_close_range, 3, ~0u, 0, 0));
        say("a socket in its place", socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets));
        say("number", sockets[0]);
        say("write", write(sockets[1], "from the socket", 15));
        say_bytes("read", buffer, read(sockets[0], buffer, 100));
        say_bytes("after", buffer, pread(open_data(), buffer, 100, 50));
        raw(SYS_close_range, 3, ~0u, 0, 0);
        say("pipe", pipe2(sockets, O_CLOEXEC));
        say("raw close", raw(SYS_close, sockets[0], 0, 0, 0));
        fd = open_data();
        say("number", fd);
        say_bytes("after", buffer, pread(fd, buffer, 100, 50));
        raw(SYS_close_range, 3, ~0u, 0, 0);
    }
}

/* A lock on a file while all numbers above are taken for something else. */
static void overwriting(void)
{
    int fd = open_data(), other;

    limit(2048);
    say("lock", flock(fd, LOCK_EX));
    for (int n = fd + 1; n < 1024; n++)
        if (dup2(0, n) != n)
            die("dup2");
    say("lock", flock(fd, LOCK_EX));
    for (int n = 1023; n > fd; n--)
        close(n);
    other = (int)raw(SYS_openat, AT_FDCWD, data_path, O_RDONLY | O_CLOEXEC, 0);
    say("locked", flock(other, LOCK_SH | LOCK_NB));
    say_bytes("read", buffer, read(fd, buffer, 1000));
    close(fd);
    say("free", flock(other, LOCK_SH | LOCK_NB));
    close(other);
    /* Whatever stood there, it is the program's now. */
    for (int n = 3; n < 1024; n++)
        if (dup2(0, n) != n)
            die("dup2");
    for (int n = 1023; n >= 3; n--)
        if (close(n) != 0)
            die("close");
    say("closed", fcntl(900, F_GETFD));
    fd = open_data();
    say_bytes("read", buffer, read(fd, buffer, 1000));
    close(fd);
}

/* ---- one thread puts something else at a number, which another one uses ---- */

#define RACES 20000

static _Atomic int number = -1;
static _Atomic bool ended;

static void *use_number(void *arg)
{
    while (!ended) {
        struct pollfd p = {.fd = number, .events = POLLIN};

        (void)!poll(&p, 1, 0);
    }
    return arg;
}

static void racing(void)
{
    int pipes[2], wrong = 0, refused = 0;
    pthread_t user;
    struct stat st;

    if (pipe2(pipes, O_CLOEXEC) != 0 || pthread_create(&user, NULL, use_number, NULL) != 0)
        die("thread");
    for (int i = 0; i < RACES; i++) {
        int fd = open_data();

        number = fd;
        if (i % 16)
            sched_yield();
        refused += dup2(pipes[0], fd) != fd;
        wrong += fstat(fd, &st) != 0 || !S_ISFIFO(st.st_mode);
        number = -1;
        close(fd);
    }
    ended = true;
    pthread_join(user, NULL);
    say("not the pipe", wrong);
    say("refused", refused);
}

/* One thread puts one cached file after the other at a number, which another one reads from. */
static void *read_number(void *arg)
{
    int *failed = arg;
    char byte;

    while (!ended)
        *failed += pread(number, &byte, 1, 0) != 1;
    return NULL;
}

static void exchanging(void)
{
    int a = open_data(), b = open_data(), failed = 0, refused = 0;
    pthread_t reader;

    number = dup(a);
    if (pthread_create(&reader, NULL, read_number, &failed) != 0)
        die("thread");
    for (int i = 0; i < 10 * RACES; i++)
        refused += dup2(i % 2 ? a : b, number) != number;
    ended = true;
    pthread_join(reader, NULL);
    say("failed", failed);
    say("refused", refused);
}

/* A thread with a table of its own closes all it finds there. */
static void *close_own(void *arg)
{
    say("unshare", unshare(CLONE_FILES));
    say("close_range", close_range(3, ~0u, 0));
    return arg;
}

static void unsharing(void)
{
    int fd = open_data();
    pthread_t closer;

    say_bytes("before", buffer, read(fd, buffer, 100));
    if (pthread_create(&closer, NULL, close_own, NULL) != 0)
        die("thread");
    pthread_join(closer, NULL);
    say_bytes("after", buffer, read(fd, buffer, 100));
    say("close", close(fd));
    fd = open_data();
    say_bytes("opened after", buffer, read(fd, buffer, 100));
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    snprintf(data_path, sizeof data_path, "%s/data", argv[2]);
    if (strcmp(argv[1], "many") == 0)
        many();
    else if (strcmp(argv[1], "few") == 0)
        few();
    else if (strcmp(argv[1], "closing") == 0)
        closing();
    else if (strcmp(argv[1], "racing") == 0)
        racing();
    else if (strcmp(argv[1], "exchanging") == 0)
        exchanging();
    else if (strcmp(argv[1], "unsharing") == 0)
        unsharing();
    else
        overwriting();
    return 0;
}
