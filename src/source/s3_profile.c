#include "source/s3_profile.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <string.h>
#include <strings.h>

#include "core/mem.h"

const char *fb_s3_env(const char *const *env, const char *name)
{
    size_t len = strlen(name);

    for (; env && *env; env++) {
        if (!strncmp(*env, name, len) && (*env)[len] == '=')
            return (*env)[len + 1] ? *env + len + 1 : NULL;
    }
    return NULL;
}

void fb_s3_profile_free(struct fb_s3_profile *profile)
{
    fb_s3_text_free(&profile->access_key);
    fb_s3_text_free(&profile->secret);
    fb_s3_text_free(&profile->session_token);
    fb_s3_text_free(&profile->region);
    fb_s3_text_free(&profile->endpoint_url);
    fb_s3_text_free(&profile->credential_process);
    fb_s3_text_free(&profile->role_arn);
    fb_s3_text_free(&profile->source_profile);
    fb_s3_text_free(&profile->web_identity_token_file);
    fb_s3_text_free(&profile->sso);
    profile->found = false;
}

int fb_s3_file_read(const char *path, struct fb_s3_text *ret_text)
{
    char piece[4096];
    FB_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    ssize_t n;

    if (fd < 0)
        return -errno;
    fb_s3_text_clear(ret_text);
    do {
        n = read(fd, piece, sizeof piece);
        if (n < 0)
            n = -errno;
        if (n > 0)
            fb_s3_text_add(ret_text, piece, (size_t)n);
    } while (n > 0 && fb_s3_text_ok(ret_text) && ret_text->len <= FB_S3_FILE_MAX);
    OPENSSL_cleanse(piece, sizeof piece);
    if (n < 0)
        return (int)n;
    if (n > 0)
        return -EFBIG;
    return fb_s3_text_ok(ret_text) ? 0 : -ENOMEM;
}

/* ---- lines ----------------------------------------------------------------------------------- */

struct span {
    const char *at;
    size_t len;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
}

static struct span trim(struct span s)
{
    while (s.len > 0 && is_blank(s.at[0])) {
        s.at++;
        s.len--;
    }
    while (s.len > 0 && is_blank(s.at[s.len - 1]))
        s.len--;
    return s;
}

/* What stands before `c`, and *rest what stands behind; false when there is no `c`. */
static bool split(struct span s, char c, struct span *ret_before, struct span *ret_behind)
{
    const char *found = s.len > 0 ? memchr(s.at, c, s.len) : NULL;

    if (!found)
        return false;
    *ret_before = (struct span){s.at, (size_t)(found - s.at)};
    *ret_behind = (struct span){found + 1, s.len - ret_before->len - 1};
    return true;
}

static struct span cut_comment(struct span s)
{
    for (size_t i = 1; i < s.len; i++) {
        if ((s.at[i] == '#' || s.at[i] == ';') && is_blank(s.at[i - 1]))
            return trim((struct span){s.at, i});
    }
    return s;
}

static bool is_text(struct span s, const char *text)
{
    return s.len == strlen(text) && !memcmp(s.at, text, s.len);
}

/* Whether a line, which begins with '[', begins the section of the profile. */
static bool is_section(struct span line, const char *name, bool config)
{
    static const char word[] = "profile";
    struct span inside, rest;

    line.at++;
    line.len--;
    if (!split(line, ']', &inside, &rest))
        return false;
    inside = trim(inside);
    if (config && inside.len > sizeof word && !memcmp(inside.at, word, sizeof word - 1) &&
        is_blank(inside.at[sizeof word - 1]))
        inside = trim((struct span){inside.at + sizeof word, inside.len - sizeof word});
    else if (config && strcmp(name, "default") != 0)
        return false;
    if (inside.len >= 2 && (inside.at[0] == '"' || inside.at[0] == '\'') &&
        inside.at[inside.len - 1] == inside.at[0])
        inside = (struct span){inside.at + 1, inside.len - 2};
    return is_text(inside, name);
}

/* ---- settings -------------------------------------------------------------------------------- */

static const struct setting {
    const char *name;
    size_t at;
    bool word; /* becomes part of a header or a URL: printable, without spaces */
} settings[] = {

#define SETTING(name, member, word)                  \
 {                                                   \
  name, offsetof(struct fb_s3_profile, member), word \
 }
    SETTING("aws_access_key_id", access_key, true),
    SETTING("aws_secret_access_key", secret, true),
    SETTING("aws_session_token", session_token, true),
    SETTING("aws_security_token", session_token, true), /* its name of old */
    SETTING("region", region, true),
    SETTING("endpoint_url", endpoint_url, true),
    SETTING("credential_process", credential_process, false),
    SETTING("role_arn", role_arn, true),
    SETTING("source_profile", source_profile, false),
    SETTING("credential_source", source_profile, false),
    SETTING("web_identity_token_file", web_identity_token_file, false),
    SETTING("sso_session", sso, false),
    SETTING("sso_start_url", sso, false),
#undef SETTING
};

static bool is_word(struct span s)
{
    for (size_t i = 0; i < s.len; i++) {
        if (s.at[i] <= ' ' || s.at[i] > '~')
            return false;
    }
    return true;
}

static int set(struct fb_s3_profile *profile, struct span name, struct span value, const char *path,
               unsigned line, struct fb_error *err)
{
    for (size_t i = 0; i < FB_ARRAY_SIZE(settings); i++) {
        const struct setting *setting = &settings[i];
        struct fb_s3_text *text = (struct fb_s3_text *)((char *)profile + setting->at);

        if (strlen(setting->name) != name.len || strncasecmp(setting->name, name.at, name.len) != 0)
            continue;
        if (setting->word) {
            value = cut_comment(value);
            if (!is_word(value))
                return fb_error_set(err, -EINVAL,
                                    "%s, line %u: the value of %s has spaces or characters that "
                                    "do not belong there",
                                    path, line, setting->name);
        }
        fb_s3_text_clear(text);
        fb_s3_text_add(text, value.at, value.len);
        return fb_s3_text_ok(text) ? 0 : -ENOMEM;
    }
    return 0;
}

int fb_s3_profile_parse(struct fb_s3_profile *profile, const char *text, size_t len,
                        const char *name, bool config, const char *path, struct fb_error *err)
{
    struct span rest = {text, len}, line, key, value;
    size_t indent, setting_indent = SIZE_MAX;
    bool inside = false;
    int r = 0;

    if (len > 0 && memchr(text, 0, len))
        return fb_error_set(err, -EINVAL, "%s is not a text file", path);
    if (len >= 3 && !memcmp(text, "\xef\xbb\xbf", 3))
        rest = (struct span){text + 3, len - 3};
    for (unsigned number = 1; r == 0 && rest.len > 0; number++) {
        if (!split(rest, '\n', &line, &rest)) {
            line = rest;
            rest.len = 0;
        }
        for (indent = 0; indent < line.len && is_blank(line.at[indent]);)
            indent++;
        line = trim(line);
        if (line.len == 0 || line.at[0] == '#' || line.at[0] == ';')
            continue;
        if (line.at[0] == '[' && indent <= setting_indent) {
            inside = is_section(line, name, config);
            profile->found |= inside;
            setting_indent = SIZE_MAX;
        } else if (indent <= setting_indent && split(line, '=', &key, &value)) {
            setting_indent = indent;
            if (inside)
                r = set(profile, trim(key), trim(value), path, number, err);
        }
    }
    return r;
}
