#include <errno.h>
#include <expat.h>
#include <jansson.h>
#include <openssl/crypto.h>
#include <string.h>

#include "core/clock.h"
#include "source/s3_creds_priv.h"
#include "source/s3_value.h"

void fb_s3_keys_free(struct fb_s3_keys *keys)
{
    fb_s3_text_free(&keys->access_key);
    fb_s3_text_free(&keys->secret);
    fb_s3_text_free(&keys->session_token);
}

static bool is_word(const struct fb_s3_text *text)
{
    for (size_t i = 0; i < text->len; i++) {
        if (text->data[i] <= ' ' || text->data[i] > '~')
            return false;
    }
    return fb_s3_text_ok(text);
}

bool fb_s3_keys_ok(const struct fb_s3_keys *keys)
{
    return keys->access_key.len > 0 && keys->secret.len > 0 && is_word(&keys->access_key) &&
           is_word(&keys->secret) && is_word(&keys->session_token);
}

/* The digits of +hh:mm, in seconds; false when it is not that. */
static bool parse_offset(const char *text, int64_t *ret_seconds)
{
    const char *digits = "0123456789";

    for (int i = 1; i < 6; i++) {
        if (i == 3 ? text[i] != ':' : !text[i] || !strchr(digits, text[i]))
            return false;
    }
    *ret_seconds =
        (((text[1] - '0') * 10 + text[2] - '0') * 60 + (text[4] - '0') * 10 + text[5] - '0') * 60;
    if (text[0] == '-')
        *ret_seconds = -*ret_seconds;
    return text[0] == '+' || text[0] == '-';
}

int fb_s3_parse_expiry(const char *text, size_t len, int64_t *ret_wall_ns)
{
    char copy[64];
    int64_t offset;
    int r;

    if (len < 6 || len + 1 >= sizeof copy || !parse_offset(text + len - 6, &offset))
        return fb_s3_parse_time(text, len, ret_wall_ns);
    memcpy(copy, text, len - 6);
    copy[len - 6] = 'Z';
    r = fb_s3_parse_time(copy, len - 5, ret_wall_ns);
    if (r == 0)
        *ret_wall_ns -= offset * FB_NS_PER_S;
    return r;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* Takes a string out of an object, and wipes it there. */
static void take_string(json_t *object, const char *name, struct fb_s3_text *ret_text)
{
    json_t *value = json_object_get(object, name);

    fb_s3_text_clear(ret_text);
    if (!json_is_string(value))
        return;
    fb_s3_text_add(ret_text, json_string_value(value), json_string_length(value));
    OPENSSL_cleanse((char *)json_string_value(value), json_string_length(value));
}

int fb_s3_keys_from_json(const struct fb_s3_text *json, const char *token_name,
                         struct fb_s3_keys *keys)
{
    json_t *object = json_loadb(fb_s3_text_string(json), json->len, 0, NULL);
    struct fb_s3_text expiry = {0};
    int r = 0;

    take_string(object, "AccessKeyId", &keys->access_key);
    take_string(object, "SecretAccessKey", &keys->secret);
    take_string(object, token_name, &keys->session_token);
    take_string(object, "Expiration", &expiry);
    json_decref(object);
    keys->expires_ns = FB_NEVER_NS;
    if (expiry.len > 0)
        r = fb_s3_parse_expiry(expiry.data, expiry.len, &keys->expires_ns);
    fb_s3_text_free(&expiry);
    return r == 0 && fb_s3_keys_ok(keys) ? 0 : -EBADMSG;
}

/* ---- XML ------------------------------------------------------------------------------------- */

/* The four names appear nowhere else in the answer, so where they stand does not matter. */
struct sts {
    XML_Parser parser;
    struct fb_s3_text *now; /* what the text belongs to; NULL: nothing */
    struct fb_s3_keys *keys;
    struct fb_s3_text expiry;
};

static void XMLCALL on_start(void *arg, const char *name, const char **attributes)
{
    struct sts *sts = arg;

    (void)attributes;
    sts->now = !strcmp(name, "AccessKeyId")       ? &sts->keys->access_key
               : !strcmp(name, "SecretAccessKey") ? &sts->keys->secret
               : !strcmp(name, "SessionToken")    ? &sts->keys->session_token
               : !strcmp(name, "Expiration")      ? &sts->expiry
                                                  : NULL;
    if (sts->now)
        fb_s3_text_clear(sts->now);
}

static void XMLCALL on_text(void *arg, const char *bytes, int len)
{
    struct sts *sts = arg;

    if (sts->now)
        fb_s3_text_add(sts->now, bytes, (size_t)len);
}

static void XMLCALL on_end(void *arg, const char *name)
{
    (void)name;
    ((struct sts *)arg)->now = NULL;
}

/* No DOCTYPE: no entities to expand. */
static void XMLCALL on_doctype(void *arg, const char *name, const char *system, const char *public,
                               int internal)
{
    (void)name;
    (void)system;
    (void)public;
    (void)internal;
    XML_StopParser(((struct sts *)arg)->parser, XML_FALSE);
}

int fb_s3_keys_from_sts(const struct fb_s3_text *xml, struct fb_s3_keys *keys)
{
    struct sts sts = {.keys = keys, .parser = XML_ParserCreate("UTF-8")};
    bool ok;

    if (!sts.parser)
        return -ENOMEM;
    XML_SetUserData(sts.parser, &sts);
    XML_SetElementHandler(sts.parser, on_start, on_end);
    XML_SetCharacterDataHandler(sts.parser, on_text);
    XML_SetStartDoctypeDeclHandler(sts.parser, on_doctype);
    ok = XML_Parse(sts.parser, fb_s3_text_string(xml), (int)xml->len, true) == XML_STATUS_OK &&
         fb_s3_keys_ok(keys) && sts.expiry.len > 0 &&
         fb_s3_parse_expiry(sts.expiry.data, sts.expiry.len, &keys->expires_ns) == 0;
    XML_ParserFree(sts.parser);
    fb_s3_text_free(&sts.expiry);
    return ok ? 0 : -EBADMSG;
}
