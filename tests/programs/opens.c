/*
 * tests/programs/opens - opens OUT DIR -- COMMAND...: runs the command and writes the names of the
 * files below DIR that anybody has opened meanwhile to OUT, each once a directory and name. What a
 * program reads from the cache it does not open. The status is the command's.
 */
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <sys/inotify.h>
#include <sys/wait.h>
#include <unistd.h>

#include "transcript.h"

#define WATCHES_MAX 4096

static int notify;
static char *watched[WATCHES_MAX];

static int watch(const char *path, const struct stat *st, int type, struct FTW *at)
{
    int wd;

    (void)st;
    (void)at;
    if (type != FTW_D)
        return 0;
    wd = inotify_add_watch(notify, path, IN_OPEN | IN_ONLYDIR);
    if (wd < 0 || wd >= WATCHES_MAX)
        die(path);
    watched[wd] = strdup(path);
    return 0;
}

/* Everything up to now. */
static void drain(FILE *out)
{
    char buffer[1 << 16] __attribute__((aligned(__alignof__(struct inotify_event))));
    ssize_t n;

    while ((n = read(notify, buffer, sizeof buffer)) > 0) {
        for (char *at = buffer; at < buffer + n;) {
            const struct inotify_event *event = (const struct inotify_event *)at;

            if (event->mask & IN_Q_OVERFLOW)
                fprintf(out, "too many\n");
            else if (!(event->mask & IN_ISDIR))
                fprintf(out, "%s/%s\n", watched[event->wd], event->len ? event->name : "");
            at += sizeof *event + event->len;
        }
    }
}

int main(int argc, char **argv)
{
    int status = 0;
    FILE *out;
    pid_t pid;

    if (argc < 5 || strcmp(argv[3], "--") != 0)
        return 2;
    out = fopen(argv[1], "we");
    notify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (!out || notify < 0 || nftw(argv[2], watch, 16, FTW_PHYS) != 0)
        die("opens");
    pid = fork();
    if (pid == 0) {
        execvp(argv[4], argv + 4);
        die(argv[4]);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        die("wait");
    drain(out);
    fclose(out);
    for (int i = 0; i < WATCHES_MAX; i++)
        free(watched[i]);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
