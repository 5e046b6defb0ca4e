#include "cli/listing.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/mem.h"

#define DEPTH_MAX 64 /* directories inside each other: a link may lead upward */

/* A directory as it was read: names behind each other, and where each begins, sorted. */
struct folder {
    char *path; /* relative to the top; "" is the top */
    char *text;
    size_t text_len;
    size_t text_room;
    uint32_t *files;
    uint32_t *dirs;
    uint32_t file_count;
    uint32_t dir_count;
};

struct lister {
    const struct cli_listing *how;
    const char *extensions;
    struct fb_names *names;
    struct fb_error *err;
    int (*dir_order)(const void *a, const void *b, void *text);
    struct folder *found; /* of one class */
    size_t found_count;
};

static void folder_clear(struct folder *f)
{
    free(f->path);
    free(f->text);
    free(f->files);
    free(f->dirs);
    *f = (struct folder){0};
}

static int no_memory(struct lister *l)
{
    return fb_error_set(l->err, -ENOMEM, "out of memory while %s was listed", l->how->dir);
}

/* ---- one directory ---- */

static int take_name(struct folder *f, const char *name, uint32_t **list, uint32_t *count)
{
    size_t len = strlen(name) + 1;
    size_t at = f->text_len;

    if (f->text_len + len > f->text_room) {
        char *grown = realloc(f->text, 2 * f->text_room + len + 4096);

        if (!grown)
            return -ENOMEM;
        f->text = grown;
        f->text_room = 2 * f->text_room + len + 4096;
    }
    /* Room is doubled whenever the count is a power of two. */
    if ((*count & (*count - 1)) == 0) {
        uint32_t *grown = reallocarray(*list, *count ? 2 * (size_t)*count : 1, sizeof **list);

        if (!grown)
            return -ENOMEM;
        *list = grown;
    }
    memcpy(f->text + at, name, len);
    f->text_len += len;
    (*list)[(*count)++] = (uint32_t)at;
    return 0;
}

static bool has_extension(const char *extensions, const char *name)
{
    size_t len = strlen(name);

    while (*extensions) {
        size_t ext = strcspn(extensions, ",");

        if (ext <= len && strncasecmp(name + len - ext, extensions, ext) == 0)
            return true;
        extensions += ext + (extensions[ext] == ',');
    }
    return false;
}

static mode_t kind(int fd, const struct dirent *entry)
{
    struct stat st;

    if (entry->d_type == DT_REG)
        return S_IFREG;
    if (entry->d_type == DT_DIR)
        return S_IFDIR;
    if (fstatat(fd, entry->d_name, &st, 0) != 0)
        return 0;
    return st.st_mode & S_IFMT;
}

static int take_entry(const struct lister *l, struct folder *f, int fd, const struct dirent *entry)
{
    const char *name = entry->d_name;
    bool wanted = !l->extensions || has_extension(l->extensions, name);
    mode_t is;

    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return 0;
    is = kind(fd, entry);
    if (is == S_IFDIR)
        return take_name(f, name, &f->dirs, &f->dir_count);
    if (is == S_IFREG && wanted)
        return take_name(f, name, &f->files, &f->file_count);
    return 0;
}

static int by_name(const void *a, const void *b, void *text)
{
    return strcmp((const char *)text + *(const uint32_t *)a,
                  (const char *)text + *(const uint32_t *)b);
}

/* Directories are sorted by what is below them: "a.b/" comes before "a/". */
static int by_name_below(const void *a, const void *b, void *text)
{
    const char *x = (const char *)text + *(const uint32_t *)a;
    const char *y = (const char *)text + *(const uint32_t *)b;
    size_t i = 0;

    while (x[i] && x[i] == y[i])
        i++;
    return (x[i] ? (unsigned char)x[i] : '/') - (y[i] ? (unsigned char)y[i] : '/');
}

static int read_folder(struct lister *l, struct folder *f)
{
    FB_AUTO_FREE char *path = fb_asprintf("%s/%s", l->how->dir, f->path);
    DIR *dir = path ? opendir(path) : NULL;
    const struct dirent *entry;
    int rc = 0;

    if (!path)
        return no_memory(l);
    if (!dir)
        return fb_error_set(l->err, -errno, "%s: %s", path, fb_strerror(errno));
    do {
        errno = 0;
        entry = readdir(dir); /* NOLINT(concurrency-mt-unsafe): this stream is ours */
        if (entry)
            rc = take_entry(l, f, dirfd(dir), entry);
        else if (errno)
            rc = fb_error_set(l->err, -errno, "%s: %s", path, fb_strerror(errno));
    } while (rc == 0 && entry);
    closedir(dir);
    if (rc)
        return rc == -ENOMEM ? no_memory(l) : rc;
    if (f->file_count)
        qsort_r(f->files, f->file_count, sizeof *f->files, by_name, f->text);
    if (f->dir_count)
        qsort_r(f->dirs, f->dir_count, sizeof *f->dirs, l->dir_order, f->text);
    return 0;
}

static char *below(const char *dir, const char *name)
{
    return fb_asprintf("%s%s%s", dir, *dir ? "/" : "", name);
}

static int too_deep(struct lister *l, const char *path)
{
    return fb_error_set(l->err, -ELOOP,
                        "%s/%s is deeper than %d directories; does a link lead to a directory "
                        "above it?",
                        l->how->dir, path, DEPTH_MAX);
}

static int add(struct lister *l, const char *path)
{
    uint64_t size_bytes = FB_NAMES_NO_SIZE;
    struct stat st;
    int rc;

    if (l->how->with_sizes) {
        FB_AUTO_FREE char *full = fb_asprintf("%s/%s", l->how->dir, path);

        if (!full)
            return no_memory(l);
        if (stat(full, &st) != 0)
            return fb_error_set(l->err, -errno, "%s: %s", full, fb_strerror(errno));
        size_bytes = (uint64_t)st.st_size;
    }
    rc = fb_names_add_path(l->names, path, strlen(path), size_bytes);
    if (rc == -ENOMEM)
        return no_memory(l);
    return rc ? fb_error_set(l->err, rc, "%s/%s: %s", l->how->dir, path, fb_strerror(rc)) : 0;
}

static int add_file(struct lister *l, const struct folder *f, uint32_t file)
{
    FB_AUTO_FREE char *path = below(f->path, f->text + f->files[file]);

    return path ? add(l, path) : no_memory(l);
}

/* ---- sorted ---- */

static int list_sorted(struct lister *l, char *path, unsigned depth);

static int list_sorted_below(struct lister *l, const struct folder *f, uint32_t dir, unsigned depth)
{
    char *path = below(f->path, f->text + f->dirs[dir]);

    return path ? list_sorted(l, path, depth + 1) : no_memory(l);
}

/* Whether a file comes before all that is below a directory: "a.txt" before "a/", "ab" behind. */
static bool is_before(const char *file, const char *dir)
{
    size_t len = strlen(dir);
    int order = strncmp(file, dir, len);

    return order ? order < 0 : (unsigned char)file[len] < '/';
}

/* Frees the path. */
static int list_sorted(struct lister *l, char *path, unsigned depth)
{
    struct folder f = {.path = path};
    uint32_t file = 0;
    uint32_t dir = 0;
    int rc = depth > DEPTH_MAX ? too_deep(l, path) : read_folder(l, &f);

    while (rc == 0 && (file < f.file_count || dir < f.dir_count)) {
        bool is_file =
            file < f.file_count &&
            (dir == f.dir_count || is_before(f.text + f.files[file], f.text + f.dirs[dir]));

        rc = is_file ? add_file(l, &f, file++) : list_sorted_below(l, &f, dir++, depth);
    }
    folder_clear(&f);
    return rc;
}

/* ---- imagefolder ---- */

/* Frees the path, or keeps it. */
static int find_below(struct lister *l, char *path, unsigned depth)
{
    struct folder f = {.path = path};
    struct folder *grown;
    int rc = depth > DEPTH_MAX ? too_deep(l, path) : read_folder(l, &f);

    for (uint32_t i = 0; rc == 0 && i < f.dir_count; i++) {
        char *inner = below(f.path, f.text + f.dirs[i]);

        rc = inner ? find_below(l, inner, depth + 1) : no_memory(l);
    }
    grown = rc ? NULL : reallocarray(l->found, l->found_count + 1, sizeof *grown);
    if (!grown) {
        folder_clear(&f);
        return rc ? rc : no_memory(l);
    }
    grown[l->found_count++] = f;
    l->found = grown;
    return 0;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct folder *)a)->path, ((const struct folder *)b)->path);
}

static int list_class(struct lister *l, const char *name)
{
    char *path = fb_strdup(name);
    int rc = path ? find_below(l, path, 1) : no_memory(l);

    if (l->found_count)
        qsort(l->found, l->found_count, sizeof *l->found, by_path);
    for (size_t i = 0; i < l->found_count; i++) {
        for (uint32_t j = 0; rc == 0 && j < l->found[i].file_count; j++)
            rc = add_file(l, &l->found[i], j);
        folder_clear(&l->found[i]);
    }
    free(l->found);
    l->found = NULL;
    l->found_count = 0;
    return rc;
}

static int list_imagefolder(struct lister *l)
{
    struct folder top = {.path = fb_strdup("")};
    int rc = top.path ? read_folder(l, &top) : no_memory(l);

    if (rc == 0 && top.dir_count == 0)
        rc = fb_error_set(l->err, -ENOENT,
                          "%s has no directories, which imagefolder takes as classes; try "
                          "--order sorted",
                          l->how->dir);
    for (uint32_t i = 0; rc == 0 && i < top.dir_count; i++)
        rc = list_class(l, top.text + top.dirs[i]);
    folder_clear(&top);
    return rc;
}

/* ---- list:FILE ---- */

const char *cli_listing_strip(const char *dir, const char *line)
{
    size_t len = strlen(dir);

    while (len > 1 && dir[len - 1] == '/')
        len--;
    if (strncmp(line, dir, len) == 0 && line[len] == '/')
        line += len;
    else if (strncmp(line, "./", 2) == 0)
        line++;
    while (line[0] == '/')
        line++;
    return line;
}

static int list_file(struct lister *l, const char *file)
{
    FILE *in = fopen(file, "re");
    FB_AUTO_FREE char *line = NULL;
    size_t room = 0;
    ssize_t len;
    int rc = 0;

    if (!in)
        return fb_error_set(l->err, -errno, "the list %s: %s", file, fb_strerror(errno));
    while (rc == 0 && (len = getline(&line, &room, in)) >= 0) {
        if (len > 0 && line[len - 1] == '\n')
            line[--len] = 0;
        if (len > 0)
            rc = add(l, cli_listing_strip(l->how->dir, line));
    }
    if (rc == 0 && ferror(in))
        rc = fb_error_set(l->err, -EIO, "the list %s cannot be read to its end", file);
    fclose(in);
    return rc;
}

/* ---- all ---- */

static int list(struct lister *l)
{
    const char *order = l->how->order;

    if (strcmp(order, "imagefolder") == 0) {
        l->dir_order = by_name;
        l->extensions = l->how->extensions ? l->how->extensions : CLI_IMAGE_EXTENSIONS;
        return list_imagefolder(l);
    }
    if (strcmp(order, "sorted") == 0) {
        char *top = fb_strdup("");

        l->dir_order = by_name_below;
        return top ? list_sorted(l, top, 0) : no_memory(l);
    }
    if (strncmp(order, CLI_LIST_PREFIX, sizeof CLI_LIST_PREFIX - 1) == 0)
        return list_file(l, order + sizeof CLI_LIST_PREFIX - 1);
    return fb_error_set(l->err, -EINVAL,
                        "--order: '%s' is none of imagefolder, sorted and list:FILE", order);
}

int cli_list(const struct cli_listing *how, struct fb_names **ret_names, struct fb_error *err)
{
    struct lister l = {
        .how = how, .extensions = how->extensions, .names = fb_names_new(), .err = err};
    int rc = l.names ? list(&l) : no_memory(&l);

    if (rc == 0 && fb_names_count(l.names) == 0)
        rc = fb_error_set(err, -ENOENT, "%s has no files in the order %s%s", how->dir, how->order,
                          strcmp(how->order, "imagefolder") == 0
                              ? " (pictures in one directory for each class); --order sorted takes "
                                "all files"
                              : "");
    if (rc) {
        fb_names_free(l.names);
        return rc;
    }
    *ret_names = l.names;
    return 0;
}
