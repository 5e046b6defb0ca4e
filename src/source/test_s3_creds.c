#include <cmocka.h>
#include <errno.h>
#include <string.h>
#include <time.h>

#include "core/clock.h"
#include "core/mem.h"
#include "core/test_dir.h"
#include "source/s3_ask.h"
#include "source/s3_creds.h"
#include "source/s3_creds_priv.h"
#include "source/source_s3.h"
#include "source/test_s3_server.h"

#define PATIENCE_NS (60 * FB_NS_PER_S)
#define RETRY_NS    (10 * FB_NS_PER_MS)
#define VARS_MAX    12

/* A home directory, a metadata service, and an environment that leads to them and nowhere else. */
struct rig {
    struct fb_test_dir home;
    struct fb_test_server server;
    const char *env[VARS_MAX + 1];
    char *texts[VARS_MAX + 1];
    unsigned count;
    struct fb_error err;

    /* What the service does. */
    _Atomic int status;     /* 0: as it should */
    _Atomic int generation; /* of the keys */
    _Atomic int lifetime_s;
    _Atomic int asked; /* how often keys were asked for */
    _Atomic bool late; /* those of the second time are new, and take a while */
    _Atomic bool down; /* it gives none any more */
};

static void set(struct rig *rig, const char *name, const char *value)
{
    assert_true(rig->count < VARS_MAX);
    rig->texts[rig->count] = fb_asprintf("%s=%s", name, value);
    assert_non_null(rig->texts[rig->count]);
    rig->env[rig->count] = rig->texts[rig->count];
    rig->count++;
}

static void put_keys(struct rig *rig, const char *token_name, char *body, size_t size)
{
    time_t expires = time(NULL) + atomic_load(&rig->lifetime_s);
    char date[32];
    struct tm tm;

    gmtime_r(&expires, &tm);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &tm);
    snprintf(body, size,
             "{\"Code\": \"Success\", \"AccessKeyId\": \"AK%d\", \"SecretAccessKey\": \"Sesame\", "
             "\"%s\": \"Talisman\", \"Expiration\": \"%s\"}",
             atomic_load(&rig->generation), token_name, date);
    atomic_fetch_add(&rig->asked, 1);
}

static int answer(void *arg, const char *request, char *body, size_t size)
{
    struct rig *rig = arg;
    int status = atomic_load(&rig->status);

    if (status)
        return status < 0 ? 0 : status;
    if (!strncmp(request, "HEAD /b/file ", 13)) {
        snprintf(rig->server.headers, sizeof rig->server.headers,
                 "ETag: \"%032u\"\r\nContent-Length: 5\r\n", 1u);
        return strcasestr(request, "Credential=AK1/") ? 200 : 403;
    }
    if (!strncmp(request, "GET /b", 6)) {
        snprintf(body, size,
                 "<ListBucketResult><EncodingType>url</EncodingType>"
                 "<IsTruncated>false</IsTruncated></ListBucketResult>");
        return 200;
    }
    if (atomic_load(&rig->down))
        return 500;
    if (atomic_load(&rig->late) && atomic_load(&rig->asked) == 1) {
        fb_sleep_ns(50 * FB_NS_PER_MS); /* time for a hasty answer */
        atomic_store(&rig->generation, 1);
        atomic_store(&rig->lifetime_s, 100000);
    }
    if (!strncmp(request, "PUT /latest/api/token ", 22)) {
        if (!strcasestr(request, "\r\nx-aws-ec2-metadata-token-ttl-seconds: "))
            return 400;
        snprintf(body, size, "session==");
        return 200;
    }
    if (!strncmp(request, "GET /latest/", 12) &&
        !strcasestr(request, "\r\nx-aws-ec2-metadata-token: session==\r\n"))
        return 401;
    if (!strncmp(request, "GET /latest/meta-data/iam/security-credentials/ ", 48)) {
        snprintf(body, size, "my-role\nother");
        return 200;
    }
    if (!strncmp(request, "GET /latest/meta-data/iam/security-credentials/my-role ", 55) ||
        (!strncmp(request, "GET /container ", 15) &&
         strcasestr(request, "\r\nauthorization: Bearer x\r\n"))) {
        put_keys(rig, "Token", body, size);
        return 200;
    }
    if (!strncmp(request, "POST / ", 7) &&
        strstr(request, "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&"
                        "RoleArn=arn%3Ar&RoleSessionName=forebay&WebIdentityToken=to.ken")) {
        atomic_fetch_add(&rig->asked, 1);
        snprintf(body, size,
                 "<AssumeRoleWithWebIdentityResponse xmlns=\"https://x/\">"
                 "<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>AK%d</AccessKeyId>"
                 "<SecretAccessKey>Sesame</SecretAccessKey><SessionToken>Talisman</SessionToken>"
                 "<Expiration>2200-01-01T00:00:00Z</Expiration></Credentials>"
                 "</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>",
                 atomic_load(&rig->generation));
        return 200;
    }
    return 404;
}

static int setup(void **state)
{
    struct rig *rig = fb_alloc(sizeof *rig);

    assert_non_null(rig);
    fb_test_dir_make(&rig->home);
    fb_test_server_start(&rig->server, answer, rig);
    atomic_store(&rig->lifetime_s, 100000);
    set(rig, "HOME", rig->home.path);
    set(rig, "AWS_EC2_METADATA_SERVICE_ENDPOINT", rig->server.url);
    set(rig, "AWS_METADATA_SERVICE_TIMEOUT", "60");
    *state = rig;
    return 0;
}

static int teardown(void **state)
{
    struct rig *rig = *state;

    fb_test_server_stop(&rig->server);
    fb_test_dir_remove(&rig->home);
    for (unsigned i = 0; i < rig->count; i++)
        free(rig->texts[i]);
    free(rig);
    return 0;
}

static int open_as(struct rig *rig, const char *profile, bool no_sign, struct fb_s3_creds **ret)
{
    const struct fb_s3_creds_config config = {
        .env = rig->env, .profile = profile, .no_sign = no_sign, .retry_ns = RETRY_NS};
    int r;

    memset(&rig->err, 0, sizeof rig->err);
    r = fb_s3_creds_open(&config, ret, &rig->err);
    assert_null(strstr(rig->err.text, "Sesame"));
    assert_null(strstr(rig->err.text, "Talisman"));
    return r;
}

/* Opens, and checks the key and where it is from. */
static struct fb_s3_creds *expect(struct rig *rig, const char *profile, const char *key,
                                  const char *place)
{
    const struct fb_s3_snapshot *snapshot;
    struct fb_s3_creds *creds;

    if (open_as(rig, profile, false, &creds) < 0)
        fail_msg("%s", rig->err.text);
    assert_int_equal(fb_s3_creds_get(creds, &snapshot, &rig->err), 0);
    assert_false(snapshot->anonymous);
    assert_string_equal(snapshot->access_key, key);
    assert_string_equal(snapshot->secret, "Sesame");
    assert_string_equal(snapshot->place, place);
    fb_s3_creds_put(snapshot);
    return creds;
}

static void refuse(struct rig *rig, const char *profile, const char *sentence)
{
    struct fb_s3_creds *creds;

    assert_true(open_as(rig, profile, false, &creds) < 0);
    if (!strstr(rig->err.text, sentence))
        fail_msg("\"%s\" has no \"%s\"", rig->err.text, sentence);
}

/* ---- the chain ------------------------------------------------------------------------------- */

static void test_environment(void **state)
{
    struct rig *rig = *state;

    set(rig, "AWS_ACCESS_KEY_ID", "AKENV");
    refuse(rig, NULL, "AWS_ACCESS_KEY_ID is set, but AWS_SECRET_ACCESS_KEY is not");
    set(rig, "AWS_SECRET_ACCESS_KEY", "Sesame");
    set(rig, "AWS_DEFAULT_REGION", "r1");
    fb_test_dir_write(&rig->home, ".aws/credentials",
                      "[default]\naws_access_key_id=AKD\naws_secret_access_key=Sesame\n"
                      "[p]\naws_access_key_id=AKP\naws_secret_access_key=Sesame\n");
    {
        struct fb_s3_creds *creds = expect(rig, NULL, "AKENV", "environment");

        assert_string_equal(fb_s3_creds_region(creds), "r1");
        assert_string_equal(fb_s3_creds_endpoint(creds), "");
        fb_s3_creds_close(creds);
    }
    fb_s3_creds_close(expect(rig, "p", "AKP", "profile"));
    set(rig, "AWS_SESSION_TOKEN", "Talisman\r\nX: y");
    refuse(rig, NULL, "characters that do not belong there");
}

static void test_profiles(void **state)
{
    struct rig *rig = *state;
    struct fb_s3_creds *creds;

    fb_test_dir_write(&rig->home, ".aws/credentials",
                      "[default]\naws_access_key_id=AKD\naws_secret_access_key=Sesame\n"
                      "[half]\naws_access_key_id=AKH\n"
                      "[bad]\naws_access_key_id=A\naws_secret_access_key=Sesame Sesame\n");
    fb_test_dir_write(&rig->home, ".aws/config",
                      "[default]\naws_access_key_id=AKC\nregion = r2\nendpoint_url = http://e\n"
                      "[profile role]\nrole_arn = arn:r\nsource_profile = default\n"
                      "[profile login]\nsso_session = s\n"
                      "[profile c]\naws_access_key_id=AKC\naws_secret_access_key=Sesame\n");
    creds = expect(rig, NULL, "AKD", "profile");
    assert_string_equal(fb_s3_creds_region(creds), "r2");
    assert_string_equal(fb_s3_creds_endpoint(creds), "http://e");
    fb_s3_creds_close(creds);
    fb_s3_creds_close(expect(rig, "c", "AKC", "profile"));
    refuse(rig, "half", "only one of aws_access_key_id and aws_secret_access_key");
    refuse(rig, "bad", "line 8: the value of aws_secret_access_key");
    refuse(rig, "role", "takes on a role (role_arn), which is not supported");
    refuse(rig, "login", "signs in through a browser (sso), which is not supported");
    refuse(rig, "nobody", "there is no profile \"nobody\" in ");
    set(rig, "AWS_PROFILE", "c");
    fb_s3_creds_close(expect(rig, NULL, "AKC", "profile"));
    fb_s3_creds_close(expect(rig, "default", "AKD", "profile"));
    set(rig, "AWS_CONFIG_FILE", "~/other");
    set(rig, "AWS_SHARED_CREDENTIALS_FILE", fb_test_dir_path(&rig->home, "creds"));
    fb_test_dir_write(&rig->home, "creds", "[c]\naws_access_key_id=AKO\n");
    fb_test_dir_write(&rig->home, "other", "[profile c]\naws_secret_access_key=Sesame\n");
    fb_s3_creds_close(expect(rig, NULL, "AKO", "profile"));
    fb_test_dir_write(&rig->home, "other", "");
    assert_int_equal(chmod(fb_test_dir_path(&rig->home, "other"), 0), 0);
    refuse(rig, NULL, "profile \"c\" has only one");
}

static void test_process(void **state)
{
    struct rig *rig = *state;

    fb_test_dir_write(
        &rig->home, ".aws/config",
        "[profile good]\ncredential_process = /bin/sh -c 'echo \"{\\\"Version\\\": 1, "
        "\\\"AccessKeyId\\\": \\\"$NAME\\\", \\\"SecretAccessKey\\\": \\\"Sesame\\\", "
        "\\\"Expiration\\\": \\\"2200-01-01T02:00:00+02:00\\\"}\"'\n"
        "[profile fails]\ncredential_process = /bin/sh -c 'echo Sesame >&2; exit 3'\n"
        "[profile prints]\ncredential_process = /bin/echo Sesame\n"
        "[profile quote]\ncredential_process = /bin/echo \"Sesame\n"
        "[profile none]\ncredential_process = /nowhere/Sesame\n");
    set(rig, "NAME", "AKP");
    fb_s3_creds_close(expect(rig, "good", "AKP", "profile"));
    refuse(rig, "fails", "the credential_process of profile \"fails\" failed");
    refuse(rig, "prints", "printed no credentials");
    refuse(rig, "quote", "cannot be used: Invalid argument");
    refuse(rig, "none", "cannot be used: No such file or directory");
}

static void test_container(void **state)
{
    struct rig *rig = *state;
    char url[128];

    snprintf(url, sizeof url, "%s/container", rig->server.url);
    set(rig, "AWS_CONTAINER_CREDENTIALS_FULL_URI", url);
    refuse(rig, NULL, "it answers with status 404");
    fb_test_dir_write(&rig->home, "token", "Bearer x\n");
    set(rig, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", fb_test_dir_path(&rig->home, "token"));
    fb_s3_creds_close(expect(rig, NULL, "AK0", "container"));
    fb_test_dir_write(&rig->home, "token", "Bearer x\r\nTalisman: y\n");
    refuse(rig, NULL, "is not a token");
    rig->env[3] = "AWS_CONTAINER_CREDENTIALS_FULL_URI=http://127.0.0.1.example.com/c";
    refuse(rig, NULL, "must be an https URL, or lead to this machine");
    rig->env[3] = "AWS_CONTAINER_CREDENTIALS_FULL_URI=file:///etc/passwd";
    refuse(rig, NULL, "must be an https URL, or lead to this machine");
}

static void test_web_identity(void **state)
{
    struct rig *rig = *state;

    fb_test_dir_write(&rig->home, "token", "to.ken\n");
    set(rig, "AWS_WEB_IDENTITY_TOKEN_FILE", fb_test_dir_path(&rig->home, "token"));
    refuse(rig, NULL, "AWS_WEB_IDENTITY_TOKEN_FILE is set, but AWS_ROLE_ARN is not");
    set(rig, "AWS_ROLE_ARN", "arn:r");
    set(rig, "AWS_ENDPOINT_URL_STS", rig->server.url);
    fb_s3_creds_close(expect(rig, NULL, "AK0", "web identity"));
    atomic_store(&rig->status, 403);
    refuse(rig, NULL, "it answers with status 403");
    atomic_store(&rig->status, 0);
    fb_test_dir_write(&rig->home, ".aws/config", "");
    rig->env[3] = "UNSET=1";
    fb_test_dir_write(&rig->home, ".aws/credentials",
                      "[w]\nrole_arn = arn:r\nweb_identity_token_file = /nowhere/token\n");
    refuse(rig, "w", "cannot read the token in /nowhere/token: No such file");
}

static void check_sts(const char *const *env, const char *region, const char *expected)
{
    const struct fb_s3_lookup lookup = {.env = env};
    struct fb_s3_text url = {0};

    fb_s3_sts_url(&lookup, region, &url);
    assert_string_equal(fb_s3_text_string(&url), expected);
    fb_s3_text_free(&url);
}

static void test_sts_url(void **state)
{
    const char *const none[] = {NULL}, *const china[] = {"AWS_REGION=cn-northwest-1", NULL};
    const char *const own[] = {"AWS_ENDPOINT_URL_STS=http://here/", NULL};

    (void)state;
    check_sts(none, "", "https://sts.amazonaws.com/");
    check_sts(none, "eu-west-3", "https://sts.eu-west-3.amazonaws.com/");
    check_sts(none, "cn-north-1", "https://sts.cn-north-1.amazonaws.com.cn/");
    check_sts(china, "", "https://sts.cn-northwest-1.amazonaws.com.cn/");
    check_sts(own, "cn-north-1", "http://here/");
}

static void test_instance(void **state)
{
    struct rig *rig = *state;

    fb_s3_creds_close(expect(rig, NULL, "AK0", "instance"));
    assert_int_equal(atomic_load(&rig->asked), 1);
    set(rig, "AWS_EC2_METADATA_DISABLED", "true");
    refuse(rig, NULL, "AWS_EC2_METADATA_DISABLED forbids the instance's metadata service");
    assert_int_equal(atomic_load(&rig->asked), 1);
}

/* One sentence that names every place. */
static void test_nothing(void **state)
{
    struct rig *rig = *state;
    const char *const names[] = {"no AWS credentials were found",
                                 "AWS_ACCESS_KEY_ID is not set",
                                 "AWS_WEB_IDENTITY_TOKEN_FILE is not set",
                                 "/.aws/credentials and ",
                                 "have no keys for profile \"default\"",
                                 "AWS_CONTAINER_CREDENTIALS_FULL_URI is not set",
                                 "has no role",
                                 "--no-sign-request"};
    struct fb_s3_creds *creds;
    const struct fb_s3_snapshot *snapshot;

    atomic_store(&rig->status, 404);
    for (size_t i = 0; i < FB_ARRAY_SIZE(names); i++)
        refuse(rig, NULL, names[i]);
    atomic_store(&rig->status, 500);
    refuse(rig, NULL, "the metadata service http://127.0.0.1:");
    atomic_store(&rig->status, -1);
    refuse(rig, NULL, "there is no metadata service at http://127.0.0.1:");
    assert_int_equal(open_as(rig, NULL, true, &creds), 0);
    assert_int_equal(fb_s3_creds_get(creds, &snapshot, &rig->err), 0);
    assert_true(snapshot->anonymous);
    assert_false(fb_s3_creds_refused(creds, snapshot));
    fb_s3_creds_put(snapshot);
    fb_s3_creds_put(NULL);
    fb_s3_creds_close(creds);
    fb_s3_creds_close(NULL);
}

/* ---- refreshing ------------------------------------------------------------------------------ */

/* Waits until the key is `key`. */
static void await(struct fb_s3_creds *creds, const char *key, bool refused)
{
    int64_t until_ns = fb_now_ns() + PATIENCE_NS;
    bool done = false;

    while (!done && fb_now_ns() < until_ns) {
        const struct fb_s3_snapshot *snapshot;

        if (fb_s3_creds_get(creds, &snapshot, NULL) == 0) {
            done = !strcmp(snapshot->access_key, key);
            if (!done && refused)
                (void)fb_s3_creds_refused(creds, snapshot);
            fb_s3_creds_put(snapshot);
        }
        fb_sleep_ns(5 * FB_NS_PER_MS);
    }
    assert_true(done);
}

/* New keys come before the old ones end, and who holds the old ones keeps them. */
static void test_expiry(void **state)
{
    struct rig *rig = *state;
    const struct fb_s3_snapshot *old;
    struct fb_s3_creds *creds;

    atomic_store(&rig->lifetime_s, 5);
    creds = expect(rig, NULL, "AK0", "instance");
    assert_int_equal(fb_s3_creds_get(creds, &old, &rig->err), 0);
    atomic_store(&rig->generation, 1);
    await(creds, "AK1", false);
    assert_string_equal(old->access_key, "AK0");
    assert_true(fb_s3_creds_refused(creds, old));
    fb_s3_creds_put(old);
    fb_s3_creds_close(creds);
}

/* Who comes when the keys have expired, while new ones are on their way, waits for them. */
static void test_expired_meanwhile(void **state)
{
    struct rig *rig = *state;
    struct fb_s3_config config = {
        .uri = "s3://b", .path_style = true, .endpoint = rig->server.url, .env = rig->env};
    struct fb_source_job *job = fb_source_job_new(FB_SOURCE_STAT, "file");
    struct fb_source *source;

    atomic_store(&rig->lifetime_s, -100);
    atomic_store(&rig->late, true);
    if (fb_source_s3_open(&config, &source, &rig->err) < 0)
        fail_msg("%s", rig->err.text);
    job->deadline_ns = fb_now_ns() + PATIENCE_NS;
    assert_int_equal(fb_source_wait(source, job), 0);
    assert_int_equal(job->attr.version.size, 5);
    fb_source_job_put(job);
    fb_source_close(source);
}

static int stat_root(struct fb_source *source)
{
    struct fb_source_job *job = fb_source_job_new(FB_SOURCE_STAT, "");
    int r;

    assert_non_null(job);
    job->deadline_ns = fb_now_ns() + PATIENCE_NS;
    r = fb_source_wait(source, job);
    fb_source_job_put(job);
    return r;
}

/* Keys that were good and cannot be renewed are an outage; those that never were are refused. */
static void test_expired_for_good(void **state)
{
    struct rig *rig = *state;
    struct fb_s3_config config = {
        .uri = "s3://b", .path_style = true, .endpoint = rig->server.url, .env = rig->env};
    int64_t until_ns = fb_now_ns() + PATIENCE_NS;
    struct fb_source *source;
    int r;

    atomic_store(&rig->lifetime_s, -100);
    assert_int_equal(fb_source_s3_open(&config, &source, &rig->err), -EACCES);
    assert_non_null(strstr(rig->err.text, "the bucket b refuses access"));
    atomic_store(&rig->lifetime_s, 4);
    if (fb_source_s3_open(&config, &source, &rig->err) < 0)
        fail_msg("%s", rig->err.text);
    atomic_store(&rig->down, true);
    while ((r = stat_root(source)) == 0 && fb_now_ns() < until_ns)
        fb_sleep_ns(20 * FB_NS_PER_MS);
    assert_int_equal(r, -EIO);
    fb_source_close(source);
}

/* While the service is down the old keys are used, to their end; then there is a sentence. */
static void test_service_down(void **state)
{
    struct rig *rig = *state;
    const struct fb_s3_snapshot *snapshot;
    struct fb_s3_creds *creds;
    int64_t until_ns = fb_now_ns() + PATIENCE_NS;
    int r;

    atomic_store(&rig->lifetime_s, 4);
    creds = expect(rig, NULL, "AK0", "instance");
    atomic_store(&rig->status, 500);
    do {
        memset(&rig->err, 0, sizeof rig->err);
        r = fb_s3_creds_get(creds, &snapshot, &rig->err);
        if (r == 0) {
            assert_string_equal(snapshot->access_key, "AK0");
            fb_s3_creds_put(snapshot);
        }
        fb_sleep_ns(20 * FB_NS_PER_MS);
    } while ((r == 0 || r == -EKEYEXPIRED) && fb_now_ns() < until_ns);
    assert_int_equal(r, -EACCES);
    assert_non_null(strstr(rig->err.text, "the credentials (instance) have expired"));
    atomic_store(&rig->generation, 2);
    atomic_store(&rig->lifetime_s, 100000);
    atomic_store(&rig->status, 0);
    await(creds, "AK2", false);
    fb_s3_creds_close(creds);
}

/* A refusal makes it ask again, although nothing is due. */
static void test_refused_service(void **state)
{
    struct rig *rig = *state;
    struct fb_s3_creds *creds = expect(rig, NULL, "AK0", "instance");

    atomic_store(&rig->generation, 7);
    await(creds, "AK7", true);
    fb_s3_creds_close(creds);
}

/* One refusal makes it ask once, also when it gets the same keys again. */
static void test_refused_once(void **state)
{
    struct rig *rig = *state;
    struct fb_s3_creds *creds = expect(rig, NULL, "AK0", "instance");
    const struct fb_s3_snapshot *snapshot;
    int64_t until_ns = fb_now_ns() + PATIENCE_NS;

    assert_int_equal(fb_s3_creds_get(creds, &snapshot, NULL), 0);
    assert_false(fb_s3_creds_refused(creds, snapshot));
    fb_s3_creds_put(snapshot);
    while (atomic_load(&rig->asked) < 2 && fb_now_ns() < until_ns)
        fb_sleep_ns(FB_NS_PER_MS);
    fb_sleep_ns(10 * RETRY_NS);
    assert_int_equal(atomic_load(&rig->asked), 2);
    fb_s3_creds_close(creds);
}

/* Files are read again when they changed and a request was refused, and only then. */
static void test_refused_file(void **state)
{
    struct rig *rig = *state;
    struct fb_s3_creds *creds;
    const struct fb_s3_snapshot *snapshot;

    fb_test_dir_write(&rig->home, ".aws/credentials",
                      "[default]\naws_access_key_id=OLD\naws_secret_access_key=Sesame\n");
    creds = expect(rig, NULL, "OLD", "profile");
    fb_test_dir_write(&rig->home, ".aws/credentials",
                      "[default]\naws_access_key_id=NEWER\naws_secret_access_key=Sesame\n");
    assert_int_equal(fb_s3_creds_get(creds, &snapshot, NULL), 0);
    assert_string_equal(snapshot->access_key, "OLD");
    fb_s3_creds_put(snapshot);
    await(creds, "NEWER", true);
    /* A file that makes no sense for a moment, as one half written, changes nothing. */
    fb_test_dir_write(&rig->home, ".aws/credentials", "[default]\naws_access_key_id=HALF\n");
    assert_int_equal(fb_s3_creds_get(creds, &snapshot, NULL), 0);
    assert_false(fb_s3_creds_refused(creds, snapshot));
    fb_s3_creds_put(snapshot);
    fb_test_dir_write(&rig->home, ".aws/credentials",
                      "[default]\naws_access_key_id=LAST\naws_secret_access_key=Sesame\n");
    await(creds, "LAST", true);
    fb_s3_creds_close(creds);
}

/* ---- what it is made of ---------------------------------------------------------------------- */

static void test_json(void **state)
{
    const char *bad[] = {
        "",
        "{",
        "[]",
        "null",
        "{}",
        "\"AccessKeyId\"",
        "{\"AccessKeyId\": \"A\"}",
        "{\"AccessKeyId\": 1, \"SecretAccessKey\": \"S\"}",
        "{\"AccessKeyId\": \"A B\", \"SecretAccessKey\": \"S\"}",
        "{\"AccessKeyId\": \"A\\n\", \"SecretAccessKey\": \"S\"}",
        "{\"AccessKeyId\": \"A\", \"SecretAccessKey\": \"\"}",
        "{\"AccessKeyId\": \"A\", \"SecretAccessKey\": \"S\", \"Expiration\": \"x\"}"};
    struct fb_s3_keys keys = {0};
    struct fb_s3_text text = {0};
    int64_t ns;

    (void)state;
    for (size_t i = 0; i < FB_ARRAY_SIZE(bad); i++) {
        fb_s3_text_clear(&text);
        fb_s3_text_adds(&text, bad[i]);
        assert_int_equal(fb_s3_keys_from_json(&text, "Token", &keys), -EBADMSG);
    }
    fb_s3_text_clear(&text);
    fb_s3_text_adds(&text, "{\"AccessKeyId\": \"A\", \"SecretAccessKey\": \"S\"}");
    assert_int_equal(fb_s3_keys_from_json(&text, "Token", &keys), 0);
    assert_true(keys.expires_ns == FB_NEVER_NS);
    fb_s3_text_clear(&text);
    fb_s3_text_adds(&text, "<!DOCTYPE a [<!ENTITY b \"c\">]><a><AccessKeyId>&b;</AccessKeyId></a>");
    assert_int_equal(fb_s3_keys_from_sts(&text, &keys), -EBADMSG);
    fb_s3_text_free(&text);
    fb_s3_keys_free(&keys);
    assert_int_equal(fb_s3_parse_expiry("1970-01-02T01:30:00+01:30", 25, &ns), 0);
    assert_int_equal(ns, 86400 * FB_NS_PER_S);
    assert_int_equal(fb_s3_parse_expiry("1970-01-01T23:00:00.5-01:00", 27, &ns), 0);
    assert_int_equal(ns, 86400 * FB_NS_PER_S);
    assert_int_equal(fb_s3_parse_expiry("1970-01-02T00:00:00", 19, &ns), -EBADMSG);
    assert_int_equal(fb_s3_parse_expiry("+01:00", 6, &ns), -EBADMSG);
}

/* A zombie, whose parent takes its time, counts as ended. */
static bool has_ended(const char *pid)
{
    char path[64], text[256];
    FILE *f;
    bool ended;

    snprintf(path, sizeof path, "/proc/%.*s/stat", (int)strcspn(pid, "\n"), pid);
    f = fopen(path, "re");
    if (!f)
        return true;
    ended = !fgets(text, sizeof text, f) || strstr(text, ") Z ");
    fclose(f);
    return ended;
}

/* What a program started is ended with it. */
static void test_program_group(void **state)
{
    struct fb_s3_text out = {0};
    int64_t until_ns = fb_now_ns() + PATIENCE_NS;

    (void)state;
    assert_int_equal(
        fb_s3_ask_program("sh -c 'sleep 1000 & echo $!; wait'", NULL, 2000, NULL, &out),
        -ETIMEDOUT);
    assert_true(out.len > 0);
    while (!has_ended(out.data) && fb_now_ns() < until_ns)
        fb_sleep_ns(FB_NS_PER_MS);
    assert_true(has_ended(out.data));
    fb_s3_text_free(&out);
}

static void test_programs(void **state)
{
    const char *const env[] = {"A=1 2", NULL};
    const _Atomic bool cancelled = true;
    struct fb_s3_text out = {0};
    int64_t start_ns = fb_now_ns();

    (void)state;
    assert_int_equal(fb_s3_ask_program("sh -c 'printf \"<%s>\" \"$@\"' x a\\ b \"c'\\\"\" d\"e f\"",
                                       NULL, 30000, NULL, &out),
                     0);
    assert_string_equal(out.data, "<a b><c'\"><de f>");
    assert_int_equal(fb_s3_ask_program("sh -c 'printf %s \"$A\"'", env, 30000, NULL, &out), 0);
    assert_string_equal(out.data, "1 2");
    assert_int_equal(fb_s3_ask_program("sh -c 'cat; exec >&-; exit 0'", NULL, 30000, NULL, &out),
                     0);
    assert_int_equal(fb_s3_ask_program("sh -c 'exit 1'", NULL, 30000, NULL, &out), -ECHILD);
    assert_int_equal(fb_s3_ask_program("sh -c 'kill -9 $$'", NULL, 30000, NULL, &out), -ECHILD);
    assert_int_equal(fb_s3_ask_program("sh -c 'yes'", NULL, 30000, NULL, &out), -EMSGSIZE);
    assert_int_equal(fb_s3_ask_program("sleep 1000", NULL, 50, NULL, &out), -ETIMEDOUT);
    assert_int_equal(fb_s3_ask_program("sh -c 'exec >&-; sleep 1000'", NULL, 50, NULL, &out),
                     -ETIMEDOUT);
    assert_int_equal(fb_s3_ask_program("sh -c 'sleep 1000 & sleep 1000'", NULL, 50, NULL, &out),
                     -ETIMEDOUT);
    assert_int_equal(fb_s3_ask_program("sleep 1000", NULL, 1000000, &cancelled, &out), -ECANCELED);
    assert_int_equal(fb_s3_ask_program("  ", NULL, 50, NULL, &out), -EINVAL);
    assert_int_equal(fb_s3_ask_program("a 'b", NULL, 50, NULL, &out), -EINVAL);
    assert_true(fb_now_ns() - start_ns < 900 * FB_NS_PER_S);
    fb_s3_text_free(&out);
}

static int flood(void *arg, const char *request, char *body, size_t size)
{
    (void)request;
    memset(body, 'x', size - 1);
    body[size - 1] = '\0';
    return *(int *)arg;
}

static void test_asking(void **state)
{
    const _Atomic bool cancelled = true;
    struct fb_s3_ask ask = {.method = "GET", .timeout_ms = 30000};
    struct fb_s3_text body = {0};
    struct fb_test_server server;
    int status = 200;

    (void)state;
    fb_test_server_start(&server, flood, &status);
    ask.url = server.url;
    assert_int_equal(fb_s3_ask(&ask, &body), 200);
    assert_int_equal(body.len, 65535);
    status = 302;
    assert_int_equal(fb_s3_ask(&ask, &body), 302);
    status = 0;
    assert_int_equal(fb_s3_ask(&ask, &body), -EIO);
    ask.cancel = &cancelled;
    assert_int_equal(fb_s3_ask(&ask, &body), -ECANCELED);
    ask.cancel = NULL;
    fb_test_server_stop(&server);
    assert_int_equal(fb_s3_ask(&ask, &body), -ECONNREFUSED);
    ask.url = "file:///etc/passwd";
    assert_int_equal(fb_s3_ask(&ask, &body), -EINVAL);
    fb_s3_text_free(&body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_environment, setup, teardown),
        cmocka_unit_test_setup_teardown(test_profiles, setup, teardown),
        cmocka_unit_test_setup_teardown(test_process, setup, teardown),
        cmocka_unit_test_setup_teardown(test_container, setup, teardown),
        cmocka_unit_test_setup_teardown(test_web_identity, setup, teardown),
        cmocka_unit_test(test_sts_url),
        cmocka_unit_test_setup_teardown(test_instance, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_expiry, setup, teardown),
        cmocka_unit_test_setup_teardown(test_expired_meanwhile, setup, teardown),
        cmocka_unit_test_setup_teardown(test_expired_for_good, setup, teardown),
        cmocka_unit_test_setup_teardown(test_service_down, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused_service, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused_file, setup, teardown),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_programs),
        cmocka_unit_test(test_program_group),
        cmocka_unit_test(test_asking),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
