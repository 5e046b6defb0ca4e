/*
 * tests/programs/pausing - pausing HOW FILE READY GO: opens the file and reads a first piece, makes
 * READY, waits until GO is there, and reads the rest; all of it goes to standard output. HOW: read,
 * pread, stream, fork (the file becomes real before the pause), late (nothing is read before it).
 * Ends with status 0, or says the error and ends with 1.
 */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "transcript.h"

#define PIECE 65536

static char buffer[PIECE];

static void pause_for(const char *ready, const char *go)
{
    int fd = open(ready, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    if (fd < 0)
        die(ready);
    close(fd);
    while (access(go, F_OK) != 0)
        usleep(10000);
}

static void out(const char *what, ssize_t n)
{
    if (n < 0)
        die(what);
    if (fwrite(buffer, 1, (size_t)n, stdout) != (size_t)n)
        die("stdout");
}

static void by_stream(char **argv)
{
    FILE *f = fopen(argv[2], "re");
    size_t n;

    if (!f)
        die(argv[2]);
    out("fread", (ssize_t)fread(buffer, 1, PIECE, f));
    pause_for(argv[3], argv[4]);
    while ((n = fread(buffer, 1, PIECE, f)) > 0)
        out("fread", (ssize_t)n);
    if (ferror(f))
        die("fread");
    fclose(f);
}

static void by_descriptor(const char *how, char **argv)
{
    int fd = open(argv[2], O_RDONLY | O_CLOEXEC);
    int at = strcmp(how, "pread") == 0;
    off_t done = 0;
    ssize_t n;

    if (fd < 0)
        die(argv[2]);
    if (strcmp(how, "late") != 0) {
        n = at ? pread(fd, buffer, PIECE, 0) : read(fd, buffer, PIECE);
        out("read", n);
        done = n;
    }
    if (strcmp(how, "fork") == 0) {
        pid_t pid = fork();

        if (pid == 0)
            _exit(0);
        waitpid(pid, NULL, 0);
    }
    pause_for(argv[3], argv[4]);
    while ((n = at ? pread(fd, buffer, PIECE, done) : read(fd, buffer, PIECE)) > 0) {
        out("read", n);
        done += n;
    }
    out("read", n);
    close(fd);
}

int main(int argc, char **argv)
{
    if (argc < 5)
        return 2;
    if (strcmp(argv[1], "stream") == 0)
        by_stream(argv);
    else
        by_descriptor(argv[1], argv);
    return fflush(stdout) == 0 ? 0 : 1;
}
