/*
 * tests/programs/paths - paths DIR: every way to write the name of a file below DIR, and names that
 * are none. DIR is absolute.
 */
#include <dirent.h>
#include <fcntl.h>
#include <fts.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include "transcript.h"

static char buffer[1 << 21];

static void take(const char *what, int fd)
{
    say_ok(what, fd);
    if (fd < 0)
        return;
    say_bytes(what, buffer, read(fd, buffer, sizeof buffer));
    close(fd);
}

static void look(const char *path)
{
    take(path, open(path, O_RDONLY | O_CLOEXEC));
}

static void look_at(int dir, const char *path)
{
    take(path, openat(dir, path, O_RDONLY | O_CLOEXEC));
}

/* As if below DIR, whatever that is called. */
static void below(const char *dir, const char *path)
{
    char full[8192];
    int fd;

    snprintf(full, sizeof full, "%s/%s", dir, path);
    fd = open(full, O_RDONLY | O_CLOEXEC);
    take(path, fd);
}

static void absolute(const char *dir)
{
    static const char *const names[] = {"data",
                                        "sub/inner",
                                        "sub//inner",
                                        "./sub/./inner",
                                        "sub/../data",
                                        "link",
                                        "dirlink/inner",
                                        "absolute",
                                        "outside",
                                        "sub/up/data",
                                        "dangling",
                                        "loop",
                                        "nowhere",
                                        "data/",
                                        "data/x",
                                        "data/.",
                                        "link/.",
                                        "sub/.",
                                        "sub",
                                        "sub/",
                                        "empty",
                                        "new\nline",
                                        "na\xc3\xafve \xe2\x98\x83",
                                        ".hidden",
                                        "..hidden",
                                        "dirlink/../data",
                                        "unreadable",
                                        "closed/inner",
                                        "",
                                        "chain",
                                        "sub/deep/../../text"};
    char name[300];

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        below(dir, names[i]);
    memset(name, 'x', 255);
    name[255] = '\0';
    below(dir, name);
    name[255] = 'x';
    name[256] = '\0';
    below(dir, name);
}

static void relative(const char *dir)
{
    int was = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char above[8192];

    look("data");
    say("chdir", chdir(dir));
    look("data");
    look("./sub/inner");
    look("sub/../data");
    look("");
    say("chdir", chdir("sub"));
    look("inner");
    look("../data");
    look("../../../../../../../etc/hostname-not-there");
    say("chdir", chdir("../dirlink"));
    look("inner");
    look("../data");
    say("fchdir", fchdir(was));
    look("data");
    snprintf(above, sizeof above, "%s/..", dir);
    say("chdir", chdir(above));
    look("data");
    say("fchdir", fchdir(was));
    close(was);
}

static void by_directory(const char *dir)
{
    int root = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int sub = openat(root, "sub", O_RDONLY | O_CLOEXEC), path = openat(root, "sub", O_PATH);
    DIR *d = opendir(dir);
    int count = 0;

    look_at(root, "data");
    look_at(root, "sub/inner");
    look_at(root, "link");
    look_at(sub, "inner");
    look_at(sub, "../data");
    look_at(path, "inner");
    look_at(sub, "nothing");
    look_at(sub, "");
    look_at(999, "inner");
    look_at(dirfd(d), "data");
    while (readdir(d) != NULL)
        count++;
    say("entries", count);
    closedir(d);
    say("read of a directory", read(sub, buffer, 10));
    close(sub);
    look_at(sub, "inner");
    sub = open(dir, O_RDONLY | O_CLOEXEC);
    say_ok("a directory as a file", sub);
    d = fdopendir(sub);
    look_at(dirfd(d), "data");
    closedir(d);
    close(root);
    close(path);
}

/* libc changes directory where nobody sees it: `same` is another file in each. */
static int visit(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    if (type == FTW_F && strcmp(path + at->base, "same") == 0)
        look("same");
    return 0;
}

static void walking(const char *dir)
{
    char *const roots[] = {(char *)(uintptr_t)dir, NULL};
    FTSENT *entry;
    FTS *walk;

    say("chdir", chdir(dir));
    look("same");
    say("nftw", nftw(dir, visit, 16, FTW_CHDIR | FTW_PHYS));
    look("same");
    walk = fts_open(roots, FTS_PHYSICAL, NULL);
    while ((entry = fts_read(walk)) != NULL)
        if (entry->fts_info == FTS_F && strcmp(entry->fts_name, "same") == 0)
            look(entry->fts_accpath);
    fts_close(walk);
    look("same");
}

static void modes(const char *dir)
{
    static const struct {
        const char *what;
        int flags;
    } list[] = {
        {"nofollow", O_NOFOLLOW},     {"directory", O_DIRECTORY}, {"path", O_PATH},
        {"exclusive", O_EXCL},        {"noatime", O_NOATIME},     {"nonblock", O_NONBLOCK},
        {"create", O_CREAT | O_EXCL}, {"write", O_WRONLY},        {"sync", O_SYNC},
    };

    static const char *const names[] = {"data", "link", "dirlink/inner", "unreadable", "sub"};
    char full[8192];

    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        for (size_t j = 0; j < sizeof names / sizeof *names; j++) {
            int fd;

            snprintf(full, sizeof full, "%s/%s", dir, names[j]);
            fd = open(full, list[i].flags | O_CLOEXEC, 0600);
            printf("%s %s: ", list[i].what, names[j]);
            say_ok("", fd);
            if (fd >= 0)
                close(fd);
        }
    }
    say_ok("access", access(full, R_OK));
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    absolute(argv[1]);
    relative(argv[1]);
    by_directory(argv[1]);
    walking(argv[1]);
    modes(argv[1]);
    return 0;
}
