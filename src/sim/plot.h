/*
 * sim/plot.h - lines or bars as SVG: axes, ticks, grid, legend; no library, no script.
 */
#ifndef FB_SIM_PLOT_H
#define FB_SIM_PLOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct fb_plot_series {
    const char *name;
    const double *x;
    const double *y;
    size_t count; /* points, in any order */
};

struct fb_plot {
    const char *title;
    const char *x_label;
    const char *y_label;
    bool x_log;              /* all x are above 0 */
    bool x_bytes;            /* ticks as 16M */
    bool y_from_0;           /* else from where it begins */
    const char *const *bars; /* NULL, or names: y as bars over x of 0, 1, 2 ..., for x_label */
    size_t bar_count;
    const struct fb_plot_series *series;
    size_t count;
};

/* An <svg> element that stands alone in a file, or in a page. */
void fb_plot_svg(FILE *out, const struct fb_plot *plot);

/* Text with & < > " written as XML wants it. */
void fb_plot_text(FILE *out, const char *text);

#endif
