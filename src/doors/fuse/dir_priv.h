/*
 * doors/fuse/dir_priv.h - an open directory.
 *
 * The kernel sends one READDIR at a time for a handle, so the request under way lives in the
 * handle; `busy` makes sure of it, and hands the fields on from thread to thread.
 *
 *     READDIR ──► source's directory not open? ── OPENDIR job ──┐
 *        ▲                                                      ▼
 *        │        batch at hand goes on from there? ─ no ─ READDIR job ──┐
 *        │                 │ yes                                         ▼
 *        └──── reply ◄──── fill the answer from the batch ◄──────────────┘
 *
 * Positions. What the kernel calls an offset is the source's cookie plus two; 0 is before `.`, 1
 * before `..`, 2 the source's beginning.
 */
#ifndef FB_DOORS_FUSE_DIR_PRIV_H
#define FB_DOORS_FUSE_DIR_PRIV_H

#include "doors/fuse/fuse_priv.h"

struct fb_dir {
    struct fb_list link; /* in the mount's list */
    struct fb_mount *mount;
    uint32_t id;   /* record of the directory */
    uint32_t node; /* the same as the node table calls it: 0 for the root */
    atomic_flag busy;

    struct fb_source_handle *source; /* NULL until the first READDIR */
    struct fb_source_job *batch;     /* the last one, or NULL */
    bool with_attrs;                 /* the batch has them */
    struct fb_heard heard;           /* when it was made */
    size_t at;                       /* the batch's next entry */
    uint64_t cookie;                 /* and its position */

    /* The request under way. */
    fuse_req_t req;
    _Atomic bool interrupted;
    struct fb_caller caller;
    bool plus;
    uint64_t offset;
    char *reply;
    size_t size;
    size_t used;
    uint32_t *told; /* records in the reply that the kernel is told of */
    unsigned told_count;
};

/* NULL without memory. */
FB_MUST_CHECK struct fb_dir *fb_dir_new(struct fb_mount *mount, uint32_t id, uint32_t node);
void fb_dir_close(struct fb_dir *dir);

#endif
