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

WRAP_READ(int, __uflow, (FILE * file), (file), file)
WRAP_READ(int, __underflow, (FILE * file), (file), file)
WRAP_READ(int, _IO_getc, (FILE * file), (file), file)
WRAP_READ(int, getc, (FILE * file), (file), file)
WRAP_READ(int, fgetc, (FILE * file), (file), file)
WRAP_READ(int, getchar, (void), (), stdin)
WRAP_READ(int, getc_unlocked, (FILE * file), (file), file)
WRAP_READ(int, fgetc_unlocked, (FILE * file), (file), file)
WRAP_READ(int, getchar_unlocked, (void), (), stdin)
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

/* Today's headers make __isoc99_scanf() of scanf(). The names differ so: symbols are given by
 * hand. */
#define WRAP_SCANF(symbol, id, params, last, file) \
 FB_EXPORT int id params __asm__(symbol);          \
 int id params                                     \
 {                                                 \
  va_list args;                                    \
  int n;                                           \
                                                   \
  fb_pl_about_to_read(file);                       \
  va_start(args, last);                            \
  n = FB_REAL(__isoc99_vfscanf)(file, last, args); \
  va_end(args);                                    \
  return n;                                        \
 }

WRAP_SCANF("__isoc99_scanf", wrap_scanf, (const char *format, ...), format, stdin)
WRAP_SCANF("__isoc99_fscanf", wrap_fscanf, (FILE * file, const char *format, ...), format, file)
WRAP_READ(int, __isoc99_vfscanf, (FILE * file, const char *format, va_list args),
          (file, format, args), file)

int __isoc99_vscanf(const char *format, va_list args);
WRAP_READ(int, __isoc99_vscanf, (const char *format, va_list args), (format, args), stdin)
