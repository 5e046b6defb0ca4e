/* bench/empty.c - a shared library with nothing in it: see storm.c. */
extern int fb_bench_empty;
int fb_bench_empty;
