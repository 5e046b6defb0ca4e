/*
 * source/test_s3_disk.h - for unit tests: a disk that hangs when it is told to, by what stands here
 * in the place of the C library's fsync(), fdatasync() and write(). Once it is watched, only the
 * journal's thread may ask it for anything: whoever else does is not held, but noted.
 */
#ifndef FB_SOURCE_TEST_S3_DISK_H
#define FB_SOURCE_TEST_S3_DISK_H

#include <cmocka.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define FB_TEST_DISK_LIMIT_S 120

struct fb_test_calls {
    bool hang;
    unsigned held; /* threads that wait in one */
};

static struct fb_test_disk {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool watched;
    struct fb_test_calls writes, syncs, data_syncs;
    bool trespassed; /* by another thread than the journal's */
} fb_test_disk = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static inline void fb_test_disk_hang(bool syncs, bool data_syncs)
{
    pthread_mutex_lock(&fb_test_disk.lock);
    fb_test_disk.watched = true;
    fb_test_disk.syncs.hang = syncs;
    fb_test_disk.data_syncs.hang = data_syncs;
    pthread_cond_broadcast(&fb_test_disk.changed);
    pthread_mutex_unlock(&fb_test_disk.lock);
}

/* It works, and anybody may use it. */
static inline void fb_test_disk_reset(void)
{
    fb_test_disk_hang(false, false);
    pthread_mutex_lock(&fb_test_disk.lock);
    fb_test_disk.watched = fb_test_disk.trespassed = false;
    pthread_mutex_unlock(&fb_test_disk.lock);
}

/* Until such a call hangs; only the journal's thread has asked the disk for anything so far. */
static inline void fb_test_disk_wait(const struct fb_test_calls *calls)
{
    struct timespec until;
    bool trespassed;
    int r = 0;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += FB_TEST_DISK_LIMIT_S;
    pthread_mutex_lock(&fb_test_disk.lock);
    while (calls->held == 0 && !fb_test_disk.trespassed && r == 0)
        r = pthread_cond_timedwait(&fb_test_disk.changed, &fb_test_disk.lock, &until);
    trespassed = fb_test_disk.trespassed;
    pthread_mutex_unlock(&fb_test_disk.lock);
    assert_false(trespassed);
    assert_int_equal(r, 0);
}

static inline bool fb_test_disk_trespassed(void)
{
    bool trespassed;

    pthread_mutex_lock(&fb_test_disk.lock);
    trespassed = fb_test_disk.trespassed;
    pthread_mutex_unlock(&fb_test_disk.lock);
    return trespassed;
}

static inline void fb_test_disk_asked(struct fb_test_calls *calls)
{
    char name[16] = "";

    pthread_getname_np(pthread_self(), name, sizeof name);
    pthread_mutex_lock(&fb_test_disk.lock);
    if (fb_test_disk.watched && strcmp(name, "fb-journal") != 0) {
        fb_test_disk.trespassed = true;
        pthread_cond_broadcast(&fb_test_disk.changed);
    } else if (calls->hang) {
        calls->held++;
        pthread_cond_broadcast(&fb_test_disk.changed);
        while (calls->hang)
            pthread_cond_wait(&fb_test_disk.changed, &fb_test_disk.lock);
        calls->held--;
    }
    pthread_mutex_unlock(&fb_test_disk.lock);
}

int fsync(int fd)
{
    fb_test_disk_asked(&fb_test_disk.syncs);
    return (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fildes)
{
    fb_test_disk_asked(&fb_test_disk.data_syncs);
    return (int)syscall(SYS_fdatasync, fildes);
}

ssize_t write(int fd, const void *buf, size_t n)
{
    struct stat st;

    if (fd > STDERR_FILENO && fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        fb_test_disk_asked(&fb_test_disk.writes);
    return syscall(SYS_write, fd, buf, n);
}

#endif
