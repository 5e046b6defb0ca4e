/* Credential files, and what services and programs print as credentials. */
#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "fuzz.h"
#include "source/s3_profile.h"
/* What a service answers is parsed by functions that are private to the module. */
#include "source/s3_creds_priv.h"

const char *const fb_fuzz_seeds[] = {
    "[default]\naws_access_key_id = AKIA\naws_secret_access_key = abc/+=\n"
    "aws_session_token = x # comment\n[other]\nregion=r\n",
    "\xef\xbb\xbf[profile a]\r\n  region = eu-west-3\r\n  s3 =\r\n    endpoint_url = x\r\n"
    "  endpoint_url = http://e\r\n  credential_process = p \"q r\"\r\n[default]\nrole_arn = x\n",
    "{\"Version\": 1, \"AccessKeyId\": \"A\", \"SecretAccessKey\": \"S\", \"SessionToken\": \"T\", "
    "\"Expiration\": \"2200-01-01T02:00:00+02:00\"}",
    "{\"Code\": \"Success\", \"AccessKeyId\": \"A\", \"SecretAccessKey\": \"S\", "
    "\"Token\": \"T\", \"Expiration\": \"2200-01-01T00:00:00Z\"}",
    "<AssumeRoleWithWebIdentityResponse><Credentials><AccessKeyId>A</AccessKeyId>"
    "<SecretAccessKey>S</SecretAccessKey><SessionToken>T</SessionToken>"
    "<Expiration>2200-01-01T00:00:00Z</Expiration></Credentials>"
    "</AssumeRoleWithWebIdentityResponse>",
    "2200-01-01T00:00:00.5-01:30",
    NULL,
};

const char *const fb_fuzz_words[] = {
    "[",
    "]",
    "[a]",
    "[default]",
    "[profile a]",
    "[profile \"a\"]",
    "=",
    "\n",
    "\r\n",
    "#",
    ";",
    " ",
    "\t",
    "\"",
    "'",
    "aws_access_key_id",
    "aws_secret_access_key",
    "aws_session_token",
    "region",
    "endpoint_url",
    "{",
    "}",
    ":",
    ",",
    "\\u0000",
    "\\n",
    "\"AccessKeyId\"",
    "\"Expiration\"",
    "<AccessKeyId>",
    "</AccessKeyId>",
    "+00:00",
    "Z",
    "\x7f",
    "\xff",
    "<!DOCTYPE a [<!ENTITY b \"c\">]>",
    "null",
    NULL,
};

static void check_word(const struct fb_s3_text *text)
{
    FB_ASSERT(text->len == 0 || text->data[text->len] == '\0');
    for (size_t i = 0; i < text->len; i++)
        FB_ASSERT(text->data[i] > ' ' && text->data[i] <= '~');
}

static void check_profile(const char *text, size_t size, const char *name, bool config)
{
    struct fb_s3_profile profile = {0};
    struct fb_error err = {0};
    int r = fb_s3_profile_parse(&profile, text, size, name, config, "FILE", &err);

    FB_ASSERT(r == 0 || (r == -EINVAL && err.text[0]));
    if (r == 0) {
        check_word(&profile.access_key);
        check_word(&profile.secret);
        check_word(&profile.session_token);
        check_word(&profile.region);
        check_word(&profile.endpoint_url);
        FB_ASSERT(profile.found || profile.access_key.len == 0);
    }
    fb_s3_profile_free(&profile);
}

static void check_keys(int r, struct fb_s3_keys *keys)
{
    FB_ASSERT(r == 0 || r == -EBADMSG);
    if (r == 0) {
        check_word(&keys->access_key);
        check_word(&keys->secret);
        check_word(&keys->session_token);
        FB_ASSERT(keys->access_key.len > 0 && keys->secret.len > 0);
    }
    fb_s3_keys_free(keys);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fb_s3_keys keys = {0};
    struct fb_s3_text text = {0};
    const char *bytes = (const char *)data;
    int64_t ns;

    check_profile(bytes, size, "default", true);
    check_profile(bytes, size, "default", false);
    check_profile(bytes, size, "a", true);
    check_profile(bytes, size, "a", false);
    fb_s3_text_add(&text, bytes, size);
    check_keys(fb_s3_keys_from_json(&text, "Token", &keys), &keys);
    check_keys(fb_s3_keys_from_sts(&text, &keys), &keys);
    fb_s3_text_free(&text);
    (void)!fb_s3_parse_expiry(bytes, size, &ns);
    return 0;
}
