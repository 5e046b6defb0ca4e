/*
 * tests/programs/wide - wide DIR SCRATCH: wide characters from a stream of DIR/wide, in every way
 * that libc has; and streams that are opened anew, one to write to SCRATCH.
 */
#include <fcntl.h>
#include <locale.h>
#include <stdio_ext.h>
#include <unistd.h>
#include <wchar.h>

#include "transcript.h"

static const char *wide_path;
static wchar_t line[4096];

static FILE *open_wide(void)
{
    FILE *f = fopen(wide_path, "r");

    if (!f)
        die(wide_path);
    return f;
}

static void say_line(const char *what, const wchar_t *text)
{
    if (text)
        say_bytes(what, text, (long)(wcslen(text) * sizeof *text));
    else
        printf("%s: none\n", what);
}

static void say_state(FILE *f)
{
    printf("eof %d, error %d, wide %d, at %ld\n", feof(f) != 0, ferror(f) != 0, fwide(f, 0) > 0,
           ftell(f));
}

static void characters(void)
{
    FILE *f = open_wide();
    uint64_t sum = 0;
    wint_t wide;
    long n = 0;

    say("orientation", 2 + fwide(f, 0));
    while ((wide = fgetwc(f)) != WEOF) {
        sum = sum * 31 + wide;
        n++;
    }
    printf("%ld characters %016llx\n", n, (unsigned long long)sum);
    say_state(f);
    clearerr(f);
    say_state(f);
    say("unlocked, eof", feof_unlocked(f) != 0);
    rewind(f);
    say("first", (long)getwc(f));
    say("back", (long)ungetwc(L'\u2603', f));
    say("again", (long)fgetwc_unlocked(f));
    say_state(f);
    say("fileno works", lseek(fileno(f), 0, SEEK_CUR) > 0);
    say("fclose", fclose(f));
}

static void lines(void)
{
    FILE *f = open_wide();
    fpos_t at;

    say("wide", fwide(f, 1));
    say("not of bytes", fwide(f, -1));
    say_line("fgetws", fgetws(line, 4096, f));
    say_line("short", fgetws(line, 5, f));
    say("fgetpos", fgetpos(f, &at));
    say_line("rest", fgetws_unlocked(line, 4096, f));
    say_state(f);
    say("fsetpos", fsetpos(f, &at));
    say_line("the same rest", fgetws(line, 4096, f));
    say("fseek", fseek(f, 0, SEEK_END));
    say_line("the end", fgetws(line, 4096, f));
    say_state(f);
    say("fflush", fflush(f));
    say("fclose", fclose(f));
}

static void formats(void)
{
    FILE *f = open_wide();
    wchar_t word[64] = L"";
    int number = 0;

    say("fwscanf", fwscanf(f, L"%d %63ls", &number, word)); /* NOLINT */
    say("number", number);
    say_line("word", word);
    say_state(f);
    errno = 0;
    say("fputwc", fputwc(L'x', f) == WEOF);
    say("fputws", fputws(L"x", f));
    say("fwprintf", fwprintf(f, L"%d", 1));
    say_state(f);
    fclose(f);
}

/* What a stream is first, it stays. */
static void bytes(void)
{
    FILE *f = open_wide();

    say("fseek, in the middle", fseek(f, 1, SEEK_SET));
    say("still open to both", fwide(f, 0));
    say("wide", (long)fgetwc(f));
    say_state(f);
    fclose(f);
    f = open_wide();
    say("byte", fgetc(f));
    say("orientation", 2 + fwide(f, 1));
    say("no wide one", fgetwc(f) == WEOF);
    say("byte", fgetc(f));
    fclose(f);
    f = open_wide();
    say("byte-oriented", 2 + fwide(f, -1));
    say("byte", fgetc(f));
    fclose(f);
}

static void broken(const char *dir)
{
    char path[4096];
    FILE *f;

    snprintf(path, sizeof path, "%s/broken", dir);
    f = fopen(path, "r");
    if (!f)
        die(path);
    say("good", (long)fgetwc(f));
    errno = 0;
    say("bad", fgetwc(f) == WEOF ? -1 : 0);
    say_state(f);
    fclose(f);
}

static void input(void)
{
    int number = 0;

    close(0);
    say("stdin", open(wide_path, O_RDONLY)); /* NOLINT(android-cloexec-open) */
    say("wscanf", wscanf(L"%d", &number));   /* NOLINT */
    say("number", number);
    say("getwchar", (long)getwchar());
}

static void opened_anew(const char *scratch)
{
    FILE *f = open_wide();
    char text[64] = "";

    say_line("fgetws", fgetws(line, 4096, f));
    say("freopen", freopen(wide_path, "r", f) == f);
    say("orientation", 2 + fwide(f, 0));
    say("fgets", fgets(text, sizeof text, f) != NULL);
    printf("%s", text);
    say("the same", freopen(NULL, "r", f) == f);
    say("fgets", fgets(text, sizeof text, f) != NULL);
    printf("%s", text);
    say("to write", freopen(scratch, "w", f) == f);
    say("fputs", fputs("written\n", f) >= 0);
    say("no reading", fgetc(f));
    say("flushed", fflush(f));
    say("both", freopen(scratch, "r+", f) == f);
    say("fgets", fgets(text, sizeof text, f) != NULL);
    printf("%s", text);
    say("fseek", fseek(f, 0, SEEK_END));
    say("fputs", fputs("more\n", f) >= 0);
    say("appending", freopen(scratch, "a", f) == f);
    say("fputs", fputs("last\n", f) >= 0);
    say("nowhere", freopen("/nowhere/x", "r", f) == f ? 0 : -1);
    fclose(f); /* NOLINT(clang-analyzer-unix.Stream): libc's is still there */
    f = fopen(scratch, "r");
    say_bytes("all", text, (long)fread(text, 1, sizeof text, f));
    fclose(f);
}

int main(int argc, char **argv)
{
    static char path[4096];

    if (argc < 3 || !setlocale(LC_ALL, "C.UTF-8"))
        return 2;
    snprintf(path, sizeof path, "%s/wide", argv[1]);
    wide_path = path;
    characters();
    lines();
    formats();
    bytes();
    broken(argv[1]);
    opened_anew(argv[2]);
    input();
    return 0;
}
