/*
 * The results of `forebay sim`: a table, JSON, a picture of the miss ratio curves, a page with all.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/sim_job.h"
#include "core/mem.h"
#include "core/units.h"
#include "daemon/wire.h"
#include "sim/plot.h"

/* What one cache alone would take: its own time, and that of finding the objects. */
static double requests_per_s(const struct sim_job *job, const struct fb_sim_run *run)
{
    double seconds = run->replay_s + fb_sim_map_s(job->sim);

    return seconds > 0 ? (double)fb_sim_facts(job->sim)->replayed / seconds : 0;
}

static const char *policy_of(const struct sim_job *job, size_t i)
{
    return job->choice[i / job->sizes].text;
}

static const char *size_of(const struct sim_job *job, size_t i)
{
    return job->size[i % job->sizes].text;
}

static bool is_sampled(const struct sim_job *job)
{
    return job->options.sample < 1;
}

/* How many objects of mean size the cache of a sample holds. */
static double sampled_objects(const struct sim_job *job, const struct fb_sim_run *run)
{
    const struct fb_sim_facts *facts = fb_sim_facts(job->sim);
    double share = facts->footprint ? (double)run->capacity / (double)facts->footprint : 0;

    return (share < 1 ? share : 1) * (double)facts->objects * job->options.sample;
}

static const char *amount(const struct sim_job *job, char buf[FB_UNITS_TEXT_MAX], uint64_t value)
{
    if (!job->options.ignore_size)
        return fb_format_size(buf, value);
    snprintf(buf, FB_UNITS_TEXT_MAX, "%llu", (unsigned long long)value);
    return buf;
}

/* ---- JSON ---- */

static json_t *run_json(const struct sim_job *job, size_t i)
{
    const struct fb_sim_run *run = &job->run[i];
    json_t *figures = json_object();
    json_t *object = json_pack(
        "{s:s, s:s, s:I, s:s, s:f, s:f, s:I, s:I, s:I, s:I, s:f, s:f, s:o}", "policy",
        policy_of(job, i), "size", size_of(job, i), "size_bytes", (json_int_t)run->capacity, "unit",
        job->options.ignore_size ? "objects" : "bytes", "miss_ratio", run->miss_ratio,
        "byte_miss_ratio", run->byte_miss_ratio, "requests", (json_int_t)run->requests, "misses",
        (json_int_t)run->misses, "bytes", (json_int_t)run->bytes, "missed_bytes",
        (json_int_t)run->missed_bytes, "requests_per_s", requests_per_s(job, run), "replay_s",
        run->replay_s, "figures", figures);

    if (is_sampled(job) && object) {
        json_object_set_new(object, "miss_ratio_error", json_real(run->error));
        json_object_set_new(object, "byte_miss_ratio_error", json_real(run->byte_error));
        json_object_set_new(object, "sampled_objects", json_real(sampled_objects(job, run)));
    }
    for (size_t k = 0; object && k < run->figures; k++)
        json_object_set_new(figures, run->figure[k].name, json_real(run->figure[k].value));
    return object;
}

int sim_print_json(const struct sim_job *job)
{
    const struct fb_sim_facts *facts = fb_sim_facts(job->sim);
    json_t *results = json_array();
    json_t *object;

    for (size_t i = 0; i < job->runs; i++)
        json_array_append_new(results, run_json(job, i));
    object =
        json_pack("{s:{s:o, s:s, s:I, s:I, s:I, s:I}, s:I, s:f, s:f, s:o}", "trace", "path",
                  fb_wire_path(job->path), "format", fb_trace_format_name(job->trace), "requests",
                  (json_int_t)facts->requests, "objects", (json_int_t)facts->objects, "footprint",
                  (json_int_t)facts->footprint, "bytes", (json_int_t)facts->bytes,
                  "warmup_requests", (json_int_t)job->warmup, "sample", job->options.sample,
                  "map_s", fb_sim_map_s(job->sim), "results", results);
    if (!object)
        return cli_fail(CLI_FAILED, "the results cannot be written as JSON");
    json_dumpf(object, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    fputc('\n', stdout);
    json_decref(object);
    return CLI_OK;
}

/* ---- a table ---- */

int sim_print_table(const struct sim_job *job)
{
    const struct fb_sim_facts *facts = fb_sim_facts(job->sim);
    char buf[FB_UNITS_TEXT_MAX];

    printf("%llu requests, %s%llu objects, footprint %s%s%s (%s)\n",
           (unsigned long long)facts->requests, is_sampled(job) ? "about " : "",
           (unsigned long long)facts->objects, is_sampled(job) ? "about " : "",
           amount(job, buf, facts->footprint), job->options.ignore_size ? " objects" : "",
           fb_trace_format_name(job->trace));
    printf("\n%-20s %8s %10s %11s %11s %12s\n", "policy", "size", "", "miss ratio", "byte misses",
           "requests/s");
    for (size_t i = 0; i < job->runs; i++) {
        const struct fb_sim_run *run = &job->run[i];

        printf("%-20s %8s %10s %11.4f %11.4f %11.2fM", policy_of(job, i), size_of(job, i),
               amount(job, buf, run->capacity), run->miss_ratio, run->byte_miss_ratio,
               requests_per_s(job, run) / 1e6);
        if (is_sampled(job))
            printf("  +- %.4f, bytes +- %.4f, by %.0f objects", run->error, run->byte_error,
                   sampled_objects(job, run));
        putchar('\n');
    }
    return CLI_OK;
}

/* ---- pictures ---- */

/* Lines for each policy, over the sizes; *ret_values holds their numbers. NULL without memory. */
static struct fb_plot_series *make_series(const struct sim_job *job, bool bytes,
                                          double **ret_values)
{
    struct fb_plot_series *series = fb_alloc_array(job->choices, sizeof *series);
    double *value = fb_alloc_array(2 * job->runs, sizeof *value);

    if (!series || !value) {
        free(series);
        free(value);
        return NULL;
    }
    for (size_t i = 0; i < job->runs; i++) {
        value[i] = (double)job->run[i].capacity;
        value[job->runs + i] = bytes ? job->run[i].byte_miss_ratio : job->run[i].miss_ratio;
    }
    for (size_t i = 0; i < job->choices; i++)
        series[i] = (struct fb_plot_series){job->choice[i].text, value + i * job->sizes,
                                            value + job->runs + i * job->sizes, job->sizes};
    *ret_values = value;
    return series;
}

static int draw_curves(const struct sim_job *job, bool bytes, FILE *out)
{
    double *values = NULL;
    struct fb_plot_series *series = make_series(job, bytes, &values);
    const char *slash = strrchr(job->path, '/');
    FB_AUTO_FREE char *title = fb_asprintf("%s of %s", bytes ? "Byte miss ratio" : "Miss ratio",
                                           slash ? slash + 1 : job->path);
    struct fb_plot plot = {
        .title = title,
        .x_label = job->options.ignore_size ? "cache size (objects)" : "cache size (bytes)",
        .y_label = bytes ? "byte miss ratio" : "miss ratio",
        .x_log = true,
        .x_bytes = !job->options.ignore_size,
        .y_from_0 = true,
        .series = series,
        .count = job->choices,
    };

    if (series && title)
        fb_plot_svg(out, &plot);
    free(series);
    free(values);
    return series && title ? 0 : -ENOMEM;
}

static int cannot_write(const char *path, int rc)
{
    return cli_fail(CLI_FAILED, "cannot write %s: %s", path, fb_strerror(rc));
}

static int open_output(struct sim_output *output, const char *path)
{
    int fd;

    if (!path)
        return CLI_OK;
    output->path = path;
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    output->is_new = fd >= 0;
    if (fd < 0 && errno == EEXIST)
        fd = open(path, O_WRONLY | O_CLOEXEC);
    output->file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (output->file)
        return CLI_OK;
    if (fd >= 0)
        close(fd);
    return cannot_write(path, -errno);
}

int sim_open_outputs(struct sim_job *job)
{
    int status = open_output(&job->plot, job->options.plot);

    return status ? status : open_output(&job->html, job->options.html);
}

static void close_output(struct sim_output *output)
{
    if (!output->file)
        return;
    (void)fclose(fb_steal(output->file));
    if (output->is_new)
        (void)unlink(output->path);
}

void sim_close_outputs(struct sim_job *job)
{
    close_output(&job->plot);
    close_output(&job->html);
}

/* Has the file written and closes it, and says so if that fails. */
static int write_file(const struct sim_job *job, struct sim_output *output,
                      int (*write)(const struct sim_job *job, FILE *out))
{
    FILE *file = fb_steal(output->file);
    int rc = 0;

    /* What is no file, as a pipe, has no length. */
    if (ftruncate(fileno(file), 0) < 0 && errno != EINVAL)
        rc = -errno;
    if (rc == 0)
        rc = write(job, file);
    if ((ferror(file) || fflush(file) != 0) && rc == 0)
        rc = -EIO;
    if (fclose(file) != 0 && rc == 0)
        rc = -errno;
    return rc ? cannot_write(output->path, rc) : CLI_OK;
}

static int write_svg(const struct sim_job *job, FILE *out)
{
    return draw_curves(job, false, out);
}

int sim_write_plot(struct sim_job *job)
{
    return write_file(job, &job->plot, write_svg);
}

/* ---- a page ---- */

static void html_rows(const struct sim_job *job, FILE *out)
{
    char buf[FB_UNITS_TEXT_MAX];

    for (size_t i = 0; i < job->runs; i++) {
        const struct fb_sim_run *run = &job->run[i];

        fputs("<tr><td>", out);
        fb_plot_text(out, policy_of(job, i));
        fputs("</td><td>", out);
        fb_plot_text(out, size_of(job, i));
        fprintf(out, "</td><td>%s</td><td>%.4f", amount(job, buf, run->capacity), run->miss_ratio);
        if (is_sampled(job))
            fprintf(out, " &plusmn; %.4f", run->error);
        fprintf(out, "</td><td>%.4f", run->byte_miss_ratio);
        if (is_sampled(job))
            fprintf(out, " &plusmn; %.4f", run->byte_error);
        fprintf(out, "</td><td>%.2f M</td></tr>\n", requests_per_s(job, run) / 1e6);
    }
}

static int html_page(const struct sim_job *job, FILE *out)
{
    const struct fb_sim_facts *facts = fb_sim_facts(job->sim);
    char buf[FB_UNITS_TEXT_MAX];
    int rc;

    fputs("<!doctype html>\n<html lang='en'><head><meta charset='utf-8'><title>forebay sim: ", out);
    fb_plot_text(out, job->path);
    fputs("</title>\n<style>body{font:15px sans-serif;margin:2em;color:#222}table{border-collapse:"
          "collapse}td,th{padding:.2em .8em;text-align:right;border-bottom:1px solid #ddd}"
          "td:first-child,th:first-child{text-align:left}svg{max-width:100%;margin:.5em 1em 1em 0}"
          "</style></head><body>\n<h1>",
          out);
    fb_plot_text(out, job->path);
    fprintf(out, "</h1>\n<p>%llu requests, %s%llu objects, footprint %s (%s)</p>\n",
            (unsigned long long)facts->requests, is_sampled(job) ? "about " : "",
            (unsigned long long)facts->objects, amount(job, buf, facts->footprint),
            fb_trace_format_name(job->trace));
    rc = draw_curves(job, false, out);
    if (rc == 0 && !job->options.ignore_size)
        rc = draw_curves(job, true, out);
    fputs("<table><tr><th>policy</th><th>size</th><th></th><th>miss ratio</th>"
          "<th>byte miss ratio</th><th>requests/s</th></tr>\n",
          out);
    html_rows(job, out);
    fputs("</table></body></html>\n", out);
    return rc;
}

int sim_write_html(struct sim_job *job)
{
    return write_file(job, &job->html, html_page);
}
