#include "sim/plot.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/attr.h"
#include "core/mem.h"
#include "core/units.h"

/* The picture, in its own units. */
#define WIDTH       860
#define LEFT        70
#define RIGHT       640 /* of the frame; the legend stands behind it */
#define TOP         48
#define BOTTOM      430
#define HEIGHT_MIN  490
#define HEIGHT_BARS 600 /* their names are written aslant */
#define BARS_WIDE   0.8 /* of the room of a name, all together */
#define LEGEND_STEP 20
#define TICKS       6 /* about so many on an axis */

/* A colour and a marker for each line; they come round again after the product of both. */
static const char *const colours[] = {"#1b6ca8", "#d1495b", "#2e933c", "#edae49", "#6a4c93",
                                      "#00798c", "#8d5524", "#c2185b", "#455a64", "#9ccc3c"};
static const char *const dashes[] = {"", "7 3", "2 3", "9 3 2 3"};

struct axis {
    double from;
    double to;
    bool log;
};

static double place(const struct axis *a, double value, double low, double high)
{
    double from = a->log ? log(a->from) : a->from;
    double to = a->log ? log(a->to) : a->to;
    double at = a->log ? log(value) : value;

    return to > from ? low + (at - from) / (to - from) * (high - low) : (low + high) / 2;
}

static double place_x(const struct axis *x, double value)
{
    return place(x, value, LEFT, RIGHT);
}

static double place_y(const struct axis *y, double value)
{
    return place(y, value, BOTTOM, TOP);
}

void fb_plot_text(FILE *out, const char *text)
{
    for (; *text; text++) {
        switch (*text) {
        case '&':
            fputs("&amp;", out);
            break;
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        default:
            fputc((unsigned char)*text < 0x20 ? ' ' : *text, out);
        }
    }
}

/* ---- ranges and ticks ---- */

static void find_range(const struct fb_plot *plot, struct axis *x, struct axis *y)
{
    bool any = false;

    for (size_t s = 0; s < plot->count; s++) {
        for (size_t i = 0; i < plot->series[s].count; i++) {
            double px = plot->series[s].x[i];
            double py = plot->series[s].y[i];

            x->from = any ? fmin(x->from, px) : px;
            x->to = any ? fmax(x->to, px) : px;
            y->from = any ? fmin(y->from, py) : py;
            y->to = any ? fmax(y->to, py) : py;
            any = true;
        }
    }
    x->log = plot->x_log;
    if (plot->bars) {
        *x = (struct axis){.from = -0.5, .to = (double)plot->bar_count - 0.5};
        y->from = fmin(y->from, 0);
        y->to = fmax(y->to, 0);
    }
    if (plot->y_from_0)
        y->from = 0;
    if (y->to <= y->from)
        y->to = y->from + 1;
}

/* 1, 2 or 5 times a power of ten, so that about TICKS steps fill the range. */
static double nice_step(double range)
{
    double step = range / TICKS;
    double power = pow(10, floor(log10(step)));
    double first = step / power;

    return power * (first <= 1 ? 1 : first <= 2 ? 2 : first <= 5 ? 5 : 10);
}

static void print_value(FILE *out, double value, bool bytes)
{
    char buf[FB_UNITS_TEXT_MAX];

    if (bytes)
        fputs(fb_format_size(buf, (uint64_t)value), out);
    else if (value >= 1e6)
        fprintf(out, "%gM", value / 1e6);
    else if (value >= 1e4)
        fprintf(out, "%gk", value / 1e3);
    else
        fprintf(out, "%g", fabs(value) < 1e-12 ? 0 : value);
}

static void tick_x(FILE *out, const struct fb_plot *plot, const struct axis *x, double value)
{
    double at = place_x(x, value);

    fprintf(out,
            "<line class='grid' x1='%.1f' y1='%d' x2='%.1f' y2='%d'/>"
            "<text x='%.1f' y='%d' text-anchor='middle'>",
            at, TOP, at, BOTTOM, at, BOTTOM + 18);
    print_value(out, value, plot->x_bytes);
    fputs("</text>\n", out);
}

/* Powers of `base`, thinned out. */
static void ticks_log(FILE *out, const struct fb_plot *plot, const struct axis *x)
{
    double base = plot->x_bytes ? 2 : 10;
    int low = (int)ceil(log(x->from) / log(base) - 1e-9);
    int high = (int)floor(log(x->to) / log(base) + 1e-9);
    int step = (high - low + TICKS - 1) / TICKS;

    if (high - low < 1) { /* too narrow for powers: its ends */
        tick_x(out, plot, x, x->from);
        tick_x(out, plot, x, x->to);
        return;
    }
    for (int e = low; e <= high; e += step)
        tick_x(out, plot, x, pow(base, e));
}

static void tick_names(FILE *out, const struct fb_plot *plot, const struct axis *x)
{
    for (size_t i = 0; i < plot->bar_count; i++) {
        fprintf(out, "<text transform='translate(%.1f %d) rotate(-35)' text-anchor='end'>",
                place_x(x, (double)i) + 4, BOTTOM + 16);
        fb_plot_text(out, plot->bars[i]);
        fputs("</text>\n", out);
    }
}

static void ticks_x(FILE *out, const struct fb_plot *plot, const struct axis *x)
{
    double step;

    if (plot->bars) {
        tick_names(out, plot, x);
        return;
    }
    if (x->log) {
        ticks_log(out, plot, x);
        return;
    }
    if (x->to <= x->from) {
        tick_x(out, plot, x, x->from);
        return;
    }
    step = nice_step(x->to - x->from);
    for (int i = (int)ceil(x->from / step - 1e-9); i * step <= x->to + step * 1e-9; i++)
        tick_x(out, plot, x, i * step);
}

static void ticks_y(FILE *out, struct axis *y)
{
    double step = nice_step(y->to - y->from);

    y->from = floor(y->from / step + 1e-9) * step;
    y->to = ceil(y->to / step - 1e-9) * step;
    for (int i = (int)round(y->from / step); i * step <= y->to + step * 1e-9; i++) {
        double at = place_y(y, i * step);

        fprintf(out,
                "<line class='grid' x1='%d' y1='%.1f' x2='%d' y2='%.1f'/>"
                "<text x='%d' y='%.1f' text-anchor='end'>",
                LEFT, at, RIGHT, at, LEFT - 8, at + 4);
        print_value(out, i * step, false);
        fputs("</text>\n", out);
    }
}

/* ---- lines and bars ---- */

static const char *colour_of(size_t number)
{
    return colours[number % FB_ARRAY_SIZE(colours)];
}

static const char *dash_of(size_t number)
{
    return dashes[number / FB_ARRAY_SIZE(colours) % FB_ARRAY_SIZE(dashes)];
}

static void legend(FILE *out, const char *name, size_t number, int width)
{
    double y = TOP + 10 + (double)number * LEGEND_STEP;

    fprintf(out,
            "<line x1='%d' y1='%.0f' x2='%d' y2='%.0f' stroke='%s' stroke-width='%d' "
            "stroke-dasharray='%s'/><text x='%d' y='%.0f'>",
            RIGHT + 16, y, RIGHT + 44, y, colour_of(number), width, dash_of(number), RIGHT + 52,
            y + 4);
    fb_plot_text(out, name);
    fputs("</text>\n", out);
}

/* The `number`-th of each name's bars, from 0 up or down. */
static void bars(FILE *out, const struct fb_plot *plot, size_t number, const struct axis *x,
                 const struct axis *y)
{
    const struct fb_plot_series *s = &plot->series[number];
    double wide = BARS_WIDE / (double)plot->count;

    for (size_t i = 0; i < s->count; i++) {
        double from = s->x[i] - BARS_WIDE / 2 + (double)number * wide;
        double left = place_x(x, from), right = place_x(x, from + wide);
        double top = place_y(y, fmax(s->y[i], 0)), bottom = place_y(y, fmin(s->y[i], 0));

        fprintf(out,
                "<rect class='bar' x='%.1f' y='%.1f' width='%.1f' height='%.1f' fill='%s'>"
                "<title>%g</title></rect>\n",
                left, top, right - left, bottom - top, colour_of(number), s->y[i]);
    }
    legend(out, s->name, number, 10);
}

static int by_x(const void *a, const void *b)
{
    const double *p = a;
    const double *q = b;

    return p[0] < q[0] ? -1 : p[0] > q[0];
}

static void line(FILE *out, const struct fb_plot_series *s, size_t number, const struct axis *x,
                 const struct axis *y)
{
    FB_AUTO_FREE double(*point)[2] = fb_alloc_array(s->count, sizeof *point);

    if (!point)
        return;
    for (size_t i = 0; i < s->count; i++) {
        point[i][0] = s->x[i];
        point[i][1] = s->y[i];
    }
    if (s->count > 1)
        qsort(point, s->count, sizeof *point, by_x);
    fprintf(out, "<polyline fill='none' stroke='%s' stroke-width='2' stroke-dasharray='%s' ",
            colour_of(number), dash_of(number));
    fputs("points='", out);
    for (size_t i = 0; i < s->count; i++)
        fprintf(out, "%.1f,%.1f ", place_x(x, point[i][0]), place_y(y, point[i][1]));
    fputs("'/>\n", out);
    for (size_t i = 0; i < s->count; i++)
        fprintf(out, "<circle cx='%.1f' cy='%.1f' r='3' fill='%s'><title>%g</title></circle>\n",
                place_x(x, point[i][0]), place_y(y, point[i][1]), colour_of(number), point[i][1]);
    legend(out, s->name, number, 2);
}

static void axis_labels(FILE *out, const struct fb_plot *plot)
{
    if (!plot->bars) {
        fprintf(out, "<text x='%d' y='%d' text-anchor='middle'>", (LEFT + RIGHT) / 2, BOTTOM + 44);
        fb_plot_text(out, plot->x_label);
        fputs("</text>\n", out);
    }
    fprintf(out, "<text transform='translate(20 %d) rotate(-90)' text-anchor='middle'>",
            (TOP + BOTTOM) / 2);
    fb_plot_text(out, plot->y_label);
    fputs("</text>\n", out);
}

void fb_plot_svg(FILE *out, const struct fb_plot *plot)
{
    struct axis x = {0};
    struct axis y = {0};
    int height = TOP + 20 + (int)plot->count * LEGEND_STEP;

    if (height < (plot->bars ? HEIGHT_BARS : HEIGHT_MIN))
        height = plot->bars ? HEIGHT_BARS : HEIGHT_MIN;
    find_range(plot, &x, &y);
    fprintf(out, "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %d %d' width='%d'>\n", WIDTH,
            height, WIDTH);
    fputs("<style>text{font:13px sans-serif;fill:#222}.title{font-size:16px;font-weight:bold}"
          ".grid{stroke:#ddd}.frame{stroke:#444;fill:none}</style>\n"
          "<rect width='100%' height='100%' fill='#fff'/>\n",
          out);
    fprintf(out, "<text class='title' x='%d' y='28'>", LEFT);
    fb_plot_text(out, plot->title);
    fputs("</text>\n", out);
    ticks_y(out, &y);
    ticks_x(out, plot, &x);
    fprintf(out, "<rect class='frame' x='%d' y='%d' width='%d' height='%d'/>\n", LEFT, TOP,
            RIGHT - LEFT, BOTTOM - TOP);
    axis_labels(out, plot);
    for (size_t i = 0; i < plot->count; i++) {
        if (plot->bars)
            bars(out, plot, i, &x, &y);
        else
            line(out, &plot->series[i], i, &x, &y);
    }
    fputs("</svg>\n", out);
}
