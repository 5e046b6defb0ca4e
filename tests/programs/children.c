/*
 * tests/programs/children - children DIR [shells|threads]: descriptors of DIR/data and DIR/text
 * that other processes inherit, by every way to make one. "children child" is what is executed.
 * "children DIR elsewhere OTHER": a child that goes to OTHER.
 */
#include <fcntl.h>
#include <pthread.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/fsuid.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "transcript.h"

static char buffer[1 << 20];
static char data_path[4096], text_path[4096];
static char *self;

static int open_at(int flags, off_t offset)
{
    int fd = open(data_path, O_RDONLY | flags);

    if (fd < 0)
        die(data_path);
    if (offset >= 0 && lseek(fd, offset, SEEK_SET) != offset)
        die("lseek");
    return fd;
}

static void reap(pid_t pid)
{
    int status = -1;

    waitpid(pid, &status, 0);
    say("status", status);
    fflush(stdout);
}

/* child N: reads 1000 bytes from descriptor N. */
static int child(int fd)
{
    say_bytes("child, getfd", buffer, fcntl(fd, F_GETFD) < 0 ? -1 : 0);
    say_bytes("child", buffer, read(fd, buffer, 1000));
    return 0;
}

static char **words(int fd)
{
    static char number[16];
    static char *argv[4];

    snprintf(number, sizeof number, "%d", fd);
    argv[0] = self;
    argv[1] = "child";
    argv[2] = number;
    return argv;
}

/* ---- fork ---- */

static void forked(void)
{
    int fd = open_at(0, 100), at = open_at(0, -1), none = open_at(0, -1);
    pid_t pid;

    say_bytes("pread before", buffer, pread(at, buffer, 1000, 5));
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        say_bytes("child, shared offset", buffer, read(fd, buffer, 1000));
        say_bytes("child, pread", buffer, pread(at, buffer, 1000, 5));
        say_bytes("child, read", buffer, read(at, buffer, 1000));
        say_bytes("child, untouched", buffer, read(none, buffer, 10));
        fflush(stdout);
        _exit(0);
    }
    reap(pid);
    say("where", lseek(fd, 0, SEEK_CUR));
    say_bytes("shared offset", buffer, read(fd, buffer, 1000));
    say_bytes("pread", buffer, pread(at, buffer, 1000, 5));
    say_bytes("read", buffer, read(at, buffer, 1000));
    say("where", lseek(none, 0, SEEK_CUR));
    close(fd);
    close(at);
    close(none);
}

static void forked_streams(void)
{
    FILE *f = fopen(text_path, "re");
    char line[100];
    pid_t pid;

    say("fgets", fgets(line, sizeof line, f) != NULL);
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        printf("child: %s", fgets(line, sizeof line, f));
        fflush(stdout);
        _exit(0);
    }
    reap(pid);
    printf("parent: %s", fgets(line, sizeof line, f));
    fclose(f);
}

/* ---- exec ---- */

static void fork_exec(const char *what, int fd, int on)
{
    pid_t pid;

    printf("%s\n", what);
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        if (fd != on && dup2(fd, on) < 0)
            _exit(1);
        execv("/proc/self/exe", words(on));
        _exit(127);
    }
    reap(pid);
    say("where", lseek(fd, 0, SEEK_CUR));
    close(fd);
}

static void executed(void)
{
    fork_exec("stdin", open_at(O_CLOEXEC, 50), 0);
    fork_exec("high number", open_at(O_CLOEXEC, 60), 77);
    fork_exec("not close-on-exec", open_at(0, 70), 78);
}

static void inherited(void)
{
    int fd = open_at(0, 5), closed = open_at(O_CLOEXEC, 5);
    pid_t pid;

    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        execl("/proc/self/exe", self, "child", words(fd)[2], (char *)NULL);
        _exit(127);
    }
    reap(pid);
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        execle("/proc/self/exe", self, "child", words(closed)[2], (char *)NULL, environ);
        _exit(127);
    }
    reap(pid);
    close(fd);
    close(closed);
}

static void vforked(void)
{
    int fd = open_at(O_CLOEXEC, 42), other = open_at(O_CLOEXEC, 43);
    char **argv = words(0);
    pid_t pid;

    fflush(stdout);
    pid = vfork(); /* NOLINT */
    if (pid == 0) {
        if (dup2(fd, 0) < 0)
            _exit(1);
        close(other);
        execv("/proc/self/exe", argv);
        _exit(127);
    }
    reap(pid);
    say("where", lseek(fd, 0, SEEK_CUR));
    say_bytes("closed in the child only", buffer, read(other, buffer, 10));
    close(fd);
    close(other);
}

/* Where a vfork's child goes, and who it becomes, is nothing to its parent. */
static void vforked_elsewhere(const char *dir, const char *other)
{
    uid_t uid = getuid();
    gid_t gid = getgid();
    int fd;

    if (chdir(dir) != 0)
        die(dir);
    fflush(stdout);
    /* NOLINTBEGIN */
    if (vfork() == 0) {
        if (chdir(other) != 0 || access("text", F_OK) != 0 || setresuid(uid, uid, uid) != 0 ||
            setresgid(gid, gid, gid) != 0)
            _exit(1);
        setfsuid(uid);
        fd = open("text", O_RDONLY | O_CLOEXEC);
        _exit(read(fd, &(char){0}, 1) == 1 ? 0 : 1);
    }
    /* NOLINTEND */
    fd = open("text", O_RDONLY | O_CLOEXEC);
    say_bytes("in the parent's directory", buffer, read(fd, buffer, sizeof buffer));
    close(fd);
    fd = open("../text", O_RDONLY | O_CLOEXEC);
    say_bytes("above it", buffer, read(fd, buffer, sizeof buffer));
    close(fd);
}

/* A file of the data set that is open for writing is the child's standard output, by every way to
 * put it there. */
static void vforked_writing(void)
{
    static char list_path[4200];
    char **argv = words(0);
    int fd, before;

    snprintf(list_path, sizeof list_path, "%s.list", text_path);
    for (int way = 0; way < 4; way++) {
        pid_t pid;

        fd = open(list_path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        if (fd < 0)
            die(list_path);
        fflush(stdout);
        pid = vfork(); /* NOLINT */
        if (pid == 0) {
            int copy = way == 0 ? dup(fd) : way == 1 ? fcntl(fd, F_DUPFD, 50) : fd;

            if (copy < 0 || (way == 2 ? dup3(fd, 1, 0) : dup2(copy, 1)) != 1 ||
                (way == 3 && dup2(1, 2) != 2))
                _exit(1);
            execv("/proc/self/exe", argv);
            _exit(127);
        }
        reap(pid);
        say_bytes("written", buffer, pread(fd, buffer, sizeof buffer, 0));
        close(fd);
        fd = open(list_path, O_RDONLY | O_CLOEXEC);
        say_bytes("read", buffer, read(fd, buffer, sizeof buffer));
        close(fd);
    }
    /* What the child closes or takes for something else stays the parent's. */
    before = open(list_path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    fd = open_at(O_CLOEXEC, 5);
    fflush(stdout);
    if (vfork() == 0) { /* NOLINT */
        (void)!dup2(fd, before);
        close(fd);
        _exit(0);
    }
    say("write", write(before, "still", 5));
    say_bytes("read", buffer, read(fd, buffer, 10));
    close(before);
    close(fd);
    say("unlink", unlink(list_path));
}

/* ---- clone, terminals, daemons ---- */

static int cloned_fd;

static int cloned(void *arg)
{
    char *to = arg;
    ssize_t n = read(cloned_fd, to, 1000);

    return n == 1000 ? (int)(digest(to, 1000) % 100) : 111;
}

static void clones(void)
{
    static char stack[1 << 16] __attribute__((aligned(64))), bytes[1000];

    cloned_fd = open_at(0, 42);
    fflush(stdout);
    reap(clone(cloned, stack + sizeof stack, SIGCHLD, bytes));
    say_bytes("after a clone", buffer, read(cloned_fd, buffer, 1000));
    fflush(stdout);
    close(cloned_fd);
    cloned_fd = open_at(0, 43);
    reap(clone(cloned, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, bytes));
    say_bytes("after one in our memory", buffer, read(cloned_fd, buffer, 1000));
    close(cloned_fd);
}

static void at_terminal(void)
{
    int fd = open_at(0, 44), master = -1;
    pid_t pid;

    fflush(stdout);
    pid = forkpty(&master, NULL, NULL, NULL);
    if (pid == 0)
        _exit(read(fd, buffer, 1000) == 1000 ? 0 : 1);
    reap(pid);
    say_bytes("after forkpty", buffer, read(fd, buffer, 1000));
    close(fd);
    close(master);
}

/* What was standard input is /dev/null in a daemon, which says through a pipe what it read. */
static void as_daemon(void)
{
    int pipes[2], result[2] = {-1, -1};
    pid_t pid;

    if (pipe(pipes) != 0)
        die("pipe");
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        int fd = open_at(0, 45);

        close(0);
        if (open(data_path, O_RDONLY) != 0 || read(0, buffer, 10) != 10 || daemon(1, 0) != 0)
            _exit(1);
        result[0] = (int)read(0, buffer, 10);
        result[1] = (int)lseek(fd, 0, SEEK_CUR);
        _exit(write(pipes[1], result, sizeof result) == sizeof result ? 0 : 1);
    }
    close(pipes[1]);
    reap(pid);
    say("daemon wrote", read(pipes[0], result, sizeof result));
    say("read from nothing", result[0]);
    say("where", result[1]);
    close(pipes[0]);
}

/* ---- spawn ---- */

static void spawned(void)
{
    int fd = open_at(O_CLOEXEC, 7);
    posix_spawn_file_actions_t actions;
    pid_t pid = -1;

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fd, 0);
    fflush(stdout);
    say("posix_spawn", posix_spawn(&pid, "/proc/self/exe", &actions, NULL, words(0), environ));
    reap(pid);
    posix_spawn_file_actions_destroy(&actions);
    say("where", lseek(fd, 0, SEEK_CUR));
    close(fd);

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, data_path, O_RDONLY, 0);
    say("posix_spawnp", posix_spawnp(&pid, "/proc/self/exe", &actions, NULL, words(0), environ));
    reap(pid);
    posix_spawn_file_actions_destroy(&actions);
}

static void shells(void)
{
    char command[8300], line[100];
    int fd = open_at(0, 9);
    FILE *p;

    fflush(stdout);
    snprintf(command, sizeof command, "head -c 100 <&%d | cksum; cat <%s | cksum", fd, data_path);
    say("system", system(command)); /* NOLINT */
    say("where", lseek(fd, 0, SEEK_CUR) > 9);
    close(fd);
    fd = open_at(0, 0);
    fflush(stdout);
    snprintf(command, sizeof command, "cksum <&%d", fd);
    p = popen(command, "re"); /* NOLINT */
    printf("%s", fgets(line, sizeof line, p));
    say("pclose", pclose(p));
    close(fd);
}

/* ---- passing ---- */

static void passed(void)
{
    int fd = open_at(O_CLOEXEC, 11), sockets[2];

    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};

    char byte = 'x';
    struct iovec iov = {&byte, 1};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.bytes,
                         .msg_controllen = sizeof control.bytes};
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    ssize_t sent;
    pid_t pid;

    if (!c)
        die("message");
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0)
        die("socketpair");
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        int got = -1;

        msg.msg_controllen = sizeof control.bytes;
        say("recvmsg", recvmsg(sockets[1], &msg, MSG_CMSG_CLOEXEC));
        c = CMSG_FIRSTHDR(&msg);
        if (!c)
            die("nothing received");
        memcpy(&got, CMSG_DATA(c), sizeof got);
        say_bytes("received", buffer, read(got, buffer, 1000));
        fflush(stdout);
        _exit(0);
    }
    close(fd);
    fd = open_at(O_CLOEXEC, 11);
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    sent = sendmsg(sockets[0], &msg, 0);
    reap(pid);
    say("sendmsg", sent);
    say("where", lseek(fd, 0, SEEK_CUR));
    close(fd);
    close(sockets[0]);
    close(sockets[1]);
}

/* ---- other threads read while this one makes processes ---- */

static void *read_on(void *arg)
{
    uint64_t *sum = arg;

    for (int i = 0; i < 40; i++) {
        int fd = open(data_path, O_RDONLY | O_CLOEXEC);
        uint64_t h = 0;
        char part[4096];
        ssize_t n;

        while ((n = read(fd, part, sizeof part)) > 0) {
            h = h * 31 + digest(part, (size_t)n);
            if (h % 16 == 0)
                sched_yield();
        }
        if (fd < 0 || n < 0 || close(fd) != 0)
            die("thread");
        if (i > 0 && h != *sum) {
            fprintf(stderr, "round %d: other bytes\n", i);
            exit(1);
        }
        *sum = h;
    }
    return NULL;
}

static void threads(void)
{
    pthread_t readers[3];
    uint64_t sums[3];

    for (int i = 0; i < 3; i++)
        if (pthread_create(&readers[i], NULL, read_on, &sums[i]) != 0)
            die("thread");
    for (int i = 0; i < 60; i++) {
        pid_t pid = -1;
        char *argv[] = {self, "nothing", "at all", NULL};

        if (i % 2)
            (void)!posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ);
        else if ((pid = fork()) == 0)
            _exit(0);
        waitpid(pid, NULL, 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(readers[i], NULL);
        printf("thread: %016llx\n", (unsigned long long)sums[i]);
    }
}

int main(int argc, char **argv)
{
    self = argv[0];
    if (argc == 3 && strcmp(argv[1], "child") == 0)
        return child((int)strtol(argv[2], NULL, 10));
    if (argc < 2 || strcmp(argv[1], "nothing") == 0)
        return argc < 2 ? 2 : 0;
    snprintf(data_path, sizeof data_path, "%s/data", argv[1]);
    snprintf(text_path, sizeof text_path, "%s/text", argv[1]);
    if (argc > 2 && strcmp(argv[2], "threads") == 0) {
        threads();
        return 0;
    }
    if (argc > 3 && strcmp(argv[2], "elsewhere") == 0) {
        vforked_elsewhere(argv[1], argv[3]);
        return 0;
    }
    forked();
    forked_streams();
    executed();
    inherited();
    vforked();
    vforked_writing();
    clones();
    at_terminal();
    as_daemon();
    spawned();
    if (argc > 2)
        shells();
    passed();
    threads();
    return 0;
}
