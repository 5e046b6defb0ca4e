/*
 * Standard input. A program may put a cached file there (dup2() to 0, or close(0) and open()) and
 * read it with read(), which we serve: dd does. Or it reads the stream `stdin`, which libc does
 * where we cannot see it: so whoever reads that stream makes descriptor 0 real first. Nothing else
 * is done here, and for no other stream.
 */
#include <stdarg.h>

#include "doors/preload/preload_priv.h"

#define WRAP_READ(type, name, params, args, file) \
 FB_EXPORT type name params                       \
 {                                                \
  fb_pl_about_to_read(file);                      \
  return FB_REAL(name) args;                      \
 }

#undef fread_unlocked

/* Those that headers do not declare. */
int __underflow(FILE *file);
int _IO_getc(FILE *file);
char *__fgets_chk(char *to, size_t room, int n, FILE *file);
char *__fgets_unlocked_chk(char *to, size_t room, int n, FILE *file);
size_t __fread_chk(void *to, size_t room, size_t size, size_t n, FILE *file);
size_t __fread_unlocked_chk(void *to, size_t room, size_t size, size_t n, FILE *file);
int __isoc99_vfscanf(FILE *file, const char *format, va_list args);
int __isoc23_vfscanf(FILE *file, const char *format, va_list args);

WRAP_READ(int, __uflow, (FILE * file), (file), file)
WRAP_READ(int, __underflow, (FILE * file), (file), file)
WRAP_READ(int, _IO_getc, (FILE * file), (file), file)
WRAP_READ(int, getc, (FILE * file), (file), file)
WRAP_READ(int, fgetc, (FILE * file), (file), file)
WRAP_READ(int, getchar, (void), (), stdin)
WRAP_READ(int, getc_unlocked, (FILE * file), (file), file)
WRAP_READ(int, fgetc_unlocked, (FILE * file), (file), file)
WRAP_READ(int, getchar_unlocked, (void), (), stdin)
WRAP_READ(int, getw, (FILE * file), (file), file)
WRAP_READ(char *, fgets, (char *restrict to, int n, FILE *restrict file), (to, n, file), file)
WRAP_READ(char *, fgets_unlocked, (char *restrict to, int n, FILE *restrict file), (to, n, file),
          file)
WRAP_READ(char *, __fgets_chk, (char *to, size_t room, int n, FILE *file), (to, room, n, file),
          file)
WRAP_READ(char *, __fgets_unlocked_chk, (char *to, size_t room, int n, FILE *file),
          (to, room, n, file), file)
WRAP_READ(size_t, fread, (void *restrict to, size_t size, size_t n, FILE *restrict file),
          (to, size, n, file), file)
WRAP_READ(size_t, fread_unlocked, (void *restrict to, size_t size, size_t n, FILE *restrict file),
          (to, size, n, file), file)
WRAP_READ(size_t, __fread_chk, (void *to, size_t room, size_t size, size_t n, FILE *file),
          (to, room, size, n, file), file)
WRAP_READ(size_t, __fread_unlocked_chk, (void *to, size_t room, size_t size, size_t n, FILE *file),
          (to, room, size, n, file), file)
WRAP_READ(ssize_t, getline, (char **restrict line, size_t *restrict size, FILE *restrict file),
          (line, size, file), file)
WRAP_READ(ssize_t, getdelim,
          (char **restrict line, size_t *restrict size, int delim, FILE *restrict file),
          (line, size, delim, file), file)
WRAP_READ(ssize_t, __getdelim, (char **line, size_t *size, int delim, FILE *file),
          (line, size, delim, file), file)

/* ---- scanf ---- */

/* Headers make __isoc99_scanf() of scanf(), or __isoc23_scanf(), or leave it. Symbols are given by
 * hand. */
#define WRAP_SCANF(name, vname, id)                                                 \
 FB_EXPORT int v##id(FILE *file, const char *format, va_list args) __asm__(#vname); \
 int v##id(FILE *file, const char *format, va_list args)                            \
 {                                                                                  \
  fb_pl_about_to_read(file);                                                        \
  return FB_REAL_LATE(vname)(file, format, args);                                   \
 }                                                                                  \
 FB_EXPORT int id(FILE *file, const char *format, ...) __asm__(#name);              \
 int id(FILE *file, const char *format, ...)                                        \
 {                                                                                  \
  va_list args;                                                                     \
  int n;                                                                            \
                                                                                    \
  va_start(args, format);                                                           \
  n = v##id(file, format, args);                                                    \
  va_end(args);                                                                     \
  return n;                                                                         \
 }

/* The same of standard input. */
#define WRAP_STDIN(name, vname, vf, id)                                 \
 FB_EXPORT int v##id(const char *format, va_list args) __asm__(#vname); \
 int v##id(const char *format, va_list args)                            \
 {                                                                      \
  return vf(stdin, format, args);                                       \
 }                                                                      \
 FB_EXPORT int id(const char *format, ...) __asm__(#name);              \
 int id(const char *format, ...)                                        \
 {                                                                      \
  va_list args;                                                         \
  int n;                                                                \
                                                                        \
  va_start(args, format);                                               \
  n = vf(stdin, format, args);                                          \
  va_end(args);                                                         \
  return n;                                                             \
 }

WRAP_SCANF(fscanf, vfscanf, wrap_fscanf)
WRAP_SCANF(__isoc99_fscanf, __isoc99_vfscanf, wrap_fscanf_99)
WRAP_SCANF(__isoc23_fscanf, __isoc23_vfscanf, wrap_fscanf_23)
WRAP_STDIN(scanf, vscanf, vwrap_fscanf, wrap_scanf)
WRAP_STDIN(__isoc99_scanf, __isoc99_vscanf, vwrap_fscanf_99, wrap_scanf_99)
WRAP_STDIN(__isoc23_scanf, __isoc23_vscanf, vwrap_fscanf_23, wrap_scanf_23)
