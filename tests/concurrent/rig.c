#include "rig.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "core/clock.h"
#include "source/source_posix.h"

#define MEMORY_BYTES (64ULL << 20)
#define DRAM_FILL    0.06
#define PMEM_BYTES   (3ULL << 20)
#define NVME_BYTES   (10ULL << 20)
#define BLOCK_BYTES  (64u << 10)

void rig_open(struct rig *rig, const struct rig_config *config)
{
    char n1[PATH_MAX], n2[PATH_MAX], pmem[PATH_MAX];
    struct fb_posix_config posix = {.root = config->set->root};
    struct fb_volume_config volume = {.metadata_ttl_ns = config->metadata_ttl_ns,
                                      .timeout_ns = RIG_TIMEOUT_NS};
    struct fb_cache_config c;
    struct fb_error err = {0};
    struct fb_source *source;

    fb_cache_config_defaults(&c);
    snprintf(n1, sizeof n1, "%s/n1", config->home);
    snprintf(n2, sizeof n2, "%s/n2", config->home);
    snprintf(pmem, sizeof pmem, "%s/pmem", config->home);
    c.memory_bytes = MEMORY_BYTES;
    c.dram_fill = DRAM_FILL;
    c.cache_dir_count = 2;
    c.cache_dirs[0] = n1;
    c.cache_dirs[1] = n2;
    c.cache_bytes = NVME_BYTES;
    c.pmem_dir = pmem;
    c.pmem_bytes = PMEM_BYTES;
    c.free_space_ratio = 0.001;
    c.block_bytes = BLOCK_BYTES;
    c.evict = config->evict;
    c.engine = config->engine;
    c.no_watch = config->no_watch;
    rig->set = config->set;
    if (fb_cache_open(&c, &rig->cache, &err) < 0)
        die("the cache does not open: %s", err.text);
    if (fb_source_posix_open(&posix, &source, &err) < 0)
        die("the source does not open: %s", err.text);
    if (fb_volume_attach(rig->cache, source, &volume, &rig->volume, &err) < 0)
        die("the source cannot be attached: %s", err.text);
}

void rig_close(struct rig *rig)
{
    fb_volume_detach(rig->volume);
    fb_cache_close(rig->cache);
}

static int read_record(struct rig *rig, unsigned file, uint32_t id, const struct fb_attr *attr,
                       uint64_t offset, uint32_t length, void *buffer)
{
    uint32_t version = (uint32_t)(attr->version.mtime_ns % FB_NS_PER_S);
    uint64_t size = attr->version.size;
    int64_t got, wrong;

    if (size != dataset_size(file, version))
        die("file %u, version %u: size %llu, not %llu", file, version, (unsigned long long)size,
            (unsigned long long)dataset_size(file, version));
    if (offset > size)
        offset = size;
    got = fb_cache_pread(rig->volume, id, offset, length, buffer);
    if (got < 0)
        return (int)got;
    if ((uint64_t)got != fb_min_u64(length, size - offset))
        die("file %u, version %u, offset %llu: %lld bytes of %u, size %llu", file, version,
            (unsigned long long)offset, (long long)got, length, (unsigned long long)size);
    wrong = dataset_check(file, version, offset, buffer, (size_t)got);
    if (wrong >= 0)
        die("file %u, version %u: wrong byte at %lld of %llu; the bytes claim version %lld", file,
            version, (long long)wrong, (unsigned long long)size,
            (long long)dataset_claims(offset, buffer, (size_t)got));
    return 0;
}

int rig_read(struct rig *rig, unsigned file, uint64_t offset, uint32_t length, void *buffer,
             uint32_t *ret_version)
{
    char name[DATASET_NAME_MAX];
    struct fb_attr attr;
    uint32_t id;
    int rc = fb_cache_stat(rig->volume, dataset_name(file, name), &id, &attr);

    if (rc < 0)
        return rc;
    rc = read_record(rig, file, id, &attr, offset, length, buffer);
    fb_files_unref(fb_cache_files(rig->cache), id, 1);
    *ret_version = (uint32_t)(attr.version.mtime_ns % FB_NS_PER_S);
    return rc;
}

int rig_read_whole(struct rig *rig, unsigned file, void *buffer, uint32_t *ret_version)
{
    char name[DATASET_NAME_MAX];
    struct fb_attr attr;
    uint32_t id;
    int rc = fb_cache_stat(rig->volume, dataset_name(file, name), &id, &attr);

    if (rc < 0)
        return rc;
    for (uint64_t at = 0; rc == 0 && at <= attr.version.size; at += RIG_READ_BYTES)
        rc = read_record(rig, file, id, &attr, at, RIG_READ_BYTES, buffer);
    fb_files_unref(fb_cache_files(rig->cache), id, 1);
    *ret_version = (uint32_t)(attr.version.mtime_ns % FB_NS_PER_S);
    return rc;
}
