#include "driver.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/error.h"
#include "core/mem.h"

static void make_state(struct driver *d)
{
    char path[PATH_MAX + 8];
    FB_AUTO_CLOSE int fd = -1;

    snprintf(path, sizeof path, "%s/state", d->home);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof *d->state) < 0)
        die("%s: %s", path, fb_strerror(-errno));
    d->state = mmap(NULL, sizeof *d->state, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (d->state == MAP_FAILED)
        die("mmap: %s", fb_strerror(-errno));
}

void driver_open(struct driver *d, const char *worker)
{
    const char *place = secure_getenv("T");
    const char *seed = secure_getenv("FB_TEST_SEED");

    memset(d, 0, sizeof *d);
    d->worker = worker;
    d->dice.state = seed ? strtoull(seed, NULL, 10) : 1;
    snprintf(d->home, sizeof d->home - 16, "%s/home", place ? place : "/tmp");
    snprintf(d->source, sizeof d->source, "%.*s/source", PATH_MAX - 16, d->home);
    if (mkdir(d->home, 0700) < 0)
        die("mkdir %s: %s", d->home, fb_strerror(-errno));
    d->set = (struct dataset){.root = d->source, .files = ENGINE_FILES};
    dataset_make(&d->set);
    make_state(d);
    d->state->files = ENGINE_FILES;
    for (unsigned i = 0; i < ENGINE_FILES; i++)
        d->state->version[i] = 1;
}

void driver_change(struct driver *d, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        unsigned file = (unsigned)fb_rand_below(&d->dice, d->state->files);

        dataset_write(&d->set, file, ++d->state->version[file]);
    }
}

pid_t driver_start(struct driver *d, const char *mode)
{
    char seed[32];
    pid_t pid;

    for (unsigned i = 0; i < ENGINE_COUNT_MAX; i++)
        atomic_store_explicit(&d->state->count[i], 0, memory_order_relaxed);
    snprintf(seed, sizeof seed, "%u", (unsigned)(fb_rand_u64(&d->dice) >> 34));
    pid = fork();
    if (pid < 0)
        die("fork: %s", fb_strerror(-errno));
    if (pid == 0) {
        execl(d->worker, d->worker, d->home, mode, seed, (char *)NULL);
        _exit(127);
    }
    return pid;
}

void driver_end(struct driver *d, pid_t pid, bool killed)
{
    int status;

    if (waitpid(pid, &status, 0) != pid)
        die("waitpid: %s", fb_strerror(-errno));
    if (killed ? !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL : status != 0)
        die("the worker ended with status %#x%s", (unsigned)status,
            killed ? " before it was killed" : "");
    for (unsigned i = 0; i < ENGINE_COUNT_MAX; i++)
        d->total[i] += driver_count(d, i);
}

uint64_t driver_count(const struct driver *d, enum engine_count count)
{
    return atomic_load_explicit(&d->state->count[count], memory_order_acquire);
}

void driver_print(const struct driver *d)
{
    static const char *const names[] = {
#define ENGINE_COUNT_NAME(name) #name,
        ENGINE_COUNTS(ENGINE_COUNT_NAME)
#undef ENGINE_COUNT_NAME
    };

    for (unsigned i = 0; i < ENGINE_COUNT_MAX; i++)
        printf("%s %llu\n", names[i], (unsigned long long)d->total[i]);
}
