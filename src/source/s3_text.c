#include "source/s3_text.h"

#include <openssl/crypto.h>
#include <string.h>

#include "core/mem.h"

#define ROOM_MIN 256u

/* Not realloc(): it would leave a copy behind. */
static bool grow(struct fb_s3_text *text, size_t more)
{
    size_t room = text->room ? text->room : ROOM_MIN;
    char *data;

    if (text->broken || more > FB_S3_TEXT_MAX - text->len) {
        text->broken = true;
        return false;
    }
    while (room <= text->len + more)
        room *= 2;
    if (room == text->room)
        return true;
    data = fb_alloc(room);
    if (!data) {
        text->broken = true;
        return false;
    }
    if (text->len > 0)
        memcpy(data, text->data, text->len);
    OPENSSL_clear_free(text->data, text->room);
    text->data = data;
    text->room = room;
    return true;
}

void fb_s3_text_add(struct fb_s3_text *text, const char *bytes, size_t len)
{
    if (!grow(text, len))
        return;
    if (len > 0)
        memcpy(text->data + text->len, bytes, len);
    text->len += len;
    text->data[text->len] = '\0';
}

void fb_s3_text_adds(struct fb_s3_text *text, const char *string)
{
    fb_s3_text_add(text, string, strlen(string));
}

void fb_s3_text_addc(struct fb_s3_text *text, char c)
{
    fb_s3_text_add(text, &c, 1);
}

static bool is_plain(char c, bool keep_slash)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.' || c == '~' || (c == '/' && keep_slash);
}

void fb_s3_text_add_encoded(struct fb_s3_text *text, const char *bytes, size_t len, bool keep_slash)
{
    static const char digits[] = "0123456789ABCDEF";
    size_t plain = 0; /* how many of the last bytes can stay as they are */

    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)bytes[i];
        char code[3] = {'%', digits[c >> 4], digits[c & 15]};

        if (is_plain(bytes[i], keep_slash)) {
            plain++;
            continue;
        }
        fb_s3_text_add(text, bytes + i - plain, plain);
        fb_s3_text_add(text, code, sizeof code);
        plain = 0;
    }
    fb_s3_text_add(text, bytes + len - plain, plain);
}

void fb_s3_text_clear(struct fb_s3_text *text)
{
    text->len = 0;
    text->broken = false;
    if (text->data)
        text->data[0] = '\0';
}

void fb_s3_text_free(struct fb_s3_text *text)
{
    OPENSSL_clear_free(text->data, text->room);
    memset(text, 0, sizeof *text);
}
