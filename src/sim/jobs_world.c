#include "sim/jobs_world.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/rand.h"
#include "core/mem.h"

#define NAME_MAX_BYTES 96 /* of a whole path in a table */

static uint64_t set_files(const struct fb_job_set *set)
{
    return (uint64_t)(set->dirs ? set->dirs : 1) * set->files;
}

static int put_name(char *buf, size_t size, const struct fb_job_names *names, uint32_t number)
{
    if (names->are_months)
        return snprintf(buf, size, "%s%04u%02u%s", names->prefix, 1850 + number / 12,
                        1 + number % 12, names->suffix);
    return snprintf(buf, size, "%s%0*u%s", names->prefix, names->width, number, names->suffix);
}

static size_t put_path(char *buf, const struct fb_job_set *set, uint32_t number)
{
    size_t len = (size_t)snprintf(buf, NAME_MAX_BYTES, "%s/", set->path);

    if (set->dirs) {
        len +=
            (size_t)put_name(buf + len, NAME_MAX_BYTES - len, &set->dir_name, number / set->files);
        buf[len++] = '/';
    }
    len += (size_t)put_name(buf + len, NAME_MAX_BYTES - len, &set->file_name,
                            set->dirs ? number % set->files : number);
    FB_ASSERT(len < NAME_MAX_BYTES);
    return len;
}

/* Sizes are lognormal (Box and Muller), the same in every run. */
static uint64_t file_bytes(const struct fb_job_set *set, uint32_t number)
{
    struct fb_rand rand = {fb_hash64_seed(set->path, strlen(set->path), number)};
    double normal;

    if (set->spread <= 0)
        return set->mean_bytes;
    normal = sqrt(-2 * log(1 - fb_rand_unit(&rand))) * cos(2 * M_PI * fb_rand_unit(&rand));
    return 1 + (uint64_t)((double)set->mean_bytes *
                          exp(set->spread * normal - set->spread * set->spread / 2));
}

static void make_set(struct fb_jobs_world *w, uint32_t number, char **names)
{
    const struct fb_job_set *set = &w->mix->sets[number];

    w->set_file[number] = w->file_count;
    for (uint32_t i = 0; i < set_files(set); i++) {
        struct fb_jobs_file *f = &w->files[w->file_count++];

        f->path = *names;
        f->path_len = (uint16_t)put_path(*names, set, i);
        *names += f->path_len + 1;
        f->bytes = file_bytes(set, i);
        f->blocks = (uint32_t)((f->bytes + FB_JOB_BLOCK - 1) / FB_JOB_BLOCK);
        f->set = (uint16_t)number;
        f->first_item = w->item_count;
        w->item_count += f->blocks;
        w->bytes += f->bytes;
    }
}

int fb_jobs_world_new(const struct fb_job_mix *mix, struct fb_jobs_world **ret_world)
{
    struct fb_jobs_world *w = fb_alloc(sizeof *w);
    size_t files = 0;
    char *names;

    if (!w)
        return -ENOMEM;
    w->mix = mix;
    for (size_t i = 0; i < mix->set_count; i++)
        files += set_files(&mix->sets[i]);
    w->files = fb_alloc_array(files + 1, sizeof *w->files);
    w->set_file = fb_alloc_array(mix->set_count + 1, sizeof *w->set_file);
    w->names = names = fb_alloc_array(files + 1, NAME_MAX_BYTES);
    if (!w->files || !w->set_file || !w->names)
        goto fail;
    for (uint32_t i = 0; i < mix->set_count; i++)
        make_set(w, i, &names);
    w->set_file[mix->set_count] = w->file_count;
    w->files[w->file_count].first_item = w->item_count;
    w->item_file = fb_alloc_array(w->item_count, sizeof *w->item_file);
    w->item_bytes = fb_alloc_array(w->item_count, sizeof *w->item_bytes);
    if (!w->item_file || !w->item_bytes)
        goto fail;
    for (uint32_t f = 0; f < w->file_count; f++) {
        const struct fb_jobs_file *file = &w->files[f];

        for (uint32_t b = 0; b < file->blocks; b++) {
            w->item_file[file->first_item + b] = f;
            w->item_bytes[file->first_item + b] =
                (uint32_t)fb_min_u64(file->bytes - (uint64_t)b * FB_JOB_BLOCK, FB_JOB_BLOCK);
        }
    }
    *ret_world = w;
    return 0;

fail:
    fb_jobs_world_free(w);
    return -ENOMEM;
}

void fb_jobs_world_free(struct fb_jobs_world *w)
{
    if (!w)
        return;
    free(w->files);
    free(w->item_file);
    free(w->item_bytes);
    free(w->set_file);
    free(w->names);
    free(w);
}

uint64_t fb_jobs_set_bytes(const struct fb_jobs_world *w, uint32_t set)
{
    uint64_t bytes = 0;

    for (uint32_t f = w->set_file[set]; f < w->set_file[set + 1]; f++)
        bytes += w->files[f].bytes;
    return bytes;
}

uint32_t fb_jobs_dir_of(const struct fb_jobs_world *w, uint32_t file, uint32_t *ret_first)
{
    uint32_t set = w->files[file].set;
    uint32_t count = w->mix->sets[set].files;

    *ret_first = file - (file - w->set_file[set]) % count;
    return count;
}

static bool lies_below(const struct fb_jobs_file *f, const char *path, size_t len)
{
    return f->path_len >= len && memcmp(f->path, path, len) == 0 &&
           (len == 0 || f->path_len == len || f->path[len] == '/');
}

bool fb_jobs_below(const struct fb_jobs_world *w, const char *path, size_t len, uint32_t *ret_first,
                   uint32_t *ret_end)
{
    for (size_t s = 0; s < w->mix->set_count; s++) {
        const struct fb_job_set *set = &w->mix->sets[s];
        uint32_t first = w->set_file[s], end = w->set_file[s + 1];
        size_t base = strlen(set->path);

        if (len <= base) {
            if (!lies_below(&w->files[first], path, len))
                continue;
            *ret_first = first;
            *ret_end = end;
            /* Sets that lie side by side in the table may lie below one directory. */
            while (++s < w->mix->set_count && lies_below(&w->files[w->set_file[s]], path, len))
                *ret_end = w->set_file[s + 1];
            return true;
        }
        if (!lies_below(&w->files[first], set->path, base) || memcmp(path, set->path, base) != 0 ||
            path[base] != '/')
            continue;
        while (first < end) {
            uint32_t mid = first + (end - first) / 2;
            const struct fb_jobs_file *f = &w->files[mid];
            size_t common = f->path_len < len ? f->path_len : len;
            int order = memcmp(f->path, path, common);

            if (order < 0 || (order == 0 && f->path_len < len))
                first = mid + 1;
            else
                end = mid;
        }
        if (first == w->set_file[s + 1] || !lies_below(&w->files[first], path, len))
            return false;
        *ret_first = first;
        *ret_end = first + 1;
        while (*ret_end < w->set_file[s + 1] && lies_below(&w->files[*ret_end], path, len))
            ++*ret_end;
        return true;
    }
    return false;
}

uint32_t fb_jobs_child_end(const struct fb_jobs_world *w, uint32_t file, size_t len)
{
    const struct fb_jobs_file *f = &w->files[file];
    size_t start = len ? len + 1 : 0;
    const char *slash =
        start < f->path_len ? memchr(f->path + start, '/', f->path_len - start) : NULL;
    size_t child = slash ? (size_t)(slash - f->path) : f->path_len;

    do
        file++;
    while (file < w->file_count && lies_below(&w->files[file], f->path, child));
    return file;
}
