/*
 * tests/programs/changes - changes DIR: a program that changes files of the data set and reads them
 * again at once: it must see what it did. All files are read first, so that they are cached, and
 * are long enough unchanged to be kept. "changes look FILE" looks at one, "changes ask-size FILE"
 * at its size alone, "changes stopped PID FILE" changes one while the daemon PID is stopped,
 * "changes full FILE" while the program has no descriptor left to tell the daemon with, "changes
 * unreached FILE" before it could reach the daemon at all, "changes crowded FILE DIR" DIR/written
 * while FILE is open more often than the library has room for.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "raw.h"
#include "transcript.h"

static char buffer[1 << 20];
static char paths[16][4096];
static const char *root;

static const char *path(const char *name)
{
    static int next;
    char *p = paths[next++ % 16];

    snprintf(p, sizeof paths[0], "%s/%s", root, name);
    return p;
}

static void show_at(const char *what, int dir, const char *name)
{
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
    struct stat st = {0};

    if (fd < 0) {
        say(what, fd);
        return;
    }
    fstat(fd, &st);
    say_bytes(what, buffer, read(fd, buffer, sizeof buffer));
    say("size", st.st_size);
    close(fd);
}

static void show(const char *what, const char *name)
{
    show_at(what, AT_FDCWD, path(name));
}

static void put(const char *name, int flags, const char *text)
{
    int fd = open(path(name), flags | O_CLOEXEC, 0644);

    if (fd < 0)
        die(name);
    say("write", write(fd, text, strlen(text)));
    close(fd);
}

static void writing(void)
{
    FILE *f;
    int fd, copy;

    show("as it was", "a");
    put("a", O_WRONLY, "over");
    show("overwritten", "a");
    put("a", O_WRONLY | O_APPEND, "appended");
    show("appended", "a");
    put("a", O_WRONLY | O_TRUNC, "short");
    show("truncated and written", "a");
    say("truncate", truncate(path("a"), 3));
    show("cut", "a");

    show("as it was", "b");
    f = fopen(path("b"), "w");
    fprintf(f, "by a stream\n");
    show("before the stream is flushed", "b");
    fflush(f);
    show("flushed", "b");
    fprintf(f, "more\n");
    fclose(f);
    show("closed", "b");

    show("as it was", "c");
    fd = open(path("c"), O_RDWR | O_CLOEXEC);
    copy = dup(fd);
    close(fd);
    show("open for writing", "c");
    say("write", write(copy, "through a duplicate", 19));
    show("written", "c");
    say("ftruncate", ftruncate(copy, 5));
    show("cut", "c");
    say("pwrite", pwrite(copy, "zz", 2, 1));
    close(copy);
    show("closed", "c");
}

static void mapped(void)
{
    int fd = open(path("d"), O_RDWR | O_CLOEXEC);
    char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    show("as it was", "d");
    memcpy(p, "mapped", 6);
    show("written through memory", "d");
    munmap(p, 4096);
    close(fd);
    show("closed", "d");
}

static void names(void)
{
    show("as it was", "e");
    show("as it was", "f");
    say("rename", rename(path("e"), path("f")));
    show("gone", "e");
    show("the other", "f");
    say("unlink", unlink(path("f")));
    show("gone", "f");
    put("f", O_WRONLY | O_CREAT | O_EXCL, "new");
    show("new", "f");
    show("as it was", "g");
    say("link", link(path("g"), path("g2")));
    show("the same", "g2");
    say("unlink", unlink(path("g")));
    show("gone", "g");
    show("the same", "g2");
    say("symlink", symlink("g2", path("g")));
    show("through a link", "g");
    put("g", O_WRONLY | O_TRUNC, "through a link");
    show("through a link", "g");
    show("itself", "g2");
    say("remove", remove(path("g2")));
    show("nothing behind the link", "g");
    show("as it was", "sub/h");
    put("dirlink/h", O_WRONLY | O_TRUNC, "through a linked directory");
    show("itself", "sub/h");
    say("unlink", unlink(path("dirlink/h")));
    show("gone", "sub/h");
}

/* ---- a file that is written gets another name ---- */

static void write_on(const char *what, int fd, const char *name)
{
    show(what, name);
    say("write", write(fd, "more", 4));
    show("written on", name);
    say("ftruncate", ftruncate(fd, 10));
    show("cut", name);
    close(fd);
    show("closed", name);
}

static int make_without_name(const char *name, int flags)
{
    int fd = open(root, O_TMPFILE | O_RDWR | O_CLOEXEC, 0644);
    bool empty = (flags & AT_EMPTY_PATH) != 0;
    char proc[64];

    say_ok("without a name", fd);
    say("write", write(fd, "something", 9));
    snprintf(proc, sizeof proc, "/proc/self/fd/%d", fd);
    say("linkat", linkat(empty ? fd : AT_FDCWD, empty ? "" : proc, AT_FDCWD, path(name), flags));
    return fd;
}

/* All of them get their names first, and are old enough to be kept when they are looked at. */
static void renamed(void)
{
    int one = open(path("l"), O_RDWR | O_CLOEXEC), two = dup(one), dir, other, tmp1, tmp2;

    say("rename", rename(path("l"), path("l2")));
    dir = open(path("moving/m"), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    say("rename", rename(path("moving"), path("has-moved")));
    other = open(path("m"), O_RDWR | O_APPEND | O_CLOEXEC);
    say("exchange", renameat2(AT_FDCWD, path("m"), AT_FDCWD, path("n"), RENAME_EXCHANGE));
    tmp1 = make_without_name("tmp1", AT_SYMLINK_FOLLOW);
    tmp2 = make_without_name("tmp2", AT_EMPTY_PATH);
    nanosleep(&(struct timespec){.tv_sec = 2, .tv_nsec = 100000000}, NULL);

    write_on("renamed", two, "l2");
    show("gone", "l");
    say("write", write(one, "by the other", 12));
    show("written on", "l2");
    close(one);
    write_on("its directory is renamed", dir, "has-moved/m");
    show("the other", "m");
    write_on("exchanged", other, "n");
    write_on("linked", tmp1, "tmp1");
    write_on("linked", tmp2, "tmp2");

    one = open(path("n"), O_RDWR | O_CLOEXEC);
    put("n2", O_WRONLY | O_CREAT, "in its place");
    say("rename", rename(path("n2"), path("n")));
    say("write", write(one, "nowhere", 7));
    show("in its place", "n");
    close(one);
    show("in its place", "n");
}

/* Names that begin elsewhere, and end in the data set. */
static void odd_names(void)
{
    char odd[4200];
    int fd;

    snprintf(odd, sizeof odd, "/%s", path("j"));
    show("as it was", "j");
    say("truncate", truncate(odd, 100));
    show("cut", "j");
    fd = open(odd, O_WRONLY | O_APPEND | O_CLOEXEC);
    show("open for writing", "j");
    say("write", write(fd, "more", 4));
    close(fd);
    show("appended", "j");
    snprintf(odd, sizeof odd, "/proc/..%s", path("k"));
    show("as it was", "k");
    say("truncate", truncate(odd, 100));
    show("cut", "k");
    say("rename", rename(path("j"), odd));
    show("the other", "k");
}

/* ---- what is open when this program changes it ---- */

enum deed {
    UNLINK,
    MOVE,
    MOVE_OVER,
    MOVE_DIRECTORY,
    CHMOD,
    UTIMES,
    LINK,
    UNLINK_LINK,
    FCHMOD_ANOTHER,
    CUT,
    WRITE,
    WRITE_STREAM,
    DEEDS
};

static const char *of_deed(const char *what, int deed)
{
    static char names[4][64];
    static int next;
    char *name = names[next++ % 4];

    snprintf(name, sizeof names[0], "kept%d/%s", deed, what);
    return path(name);
}

static void fill_with(const char *file, char byte)
{
    int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    memset(buffer, byte, sizeof buffer);
    if (fd < 0 || write(fd, buffer, sizeof buffer) != sizeof buffer)
        die(file);
    close(fd);
}

static int write_stream(const char *file)
{
    FILE *f = fopen(file, "r+");
    int rc = f && fputs("stream", f) >= 0 ? 0 : -1;

    fclose(f);
    return rc;
}

static int do_deed(int deed, const char *file)
{
    struct timeval then[2] = {{1000000000, 0}, {1000000000, 0}};
    char moved[64];
    int fd, rc;

    switch (deed) {
    case UNLINK:
        return unlink(file);
    case MOVE:
        return rename(file, of_deed("moved", deed));
    case MOVE_OVER:
        return rename(of_deed("other", deed), file);
    case MOVE_DIRECTORY:
        snprintf(moved, sizeof moved, "kept%d-moved", deed);
        return rename(of_deed("", deed), path(moved));
    case CHMOD:
        return chmod(file, 0600);
    case UTIMES:
        return utimes(file, then);
    case LINK:
        return link(file, of_deed("second", deed));
    case UNLINK_LINK:
        return unlink(of_deed("linked", deed));
    case FCHMOD_ANOTHER:
        fd = open(file, O_RDONLY | O_CLOEXEC);
        rc = fchmod(fd, 0600);
        close(fd);
        return rc;
    case CUT:
        return truncate(file, 100000);
    case WRITE_STREAM:
        return write_stream(file);
    default:
        fill_with(file, 'w');
        return 0;
    }
}

/* Of each there are two open, one of which was read in part; none of the bytes is cached, since
 * they are too young. Then another file comes to the name, and a child inherits them. */
static void kept(void)
{
    for (int deed = 0; deed < DEEDS; deed++) {
        const char *file = of_deed("file", deed);
        int begun, fresh;
        int status = -1;
        pid_t pid;

        say("mkdir", mkdir(of_deed("", deed), 0755));
        fill_with(file, 'a');
        fill_with(of_deed("other", deed), 'b');
        if (deed == UNLINK_LINK && link(file, of_deed("linked", deed)) != 0)
            die(file);
        begun = open(file, O_RDONLY | O_CLOEXEC);
        fresh = open(file, O_RDONLY | O_CLOEXEC);
        say_bytes("begun", buffer, read(begun, buffer, 10));
        printf("%d ", deed);
        say("done", do_deed(deed, file));
        if (deed == UNLINK || deed == MOVE)
            fill_with(file, 'n');
        fflush(stdout);
        pid = fork();
        if (pid == 0)
            _exit(pread(fresh, buffer, 1, 0) == 1 ? buffer[0] : 1);
        waitpid(pid, &status, 0);
        say("in a child", status);
        say_bytes("untouched", buffer, read(fresh, buffer, sizeof buffer));
        say_bytes("begun", buffer, read(begun, buffer, sizeof buffer));
        close(begun);
        close(fresh);
    }
}

static void attributes(void)
{
    struct timeval then[2] = {{1000000000, 0}, {1000000000, 0}};
    struct stat st = {0};
    int fd;

    show("as it was", "i");
    say("chmod", chmod(path("i"), 0600));
    fd = open(path("i"), O_RDONLY | O_CLOEXEC);
    say("fstat", fstat(fd, &st));
    printf("%o\n", st.st_mode);
    close(fd);
    say("utimes", utimes(path("i"), then));
    fd = open(path("i"), O_RDONLY | O_CLOEXEC);
    say("fstat", fstat(fd, &st));
    say("mtime", st.st_mtime);
    say("fchmod", fchmod(fd, 0640));
    close(fd);
    fd = open(path("i"), O_RDONLY | O_CLOEXEC);
    say("fstat", fstat(fd, &st));
    printf("%o\n", st.st_mode);
    close(fd);
}

/* ---- attributes, by every call: each of a file that nobody has touched ---- */

enum way {
    FCHMOD,
    FCHOWN,
    FUTIMENS,
    FUTIMES,
    FSETXATTR,
    FREMOVEXATTR,
    LCHMOD,
    FUTIMESAT,
    FUTIMESAT_FD,
    SETXATTR,
    LSETXATTR,
    REMOVEXATTR,
    FCHOWNAT,
    UTIMENSAT,
    LINKAT,
    WAYS
};

static int by_path(enum way way, const char *file)
{
    struct timeval then[2] = {{1000000000, 0}, {1000000000, 0}};

    switch (way) {
    case LCHMOD:
        return lchmod(file, 0600);
    case FUTIMESAT:
        return futimesat(AT_FDCWD, file, then); /* NOLINT */
    case SETXATTR:
        return setxattr(file, "user.a", "x", 1, 0);
    case LSETXATTR:
        return lsetxattr(file, "user.a", "x", 1, 0);
    default:
        return removexattr(file, "user.b");
    }
}

static int by_number(enum way way, int fd, const char *file)
{
    struct timeval then[2] = {{1000000000, 0}, {1000000000, 0}};
    struct timespec when[2] = {{1000000000, 0}, {1000000000, 0}};

    switch (way) {
    case FCHMOD:
        return fchmod(fd, 0600);
    case FCHOWN:
        return fchown(fd, getuid(), getgid());
    case FUTIMENS:
        return futimens(fd, when);
    case FUTIMES:
        return futimes(fd, then);
    case FSETXATTR:
        return fsetxattr(fd, "user.a", "x", 1, 0);
    case FREMOVEXATTR:
        return fremovexattr(fd, "user.b");
    case FUTIMESAT_FD:
        return futimesat(fd, NULL, then); /* NOLINT */
    case FCHOWNAT:
        return fchownat(fd, "", getuid(), getgid(), AT_EMPTY_PATH);
    case UTIMENSAT:
        return utimensat(fd, "", when, AT_EMPTY_PATH);
    case LINKAT:
        return linkat(fd, "", AT_FDCWD, path("attributes/linked"), AT_EMPTY_PATH);
    default:
        return by_path(way, file);
    }
}

static bool is_same_time(const struct stat *a, const struct stat *b)
{
    return a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

/* What a path shows is looked at last: the library would learn from it. */
static void every_attribute(void)
{
    for (int way = 0; way < WAYS; way++) {
        struct stat before = {0}, after = {0}, there = {0};
        char name[64];
        int fd;

        snprintf(name, sizeof name, "attributes/%d", way);
        show("as it was", name);
        fd = open(path(name), O_RDONLY | O_CLOEXEC);
        fstat(fd, &before);
        printf("%d ", way);
        say("changed", by_number(way, fd, path(name)));
        close(fd);
        fd = open(path(name), O_RDONLY | O_CLOEXEC);
        fstat(fd, &after);
        close(fd);
        stat(path(name), &there);
        say("seen", is_same_time(&after, &there));
        say("moved on", !is_same_time(&before, &there));
        printf("%o %ld %ld\n", after.st_mode, after.st_size, (long)after.st_nlink);
    }
}

static void without_names(void)
{
    struct {
        struct file_handle head;
        unsigned char bytes[MAX_HANDLE_SZ];
    } by_fd = {.head.handle_bytes = MAX_HANDLE_SZ}, by_name = {.head.handle_bytes = MAX_HANDLE_SZ};

    int fd = open(path("attributes/15"), O_RDONLY | O_CLOEXEC), mount;

    say("faccessat", faccessat(fd, "", R_OK, AT_EMPTY_PATH));
    say("faccessat, to run", faccessat(fd, "", X_OK, AT_EMPTY_PATH));
    close(fd);
    fd = open(path("attributes/15"), O_RDONLY | O_CLOEXEC);
    say("handle", name_to_handle_at(fd, "", &by_fd.head, &mount, AT_EMPTY_PATH));
    name_to_handle_at(AT_FDCWD, path("attributes/15"), &by_name.head, &mount, 0);
    say("the same", memcmp(&by_fd, &by_name, sizeof by_fd) == 0);
    close(fd);
}

static void directories(void)
{
    show("as it was", "one/x");
    show("as it was", "two/x");
    say("rename", rename(path("one"), path("three")));
    show("gone", "one/x");
    show("the same", "three/x");
    say("rename", rename(path("two"), path("one")));
    show("the other", "one/x");
    show("gone", "two/x");
    /* The current directory is the same, whatever it is called. */
    say("chdir", chdir(path("three")));
    show_at("here", AT_FDCWD, "x");
    say("rename", rename(path("three"), path("four")));
    say("rename", rename(path("one"), path("three")));
    show_at("still here", AT_FDCWD, "x");
}

static int open_dir(const char *name)
{
    int fd = open(path(name), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        die(name);
    return fd;
}

/* A descriptor is of one directory, whatever that is called; a number may become another's. */
static void by_descriptor(void)
{
    int four = open_dir("four"), three = open_dir("three"), number;

    show_at("four", four, "x");
    show_at("three", three, "x");
    say("rename", rename(path("four"), path("five")));
    say("rename", rename(path("three"), path("four")));
    show_at("was four", four, "x");
    show_at("was three", three, "x");
    say("exchange", renameat2(AT_FDCWD, path("four"), AT_FDCWD, path("five"), RENAME_EXCHANGE));
    show_at("is four again", four, "x");
    show_at("is five", three, "x");
    say("dup2", dup2(three, four) == four);
    show_at("the other, at that number", four, "x");
    number = four;
    close(four);
    four = open_dir("four");
    say("the same number", four == number);
    show_at("opened anew", four, "x");
    close(three);
    close(four);
}

/* Another directory of the same name is another. */
static void removed(void)
{
    int old, number;

    say("mkdir", mkdir(path("gone"), 0755));
    put("gone/x", O_WRONLY | O_CREAT, "the first");
    old = open_dir("gone");
    say("chdir", chdir(path("gone")));
    show_at("by descriptor", old, "x");
    show_at("here", AT_FDCWD, "x");
    say("unlink", unlink(path("gone/x")));
    say("rmdir", rmdir(path("gone")));
    say("mkdir", mkdir(path("gone"), 0755));
    put("gone/x", O_WRONLY | O_CREAT, "the second");
    show("the second", "gone/x");
    show_at("by descriptor", old, "x");
    show_at("here", AT_FDCWD, "x");
    number = old;
    close(old);
    say("the same number", open_dir("gone") == number);
    show_at("by descriptor", number, "x");
    close(number);
}

/* Long enough for the library to give the daemon up; longer does no harm. */
static void stopped(pid_t pid, const char *file)
{
    show_at("as it was", AT_FDCWD, file);
    if (kill(pid, SIGSTOP) != 0)
        die("SIGSTOP");
    nanosleep(&(struct timespec){.tv_sec = 2, .tv_nsec = 500000000}, NULL);
    say("truncate", truncate(file, 5));
    show_at("cut", AT_FDCWD, file);
    if (kill(pid, SIGCONT) != 0)
        die("SIGCONT");
}

/* What the library has open is closed behind its back, and no number is left for more. */
static void full(const char *file)
{
    struct rlimit limit, none;

    getrlimit(RLIMIT_NOFILE, &limit);
    none = limit;
    none.rlim_cur = 3;
    show_at("as it was", AT_FDCWD, file);
    raw(SYS_close_range, 3, ~0u, 0, 0);
    setrlimit(RLIMIT_NOFILE, &none);
    say("truncate", truncate(file, 5));
    setrlimit(RLIMIT_NOFILE, &limit);
    show_at("cut", AT_FDCWD, file);
}

/* More cached files are open than the library has room for. */
static void crowded(const char *file)
{
    enum {
        CROWD = 16384
    };
    struct rlimit limit;
    int fd, last = -1;

    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    for (int i = 0; i < CROWD; i++) {
        last = open(file, O_RDONLY | O_CLOEXEC);
        if (last < 0)
            die("open");
    }
    fd = open(path("written"), O_WRONLY | O_TRUNC | O_CLOEXEC);
    say("write", write(fd, "short", 5));
    close(fd);
    close(last);
    show("written", "written");
}

/* The first thing that the program does; then the library tries to reach the daemon once more, but
 * not at once. */
static void unreached(const char *file)
{
    struct rlimit limit, none;

    getrlimit(RLIMIT_NOFILE, &limit);
    none = limit;
    none.rlim_cur = 3;
    setrlimit(RLIMIT_NOFILE, &none);
    say("truncate", truncate(file, 5));
    setrlimit(RLIMIT_NOFILE, &limit);
    for (int i = 0; i < 30; i++) {
        int fd = open(file, O_RDONLY | O_CLOEXEC);
        struct stat st = {0};

        fstat(fd, &st);
        say("size", st.st_size);
        close(fd);
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
}

/* Writes to a file that others have looked at since it was opened, and ends without closing it:
 * `how` it ends. It makes OPEN, and waits for READ. "inherited": it is standard output;
 * "numbered": it is 3. */
static void left_open(const char *how, const char *file, const char *open_sign,
                      const char *read_sign)
{
    int fd = strcmp(how, "inherited") == 0  ? 1
             : strcmp(how, "numbered") == 0 ? 3
                                            : open(file, O_WRONLY | O_APPEND | O_CLOEXEC);

    if (fd < 0 || creat(open_sign, 0644) < 0)
        die(file);
    while (access(read_sign, F_OK) != 0)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    if (write(fd, "more", 4) != 4)
        die("write");
    if (strcmp(how, "killed") == 0)
        raise(SIGKILL);
    if (strcmp(how, "exit") != 0)
        _exit(0);
    exit(0);
}

int main(int argc, char **argv)
{
    if (argc == 6 && strcmp(argv[1], "left-open") == 0)
        left_open(argv[2], argv[3], argv[4], argv[5]);
    if (argc == 4 && strcmp(argv[1], "stopped") == 0)
        return stopped((pid_t)atoi(argv[2]), argv[3]), 0;
    if (argc == 3 && strcmp(argv[1], "full") == 0)
        return full(argv[2]), 0;
    if (argc == 4 && strcmp(argv[1], "crowded") == 0)
        return root = argv[3], crowded(argv[2]), 0;
    if (argc == 3 && strcmp(argv[1], "unreached") == 0)
        return unreached(argv[2]), 0;
    if (argc == 3 && strcmp(argv[1], "look") == 0)
        return stat(argv[2], &(struct stat){0}) == 0 ? 0 : 1;
    if (argc == 3 && strcmp(argv[1], "ask-size") == 0)
        return statx(AT_FDCWD, argv[2], 0, STATX_SIZE, &(struct statx){0}) == 0 ? 0 : 1;
    if (argc < 2)
        return 2;
    root = argv[1];
    writing();
    mapped();
    names();
    renamed();
    odd_names();
    kept();
    attributes();
    every_attribute();
    without_names();
    directories();
    by_descriptor();
    removed();
    return 0;
}
