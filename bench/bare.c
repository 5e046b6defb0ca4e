/*
 * bare DIR MOUNTPOINT - the least that a static mount can be, served in the foreground.
 *
 * Names and attributes hold for a day, opens and flushes are not asked for, nothing is ever
 * forgotten, and all that is done is what the kernel cannot do without. What a warm read through
 * it costs is the kernel's own: no mount without opens is faster.
 */
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NODES_MAX 200000u
#define FOREVER_S 86400.0

static int root = -1;
static char *nodes[NODES_MAX + FUSE_ROOT_ID]; /* paths below it, by node */
static unsigned count;

static const char *path_of(fuse_ino_t node)
{
    return node == FUSE_ROOT_ID ? "." : nodes[node];
}

static void do_init(void *data, struct fuse_conn_info *conn)
{
    (void)data;
    conn->want |= conn->capable & FUSE_CAP_EXPLICIT_INVAL_DATA;
    conn->want &= ~(unsigned)FUSE_CAP_AUTO_INVAL_DATA;
}

static void do_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct fuse_entry_param entry = {.attr_timeout = FOREVER_S, .entry_timeout = FOREVER_S};
    char *path = NULL;

    if (count == NODES_MAX || asprintf(&path, "%s/%s", path_of(parent), name) < 0) {
        fuse_reply_err(req, ENOMEM);
    } else if (fstatat(root, path, &entry.attr, AT_SYMLINK_NOFOLLOW) < 0) {
        fuse_reply_err(req, errno);
        free(path);
    } else {
        entry.ino = FUSE_ROOT_ID + ++count;
        nodes[entry.ino] = path;
        fuse_reply_entry(req, &entry);
    }
}

static void do_getattr(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *file)
{
    struct stat st;

    (void)file;
    if (fstatat(root, path_of(node), &st, AT_SYMLINK_NOFOLLOW) < 0)
        fuse_reply_err(req, errno);
    else
        fuse_reply_attr(req, &st, FOREVER_S);
}

/* Also for a flush: do not ask again. */
static void do_open(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *file)
{
    (void)node;
    (void)file;
    fuse_reply_err(req, ENOSYS);
}

static void do_read(fuse_req_t req, fuse_ino_t node, size_t size, off_t at,
                    struct fuse_file_info *file)
{
    int fd = openat(root, path_of(node), O_RDONLY | O_CLOEXEC);
    char *data = malloc(size);
    ssize_t got = fd < 0 || !data ? -1 : pread(fd, data, size, at);

    (void)file;
    if (got < 0)
        fuse_reply_err(req, EIO);
    else
        fuse_reply_buf(req, data, (size_t)got);
    free(data);
    if (fd >= 0)
        close(fd);
}

static const struct fuse_lowlevel_ops operations = {
    .init = do_init,
    .lookup = do_lookup,
    .getattr = do_getattr,
    .open = do_open,
    .flush = do_open,
    .read = do_read,
};

int main(int argc, char **argv)
{
    char option[] = "-o", options[] = "ro,default_permissions";
    char *words[] = {argv[0], option, options, NULL};
    struct fuse_args args = FUSE_ARGS_INIT(3, words);
    struct fuse_session *session;
    int rc = 1;

    root = argc == 3 ? open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (root < 0) {
        fprintf(stderr, "usage: bare DIR MOUNTPOINT\n");
        return 2;
    }
    session = fuse_session_new(&args, &operations, sizeof operations, NULL);
    if (session && fuse_session_mount(session, argv[2]) == 0) {
        if (fuse_set_signal_handlers(session) == 0)
            rc = fuse_session_loop(session) < 0;
        fuse_session_unmount(session);
    }
    return rc;
}
