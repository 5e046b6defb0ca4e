#include "source/s3_sign.h"

#include <errno.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <string.h>

#include "base/assert.h"
#include "core/clock.h"
#include "core/mem.h"

#define DIGEST_BYTES 32
#define DATE_TEXT    17 /* 20130524T000000Z and its zero */
#define DAY_CHARS    8
#define ALGORITHM    "AWS4-HMAC-SHA256"
#define FIXED_MAX    4 /* headers that are always signed, and the session token */

struct fb_s3_signer {
    EVP_MD *sha256;
    EVP_MD_CTX *hash;
    EVP_MAC *hmac;
    EVP_MAC_CTX *mac;

    /* The signing key, and what it was made of. */
    bool has_key;
    char key_day[DAY_CHARS + 1];
    char key_region[FB_S3_SIGN_REGION_MAX + 1];
    uint8_t key_secret[DIGEST_BYTES]; /* digest of the secret */
    uint8_t key[DIGEST_BYTES];

    /* The request at hand. */
    char date[DATE_TEXT];
    struct fb_s3_text path;
    struct fb_s3_text query;
    struct fb_s3_text params;    /* the encoded parameters before they are sorted */
    struct fb_s3_text names;     /* of the signed headers */
    struct fb_s3_text canonical; /* the request in canonical form */
    struct fb_s3_text scope;
    struct fb_s3_text authorization;
};

int fb_s3_signer_create(struct fb_s3_signer **ret_signer)
{
    struct fb_s3_signer *signer = fb_alloc(sizeof *signer);
    OSSL_PARAM digest[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, (char[]){"SHA256"}, 0),
        OSSL_PARAM_construct_end(),
    };

    if (!signer)
        return -ENOMEM;
    /* Fetched once: looking an algorithm up costs more than a request's digests. */
    signer->sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
    signer->hash = EVP_MD_CTX_new();
    signer->hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    signer->mac = signer->hmac ? EVP_MAC_CTX_new(signer->hmac) : NULL;
    if (!signer->sha256 || !signer->hash || !signer->mac ||
        EVP_MAC_CTX_set_params(signer->mac, digest) != 1) {
        fb_s3_signer_destroy(signer);
        return -EIO;
    }
    *ret_signer = signer;
    return 0;
}

void fb_s3_signer_destroy(struct fb_s3_signer *signer)
{
    if (!signer)
        return;
    fb_s3_text_free(&signer->path);
    fb_s3_text_free(&signer->query);
    fb_s3_text_free(&signer->params);
    fb_s3_text_free(&signer->names);
    fb_s3_text_free(&signer->canonical);
    fb_s3_text_free(&signer->scope);
    fb_s3_text_free(&signer->authorization);
    EVP_MAC_CTX_free(signer->mac);
    EVP_MAC_free(signer->hmac);
    EVP_MD_CTX_free(signer->hash);
    EVP_MD_free(signer->sha256);
    OPENSSL_clear_free(signer, sizeof *signer);
}

/* ---- digests --------------------------------------------------------------------------------- */

static void to_hex(const uint8_t digest[DIGEST_BYTES], char ret_hex[FB_S3_SHA256_TEXT])
{
    static const char digits[] = "0123456789abcdef";

    for (int i = 0; i < DIGEST_BYTES; i++) {
        ret_hex[2 * i] = digits[digest[i] >> 4];
        ret_hex[2 * i + 1] = digits[digest[i] & 15];
    }
    ret_hex[2 * DIGEST_BYTES] = '\0';
}

static int sha256(struct fb_s3_signer *signer, const void *data, size_t len,
                  uint8_t ret_digest[DIGEST_BYTES])
{
    if (EVP_DigestInit_ex2(signer->hash, signer->sha256, NULL) != 1 ||
        EVP_DigestUpdate(signer->hash, data, len) != 1 ||
        EVP_DigestFinal_ex(signer->hash, ret_digest, NULL) != 1)
        return -EIO;
    return 0;
}

int fb_s3_sha256(struct fb_s3_signer *signer, const void *data, size_t len,
                 char ret_hex[FB_S3_SHA256_TEXT])
{
    uint8_t digest[DIGEST_BYTES];
    int r = sha256(signer, data, len, digest);

    if (r == 0)
        to_hex(digest, ret_hex);
    return r;
}

/* `ret_digest` may be `key`. */
static int hmac(struct fb_s3_signer *signer, const void *key, size_t key_len, const char *data,
                size_t len, uint8_t ret_digest[DIGEST_BYTES])
{
    size_t done;

    if (EVP_MAC_init(signer->mac, key, key_len, NULL) != 1 ||
        EVP_MAC_update(signer->mac, (const unsigned char *)data, len) != 1 ||
        EVP_MAC_final(signer->mac, ret_digest, &done, DIGEST_BYTES) != 1)
        return -EIO;
    return 0;
}

static int make_key(struct fb_s3_signer *signer, const struct fb_s3_identity *identity)
{
    struct fb_s3_text start = {0};
    uint8_t *key = signer->key;
    int r;

    fb_s3_text_adds(&start, "AWS4");
    fb_s3_text_adds(&start, identity->secret);
    r = fb_s3_text_ok(&start) ? 0 : -ENOMEM;
    if (r == 0)
        r = hmac(signer, start.data, start.len, signer->date, DAY_CHARS, key);
    if (r == 0)
        r = hmac(signer, key, DIGEST_BYTES, identity->region, strlen(identity->region), key);
    if (r == 0)
        r = hmac(signer, key, DIGEST_BYTES, "s3", 2, key);
    if (r == 0)
        r = hmac(signer, key, DIGEST_BYTES, "aws4_request", 12, key);
    fb_s3_text_free(&start);
    return r;
}

/* Makes the signing key, unless the last one will do. */
static int want_key(struct fb_s3_signer *signer, const struct fb_s3_identity *identity)
{
    uint8_t secret[DIGEST_BYTES];
    int r;

    if (strlen(identity->region) > FB_S3_SIGN_REGION_MAX)
        return -E2BIG;
    r = sha256(signer, identity->secret, strlen(identity->secret), secret);
    if (r < 0)
        return r;
    if (signer->has_key && !strncmp(signer->key_day, signer->date, DAY_CHARS) &&
        !strcmp(signer->key_region, identity->region) &&
        !memcmp(signer->key_secret, secret, sizeof secret))
        return 0;
    signer->has_key = false;
    r = make_key(signer, identity);
    if (r < 0)
        return r;
    memcpy(signer->key_day, signer->date, DAY_CHARS);
    memcpy(signer->key_region, identity->region, strlen(identity->region) + 1);
    memcpy(signer->key_secret, secret, sizeof secret);
    signer->has_key = true;
    return 0;
}

/* ---- the canonical request ------------------------------------------------------------------- */

static void put_date(int64_t wall_ns, char ret_date[DATE_TEXT])
{
    time_t seconds = (time_t)(wall_ns / FB_NS_PER_S);
    struct tm tm;

    /* An int64 of nanoseconds is a year of four digits. */
    gmtime_r(&seconds, &tm);
    strftime(ret_date, DATE_TEXT, "%Y%m%dT%H%M%SZ", &tm);
}

struct param {
    size_t name; /* where it is in signer->params */
    size_t name_len;
    size_t value;
    size_t value_len;
};

static int compare_bytes(const char *a, size_t a_len, const char *b, size_t b_len)
{
    int order = memcmp(a, b, a_len < b_len ? a_len : b_len);

    return order ? order : (a_len > b_len) - (a_len < b_len);
}

static bool param_before(const char *base, const struct param *a, const struct param *b)
{
    int order = compare_bytes(base + a->name, a->name_len, base + b->name, b->name_len);

    if (order == 0)
        order = compare_bytes(base + a->value, a->value_len, base + b->value, b->value_len);
    return order < 0;
}

static struct param encode_param(struct fb_s3_text *text, const struct fb_s3_pair *pair)
{
    const char *value = pair->value ? pair->value : "";
    struct param p = {.name = text->len};

    fb_s3_text_add_encoded(text, pair->name, strlen(pair->name), false);
    p.name_len = text->len - p.name;
    p.value = text->len;
    fb_s3_text_add_encoded(text, value, strlen(value), false);
    p.value_len = text->len - p.value;
    return p;
}

static void put_query(struct fb_s3_signer *signer, const struct fb_s3_request *request)
{
    struct param sorted[FB_S3_PAIRS_MAX];
    unsigned count = 0;

    fb_s3_text_clear(&signer->params);
    fb_s3_text_clear(&signer->query);
    for (unsigned i = 0; i < request->query_count; i++) {
        struct param p = encode_param(&signer->params, &request->query[i]);
        unsigned at = count++;

        if (!fb_s3_text_ok(&signer->params))
            break;
        for (; at > 0 && param_before(signer->params.data, &p, &sorted[at - 1]); at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = p;
    }
    if (!fb_s3_text_ok(&signer->params)) {
        signer->query.broken = true;
        return;
    }
    for (unsigned i = 0; i < count; i++) {
        if (i > 0)
            fb_s3_text_addc(&signer->query, '&');
        fb_s3_text_add(&signer->query, signer->params.data + sorted[i].name, sorted[i].name_len);
        fb_s3_text_addc(&signer->query, '=');
        fb_s3_text_add(&signer->query, signer->params.data + sorted[i].value, sorted[i].value_len);
    }
}

/* Without spaces at both ends, and with one for several in the middle. */
static void put_trimmed(struct fb_s3_text *text, const char *value)
{
    bool space = false, any = false;

    for (; *value; value++) {
        if (*value == ' ' || *value == '\t') {
            space = any;
            continue;
        }
        if (space)
            fb_s3_text_addc(text, ' ');
        fb_s3_text_addc(text, *value);
        space = false;
        any = true;
    }
}

/* Appends the headers to the canonical request, sorted, and their names to signer->names. */
static void put_headers(struct fb_s3_signer *signer, const struct fb_s3_identity *identity,
                        const struct fb_s3_request *request)
{
    struct fb_s3_pair fixed[FIXED_MAX] = {
        {"host", request->host},
        {"x-amz-content-sha256", request->payload_hash},
        {"x-amz-date", signer->date},
        {"x-amz-security-token", identity->session_token},
    };
    bool token = identity->session_token && *identity->session_token;
    unsigned fixed_count = token ? FIXED_MAX : FIXED_MAX - 1;
    const struct fb_s3_pair *sorted[FB_S3_PAIRS_MAX + FIXED_MAX];
    unsigned count = 0;

    for (unsigned i = 0; i < fixed_count + request->header_count; i++) {
        const struct fb_s3_pair *pair =
            i < fixed_count ? &fixed[i] : &request->headers[i - fixed_count];
        unsigned at = count++;

        for (; at > 0 && strcmp(pair->name, sorted[at - 1]->name) < 0; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = pair;
    }
    fb_s3_text_clear(&signer->names);
    for (unsigned i = 0; i < count; i++) {
        if (i > 0)
            fb_s3_text_addc(&signer->names, ';');
        fb_s3_text_adds(&signer->names, sorted[i]->name);
        fb_s3_text_adds(&signer->canonical, sorted[i]->name);
        fb_s3_text_addc(&signer->canonical, ':');
        put_trimmed(&signer->canonical, sorted[i]->value ? sorted[i]->value : "");
        fb_s3_text_addc(&signer->canonical, '\n');
    }
}

static void put_canonical(struct fb_s3_signer *signer, const struct fb_s3_identity *identity,
                          const struct fb_s3_request *request)
{
    struct fb_s3_text *text = &signer->canonical;

    fb_s3_text_clear(text);
    fb_s3_text_adds(text, request->method);
    fb_s3_text_addc(text, '\n');
    fb_s3_text_add(text, signer->path.data, signer->path.len);
    fb_s3_text_addc(text, '\n');
    fb_s3_text_add(text, signer->query.data, signer->query.len);
    fb_s3_text_addc(text, '\n');
    put_headers(signer, identity, request);
    fb_s3_text_addc(text, '\n');
    fb_s3_text_add(text, signer->names.data, signer->names.len);
    fb_s3_text_addc(text, '\n');
    fb_s3_text_adds(text, request->payload_hash);
}

/* ---- the signature --------------------------------------------------------------------------- */

/* The text to sign takes the place of the canonical request, which it has the digest of. */
static int put_signature(struct fb_s3_signer *signer, char ret_hex[FB_S3_SHA256_TEXT])
{
    struct fb_s3_text *text = &signer->canonical;
    char hex[FB_S3_SHA256_TEXT];
    uint8_t digest[DIGEST_BYTES];
    int r;

    if (!fb_s3_text_ok(text) || !fb_s3_text_ok(&signer->names))
        return -ENOMEM;
    r = fb_s3_sha256(signer, text->data, text->len, hex);
    if (r < 0)
        return r;
    fb_s3_text_clear(text);
    fb_s3_text_adds(text, ALGORITHM "\n");
    fb_s3_text_adds(text, signer->date);
    fb_s3_text_addc(text, '\n');
    fb_s3_text_add(text, signer->scope.data, signer->scope.len);
    fb_s3_text_addc(text, '\n');
    fb_s3_text_adds(text, hex);
    if (!fb_s3_text_ok(text) || !fb_s3_text_ok(&signer->scope))
        return -ENOMEM;
    r = hmac(signer, signer->key, sizeof signer->key, text->data, text->len, digest);
    if (r == 0)
        to_hex(digest, ret_hex);
    return r;
}

static int put_authorization(struct fb_s3_signer *signer, const struct fb_s3_identity *identity)
{
    struct fb_s3_text *text = &signer->authorization;
    char hex[FB_S3_SHA256_TEXT];
    int r;

    fb_s3_text_clear(&signer->scope);
    fb_s3_text_add(&signer->scope, signer->date, DAY_CHARS);
    fb_s3_text_addc(&signer->scope, '/');
    fb_s3_text_adds(&signer->scope, identity->region);
    fb_s3_text_adds(&signer->scope, "/s3/aws4_request");
    r = put_signature(signer, hex);
    if (r < 0)
        return r;
    fb_s3_text_adds(text, ALGORITHM " Credential=");
    fb_s3_text_adds(text, identity->access_key);
    fb_s3_text_addc(text, '/');
    fb_s3_text_add(text, signer->scope.data, signer->scope.len);
    fb_s3_text_adds(text, ",SignedHeaders=");
    fb_s3_text_add(text, signer->names.data, signer->names.len);
    fb_s3_text_adds(text, ",Signature=");
    fb_s3_text_adds(text, hex);
    return fb_s3_text_ok(text) ? 0 : -ENOMEM;
}

int fb_s3_sign(struct fb_s3_signer *signer, const struct fb_s3_identity *identity,
               const struct fb_s3_request *request, struct fb_s3_signed *ret_signed)
{
    int r;

    FB_ASSERT(request->path[0] == '/');
    if (request->query_count > FB_S3_PAIRS_MAX || request->header_count > FB_S3_PAIRS_MAX)
        return -E2BIG;
    put_date(request->wall_ns, signer->date);
    fb_s3_text_clear(&signer->path);
    fb_s3_text_add_encoded(&signer->path, request->path, strlen(request->path), true);
    put_query(signer, request);
    fb_s3_text_clear(&signer->authorization);
    if (!fb_s3_text_ok(&signer->path) || !fb_s3_text_ok(&signer->query))
        return -ENOMEM;
    if (identity) {
        r = want_key(signer, identity);
        if (r < 0)
            return r;
        put_canonical(signer, identity, request);
        r = put_authorization(signer, identity);
        if (r < 0)
            return r;
    }
    *ret_signed = (struct fb_s3_signed){
        .path = fb_s3_text_string(&signer->path),
        .query = fb_s3_text_string(&signer->query),
        .date = signer->date,
        .authorization = fb_s3_text_string(&signer->authorization),
    };
    return 0;
}
