/*
 * Wide characters. A stream with functions (fopencookie) has no room for them, and libc looks for
 * that room without asking: every call of the kind would be the program's last. So the first one on
 * a stream of ours makes its descriptor real and a stream of libc's own beside it, on the same
 * descriptor (wrap_stdio.c). Wide calls go there from then on, and all that is neither wide nor of
 * bytes: positions, the flags of end and error, flushing. The latter are shown in our stream, too,
 * where inline functions look for them.
 *
 * Streams of libc's own pass with one comparison.
 */
#include <stdarg.h>
#include <wchar.h>

#include "doors/preload/preload_priv.h"

#undef getwc_unlocked
#undef putwc_unlocked

/* Those that headers do not declare. */
wint_t __wuflow(FILE *file);
wint_t __wunderflow(FILE *file);
wchar_t *__fgetws_chk(wchar_t *to, size_t room, int n, FILE *file);
wchar_t *__fgetws_unlocked_chk(wchar_t *to, size_t room, int n, FILE *file);
int __vfwprintf_chk(FILE *file, int flag, const wchar_t *format, va_list args);
int __isoc99_vfwscanf(FILE *file, const wchar_t *format, va_list args);
int __isoc23_vfwscanf(FILE *file, const wchar_t *format, va_list args);

/* The last argument is what to say when no stream for wide characters can be had, or the stream is
 * one of bytes already. */
#define WRAP_WIDE(type, name, params, args, failed) \
 FB_EXPORT type name params                         \
 {                                                  \
  FILE *ours = file;                                \
  type rc;                                          \
                                                    \
  fb_pl_about_to_read(file);                        \
  file = fb_pl_wide(ours);                          \
  rc = file ? FB_REAL_LATE(name) args : (failed);   \
  fb_pl_show_state(ours, file);                     \
  return rc;                                        \
 }

WRAP_WIDE(wint_t, fgetwc, (FILE * file), (file), WEOF)
WRAP_WIDE(wint_t, getwc, (FILE * file), (file), WEOF)
WRAP_WIDE(wint_t, fgetwc_unlocked, (FILE * file), (file), WEOF)
WRAP_WIDE(wint_t, getwc_unlocked, (FILE * file), (file), WEOF)
WRAP_WIDE(wint_t, __wuflow, (FILE * file), (file), WEOF)
WRAP_WIDE(wint_t, __wunderflow, (FILE * file), (file), WEOF)
WRAP_WIDE(wint_t, ungetwc, (wint_t wide, FILE *file), (wide, file), WEOF)
WRAP_WIDE(wchar_t *, fgetws, (wchar_t *restrict to, int n, FILE *restrict file), (to, n, file),
          NULL)
WRAP_WIDE(wchar_t *, fgetws_unlocked, (wchar_t *restrict to, int n, FILE *restrict file),
          (to, n, file), NULL)
WRAP_WIDE(wchar_t *, __fgetws_chk, (wchar_t * to, size_t room, int n, FILE *file),
          (to, room, n, file), NULL)
WRAP_WIDE(wchar_t *, __fgetws_unlocked_chk, (wchar_t * to, size_t room, int n, FILE *file),
          (to, room, n, file), NULL)

/* Writing to a stream for reading fails: that must be all that it does. */
WRAP_WIDE(wint_t, fputwc, (wchar_t wide, FILE *file), (wide, file), WEOF)
WRAP_WIDE(wint_t, putwc, (wchar_t wide, FILE *file), (wide, file), WEOF)
WRAP_WIDE(wint_t, fputwc_unlocked, (wchar_t wide, FILE *file), (wide, file), WEOF)
WRAP_WIDE(wint_t, putwc_unlocked, (wchar_t wide, FILE *file), (wide, file), WEOF)
WRAP_WIDE(int, fputws, (const wchar_t *restrict text, FILE *restrict file), (text, file), -1)
WRAP_WIDE(int, fputws_unlocked, (const wchar_t *restrict text, FILE *restrict file), (text, file),
          -1)

/* ---- scanf and printf ---- */

/* Headers give some of them other symbols than their names: symbols are given by hand. */
#define WRAP_FORMAT(name, vname, id)                                                   \
 FB_EXPORT int v##id(FILE *file, const wchar_t *format, va_list args) __asm__(#vname); \
 int v##id(FILE *file, const wchar_t *format, va_list args)                            \
 {                                                                                     \
  FILE *ours = file;                                                                   \
  int rc;                                                                              \
                                                                                       \
  fb_pl_about_to_read(file);                                                           \
  file = fb_pl_wide(ours);                                                             \
  rc = file ? FB_REAL_LATE(vname)(file, format, args) : -1;                            \
  fb_pl_show_state(ours, file);                                                        \
  return rc;                                                                           \
 }                                                                                     \
 FB_EXPORT int id(FILE *file, const wchar_t *format, ...) __asm__(#name);              \
 int id(FILE *file, const wchar_t *format, ...)                                        \
 {                                                                                     \
  va_list args;                                                                        \
  int rc;                                                                              \
                                                                                       \
  va_start(args, format);                                                              \
  rc = v##id(file, format, args);                                                      \
  va_end(args);                                                                        \
  return rc;                                                                           \
 }

WRAP_FORMAT(fwscanf, vfwscanf, wrap_fwscanf)
WRAP_FORMAT(__isoc99_fwscanf, __isoc99_vfwscanf, wrap_fwscanf_99)
WRAP_FORMAT(__isoc23_fwscanf, __isoc23_vfwscanf, wrap_fwscanf_23)
WRAP_FORMAT(fwprintf, vfwprintf, wrap_fwprintf)

WRAP_WIDE(int, __vfwprintf_chk, (FILE * file, int flag, const wchar_t *format, va_list args),
          (file, flag, format, args), -1)

int __fwprintf_chk(FILE *file, int flag, const wchar_t *format, ...);

FB_EXPORT int __fwprintf_chk(FILE *file, int flag, const wchar_t *format, ...)
{
    va_list args;
    int rc;

    va_start(args, format);
    rc = __vfwprintf_chk(file, flag, format, args);
    va_end(args);
    return rc;
}

/* ---- standard input ---- */

FB_EXPORT wint_t getwchar(void)
{
    return fgetwc(stdin);
}

FB_EXPORT wint_t getwchar_unlocked(void)
{
    return fgetwc_unlocked(stdin);
}

#define WRAP_WSCANF(name, vname, vf, id)                                   \
 FB_EXPORT int v##id(const wchar_t *format, va_list args) __asm__(#vname); \
 int v##id(const wchar_t *format, va_list args)                            \
 {                                                                         \
  return vf(stdin, format, args);                                          \
 }                                                                         \
 FB_EXPORT int id(const wchar_t *format, ...) __asm__(#name);              \
 int id(const wchar_t *format, ...)                                        \
 {                                                                         \
  va_list args;                                                            \
  int rc;                                                                  \
                                                                           \
  va_start(args, format);                                                  \
  rc = vf(stdin, format, args);                                            \
  va_end(args);                                                            \
  return rc;                                                               \
 }

WRAP_WSCANF(wscanf, vwscanf, vwrap_fwscanf, wrap_wscanf)
WRAP_WSCANF(__isoc99_wscanf, __isoc99_vwscanf, vwrap_fwscanf_99, wrap_wscanf_99)
WRAP_WSCANF(__isoc23_wscanf, __isoc23_vwscanf, vwrap_fwscanf_23, wrap_wscanf_23)

/* ---- neither wide nor of bytes ---- */

#define WRAP_PLACE(type, name, params, args) \
 FB_EXPORT type name params                  \
 {                                           \
  FILE *ours = file;                         \
  type rc;                                   \
                                             \
  fb_pl_about_to_read(file);                 \
  file = fb_pl_stream(ours);                 \
  rc = FB_REAL_LATE(name) args;              \
  fb_pl_show_state(ours, file);              \
  return rc;                                 \
 }

#define WRAP_STATE(name)         \
 FB_EXPORT void name(FILE *file) \
 {                               \
  FILE *ours = file;             \
                                 \
  file = fb_pl_stream(ours);     \
  FB_REAL_LATE(name)(file);      \
  fb_pl_show_state(ours, file);  \
 }

WRAP_PLACE(int, fseek, (FILE * file, long offset, int whence), (file, offset, whence))
WRAP_PLACE(int, fseeko, (FILE * file, off_t offset, int whence), (file, offset, whence))
WRAP_PLACE(int, fseeko64, (FILE * file, off64_t offset, int whence), (file, offset, whence))
WRAP_PLACE(long, ftell, (FILE * file), (file))
WRAP_PLACE(off_t, ftello, (FILE * file), (file))
WRAP_PLACE(off64_t, ftello64, (FILE * file), (file))
WRAP_PLACE(int, fgetpos, (FILE *restrict file, fpos_t *restrict at), (file, at))
WRAP_PLACE(int, fgetpos64, (FILE *restrict file, fpos64_t *restrict at), (file, at))
WRAP_PLACE(int, fsetpos, (FILE * file, const fpos_t *at), (file, at))
WRAP_PLACE(int, fsetpos64, (FILE * file, const fpos64_t *at), (file, at))
WRAP_STATE(clearerr)
WRAP_STATE(clearerr_unlocked)

FB_EXPORT void rewind(FILE *file)
{
    FILE *ours = file;

    fb_pl_about_to_read(file);
    file = fb_pl_stream(ours);
    FB_REAL_LATE(rewind)(file);
    fb_pl_show_state(ours, file);
}

#define WRAP_FLUSH(name)                         \
 FB_EXPORT int name(FILE *file)                  \
 {                                               \
  FILE *used = file ? fb_pl_stream(file) : NULL; \
  int rc = FB_REAL_LATE(name)(used);             \
                                                 \
  if (file) /* NULL: all of them */              \
   fb_pl_show_state(file, used);                 \
  return rc;                                     \
 }

WRAP_FLUSH(fflush)
WRAP_FLUSH(fflush_unlocked)
