/*
 * GETXATTR and LISTXATTR pass through to the source, with exceptions for what the kernel asks by
 * itself:
 *
 * security.capability, at every exec: none, since the mount is nosuid and would ignore it.
 *
 * ACLs, at every check of permissions that is not the owner's. A source without ACLs has none: any
 * other error than ENODATA would make the kernel deny the access.
 *
 * and for what `ls -l` asks of every file: its ACL and its security label.
 *
 * That the source has none of these for a regular file stays true for the node, as giving it one
 * would change its ctime. For a directory it is what to believe while the source cannot be asked.
 */
#include <errno.h>
#include <string.h>

#include "doors/fuse/fuse_priv.h"
#include "store/files.h"

struct xattr_request {
    struct fb_mount *mount;
    fuse_req_t req;
    _Atomic bool interrupted;
    size_t size; /* of the program's buffer; 0: only the length is wanted */
    uint32_t id;
    unsigned none; /* the flag that says there is none, for names that have one */
};

static unsigned none_flag(const char *name)
{
    if (strcmp(name, "system.posix_acl_access") == 0)
        return FB_NODE_NO_ACL;
    if (strcmp(name, "system.posix_acl_default") == 0)
        return FB_NODE_NO_DEFAULT_ACL;
    return strcmp(name, "security.selinux") == 0 ? FB_NODE_NO_LABEL : 0;
}

/* What an answer means to who will ask again. */
static int settle(const struct xattr_request *r, int result)
{
    struct fb_nodes *nodes = r->mount->nodes;

    if (result == -ENODATA || result == -ENOTSUP) {
        fb_node_set_flags(nodes, r->id, r->none, 0);
        return -ENODATA;
    }
    if (result == 0)
        fb_node_set_flags(nodes, r->id, 0, r->none);
    else if (fb_source_is_outage(result) && (fb_node_flags(nodes, r->id) & r->none))
        return -ENODATA;
    return result;
}

static void xattr_done(struct fb_source_job *job)
{
    struct xattr_request *r = job->arg;
    struct fb_mount *mount = r->mount;
    int result = r->none ? settle(r, job->result) : job->result;

    fb_interruptible(r->req, NULL);
    if (result < 0)
        fuse_reply_err(r->req, -result);
    else if (r->size == 0)
        fuse_reply_xattr(r->req, job->data_len);
    else if (job->data_len > r->size)
        fuse_reply_err(r->req, ERANGE);
    else
        fuse_reply_buf(r->req, job->data, job->data_len);
    fb_source_job_put(job);
    fb_request_free(mount, r);
}

static void ask(fuse_req_t req, fuse_ino_t ino, enum fb_source_op op, const char *name, size_t size)
{
    struct fb_mount *mount = fb_mount_of(req);
    uint32_t id = fb_file_of(mount, ino);
    char buf[FB_PATH_MAX];
    const char *path = fb_node_own_path(mount, id, buf);
    struct fb_source_job *job = path ? fb_source_job_new(op, path) : NULL;
    struct xattr_request *r = job ? fb_request_new(mount, sizeof *r) : NULL;
    struct fb_caller caller = fb_caller_of(req);

    if (!r) {
        fb_source_job_put(job);
        fuse_reply_err(req, path ? ENOMEM : ESTALE);
        return;
    }
    *r = (struct xattr_request){.mount = mount, .req = req, .size = size, .id = id};
    if (name) {
        r->none = none_flag(name);
        memcpy(job->name, name, strlen(name) + 1);
    }
    fb_interruptible(req, &r->interrupted);
    fb_job_submit(mount, job, &caller, &r->interrupted, xattr_done, r);
}

static bool known_to_have_none(struct fb_mount *mount, uint32_t id, const char *name)
{
    unsigned none = none_flag(name);
    struct fb_attr attr;

    if (none == 0 || !(fb_node_flags(mount->nodes, id) & none) || fb_is_live(mount, id))
        return false;
    fb_files_attr(mount->files, id, &attr);
    return S_ISREG(attr.mode);
}

void fb_op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
    struct fb_mount *mount = fb_mount_of(req);

    if (strlen(name) > FB_NAME_MAX)
        fuse_reply_err(req, ERANGE);
    else if (strcmp(name, "security.capability") == 0 ||
             known_to_have_none(mount, fb_file_of(mount, ino), name))
        fuse_reply_err(req, ENODATA);
    else
        ask(req, ino, FB_SOURCE_GETXATTR, name, size);
}

void fb_op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
    ask(req, ino, FB_SOURCE_LISTXATTR, NULL, size);
}
