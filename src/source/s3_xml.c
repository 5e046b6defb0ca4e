#include "source/s3_xml.h"

#include <errno.h>
#include <expat.h>
#include <string.h>

#include "core/mem.h"
#include "source/s3_key.h"
#include "source/s3_text.h"

/* The elements we know, each with the one it is found in. */
enum element {
    NOWHERE, /* outside the root element */
    UNKNOWN,
    ERROR,
    ERROR_CODE,
    ERROR_MESSAGE,
    ERROR_REGION,
    ERROR_ENDPOINT,
    ERROR_REQUEST_ID,
    ERROR_CLASS,
    LIST,
    LIST_TRUNCATED,
    LIST_TOKEN,
    LIST_ENCODING,
    LIST_OBJECT,
    OBJECT_KEY,
    OBJECT_SIZE,
    OBJECT_MTIME,
    OBJECT_ETAG,
    LIST_PREFIXES,
    PREFIXES_PREFIX,
    UPLOADS,
    UPLOADS_UPLOAD,
    UPLOAD_KEY,
    UPLOAD_ID,
    UPLOAD_BEGUN,
    INITIATE,
    INITIATE_ID,
    COMPLETE,
    COMPLETE_ETAG,
    COPY_OBJECT,
    COPY_OBJECT_ETAG,
    COPY_OBJECT_MTIME,
    COPY_PART,
    COPY_PART_ETAG,
    COPY_PART_MTIME,
    DELETE,
    DELETE_ERROR,
    DELETE_CODE,
    DELETE_MESSAGE,
    ELEMENTS,
};

static const struct known {
    const char *name;
    enum element parent;
    bool text; /* its text is wanted */
} known[ELEMENTS] = {
    [ERROR] = {"Error", NOWHERE, false},
    [ERROR_CODE] = {"Code", ERROR, true},
    [ERROR_MESSAGE] = {"Message", ERROR, true},
    [ERROR_REGION] = {"Region", ERROR, true},
    [ERROR_ENDPOINT] = {"Endpoint", ERROR, true},
    [ERROR_REQUEST_ID] = {"RequestId", ERROR, true},
    [ERROR_CLASS] = {"StorageClass", ERROR, true},
    [LIST] = {"ListBucketResult", NOWHERE, false},
    [LIST_TRUNCATED] = {"IsTruncated", LIST, true},
    [LIST_TOKEN] = {"NextContinuationToken", LIST, true},
    [LIST_ENCODING] = {"EncodingType", LIST, true},
    [LIST_OBJECT] = {"Contents", LIST, false},
    [OBJECT_KEY] = {"Key", LIST_OBJECT, true},
    [OBJECT_SIZE] = {"Size", LIST_OBJECT, true},
    [OBJECT_MTIME] = {"LastModified", LIST_OBJECT, true},
    [OBJECT_ETAG] = {"ETag", LIST_OBJECT, true},
    [LIST_PREFIXES] = {"CommonPrefixes", LIST, false},
    [PREFIXES_PREFIX] = {"Prefix", LIST_PREFIXES, true},
    [UPLOADS] = {"ListMultipartUploadsResult", NOWHERE, false},
    [UPLOADS_UPLOAD] = {"Upload", UPLOADS, false},
    [UPLOAD_KEY] = {"Key", UPLOADS_UPLOAD, true},
    [UPLOAD_ID] = {"UploadId", UPLOADS_UPLOAD, true},
    [UPLOAD_BEGUN] = {"Initiated", UPLOADS_UPLOAD, true},
    [INITIATE] = {"InitiateMultipartUploadResult", NOWHERE, false},
    [INITIATE_ID] = {"UploadId", INITIATE, true},
    [COMPLETE] = {"CompleteMultipartUploadResult", NOWHERE, false},
    [COMPLETE_ETAG] = {"ETag", COMPLETE, true},
    [COPY_OBJECT] = {"CopyObjectResult", NOWHERE, false},
    [COPY_OBJECT_ETAG] = {"ETag", COPY_OBJECT, true},
    [COPY_OBJECT_MTIME] = {"LastModified", COPY_OBJECT, true},
    [COPY_PART] = {"CopyPartResult", NOWHERE, false},
    [COPY_PART_ETAG] = {"ETag", COPY_PART, true},
    [COPY_PART_MTIME] = {"LastModified", COPY_PART, true},
    [DELETE] = {"DeleteResult", NOWHERE, false},
    [DELETE_ERROR] = {"Error", DELETE, false},
    [DELETE_CODE] = {"Code", DELETE_ERROR, true},
    [DELETE_MESSAGE] = {"Message", DELETE_ERROR, true},
};

#define REFERENCE_MAX 9 /* &#x0001f; and as long: what may be a control character */

struct fb_s3_xml {
    XML_Parser parser;
    fb_s3_xml_entry_fn *entry;
    void *arg;
    struct fb_s3_answer answer;
    int failed; /* what a handler stopped the parser for */
    uint64_t fed;
    bool begun; /* something but white space came */

    enum element path[FB_S3_XML_DEPTH_MAX];
    unsigned depth;
    bool wants_text;
    struct fb_s3_text text; /* of the innermost element */

    bool encoded;      /* names are taken as encoded */
    bool said_encoded; /* the listing says so */
    bool was_encoded;  /* decoding made a difference */
    bool bad_code;     /* decoding failed */
    struct fb_s3_text key;
    bool has_key, has_size, has_mtime;
    char etag[FB_S3_ETAG_MAX + 1];
    struct fb_s3_xml_entry object; /* the line at hand */

    char reference[REFERENCE_MAX]; /* a piece that may be &#...; */
    size_t reference_len;
};

/* ---- lines of a listing ---------------------------------------------------------------------- */

static int take_key(struct fb_s3_xml *xml, bool encoded)
{
    struct fb_s3_text *key = &xml->key;
    ssize_t len;

    fb_s3_text_clear(key);
    fb_s3_text_add(key, xml->text.data, xml->text.len);
    if (!fb_s3_text_ok(key))
        return -ENOMEM;
    if (encoded) {
        len = fb_s3_decode(key->data, key->len);
        if (len < 0) {
            /* Perhaps the server will not say that keys are encoded. */
            xml->bad_code = true;
            len = 0;
        }
        if ((size_t)len != xml->text.len || memcmp(key->data, xml->text.data, (size_t)len) != 0)
            xml->was_encoded = true;
        key->len = (size_t)len;
    }
    xml->has_key = true;
    return 0;
}

static void begin_line(struct fb_s3_xml *xml)
{
    memset(&xml->object, 0, sizeof xml->object);
    xml->has_key = xml->has_size = xml->has_mtime = false;
    xml->etag[0] = '\0';
    xml->answer.upload_id[0] = '\0';
}

static int end_line(struct fb_s3_xml *xml, bool prefix)
{
    struct fb_s3_xml_entry *entry = &xml->object;

    if (!xml->entry || !xml->has_key || (!prefix && (!xml->has_size || !xml->has_mtime)))
        return -EBADMSG;
    entry->prefix = prefix;
    entry->key = xml->key.data;
    entry->key_len = xml->key.len;
    entry->etag = xml->etag;
    return xml->entry(xml->arg, entry);
}

/* ---- elements -------------------------------------------------------------------------------- */

/* Cut where it is too long, and without control characters: for people. */
static int take_shown(struct fb_s3_xml *xml, char *to, size_t size)
{
    size_t len = xml->text.len < size - 1 ? xml->text.len : size - 1;

    for (size_t i = 0; i < len; i++) {
        char c = xml->text.data[i];

        to[i] = (unsigned char)c < ' ' || c == 0x7f ? ' ' : c;
    }
    to[len] = '\0';
    return 0;
}

/* What becomes part of a host name: plain, or not at all. */
static int take_name(struct fb_s3_xml *xml, char *to, size_t size)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:";

    if (xml->text.len < size && strspn(xml->text.data, plain) == xml->text.len)
        memcpy(to, xml->text.data, xml->text.len + 1);
    return 0;
}

/* For machines: whole, or not at all. */
static int take_whole(struct fb_s3_xml *xml, char *to, size_t size)
{
    if (xml->text.len >= size || memchr(xml->text.data, 0, xml->text.len))
        return -EBADMSG;
    memcpy(to, xml->text.data, xml->text.len + 1);
    return 0;
}

static int take_true(struct fb_s3_xml *xml, bool *ret)
{
    if (strcmp(xml->text.data, "true") != 0 && strcmp(xml->text.data, "false") != 0)
        return -EBADMSG;
    *ret = xml->text.data[0] == 't';
    return 0;
}

static int take_mtime(struct fb_s3_xml *xml, bool *ret_has, int64_t *ret_ns)
{
    int r = fb_s3_parse_time(xml->text.data, xml->text.len, ret_ns);

    *ret_has = r == 0;
    return r;
}

static int take_object(struct fb_s3_xml *xml, enum element element)
{
    struct fb_s3_text *text = &xml->text;
    int r;

    switch (element) {
    case OBJECT_KEY:
    case PREFIXES_PREFIX:
        return take_key(xml, xml->encoded);
    case UPLOAD_KEY:
        return take_key(xml, false);
    case UPLOAD_ID:
        return take_whole(xml, xml->answer.upload_id, sizeof xml->answer.upload_id);
    case OBJECT_SIZE:
        r = fb_s3_parse_size(text->data, text->len, &xml->object.size);
        xml->has_size = r == 0;
        return r;
    case UPLOAD_BEGUN:
    case OBJECT_MTIME:
        return take_mtime(xml, &xml->has_mtime, &xml->object.mtime_ns);
    case OBJECT_ETAG:
        return fb_s3_parse_etag(text->data, text->len, xml->etag);
    case LIST_OBJECT:
        return end_line(xml, false);
    case LIST_PREFIXES:
        return end_line(xml, true);
    case UPLOADS_UPLOAD:
        xml->has_size = true; /* it has none */
        xml->object.upload_id = xml->answer.upload_id;
        return *xml->answer.upload_id ? end_line(xml, false) : -EBADMSG;
    default:
        return 0;
    }
}

static int take_error(struct fb_s3_xml *xml, enum element element)
{
    struct fb_s3_answer *answer = &xml->answer;

    switch (element) {
    case DELETE_CODE:
        if (answer->errors++ > 0)
            return 0;
        return take_shown(xml, answer->code, sizeof answer->code);
    case DELETE_MESSAGE:
        if (answer->errors > 1)
            return 0;
        return take_shown(xml, answer->message, sizeof answer->message);
    case ERROR_CODE:
        return take_shown(xml, answer->code, sizeof answer->code);
    case ERROR_MESSAGE:
        return take_shown(xml, answer->message, sizeof answer->message);
    case ERROR_REGION:
        return take_name(xml, answer->region, sizeof answer->region);
    case ERROR_ENDPOINT:
        return take_name(xml, answer->endpoint, sizeof answer->endpoint);
    case ERROR_REQUEST_ID:
        return take_shown(xml, answer->request_id, sizeof answer->request_id);
    case ERROR_CLASS:
        return take_shown(xml, answer->storage_class, sizeof answer->storage_class);
    default:
        return 0;
    }
}

/* At the end of an element, with its text. */
static int take_element(struct fb_s3_xml *xml, enum element element)
{
    struct fb_s3_answer *answer = &xml->answer;

    switch (element) {
    case LIST_TRUNCATED:
        return take_true(xml, &answer->truncated);
    case LIST_TOKEN:
        return take_whole(xml, answer->token, sizeof answer->token);
    case LIST_ENCODING:
        xml->said_encoded = !strcmp(xml->text.data, "url");
        xml->encoded |= xml->said_encoded;
        return 0;
    case INITIATE_ID:
        return take_whole(xml, answer->upload_id, sizeof answer->upload_id);
    case COMPLETE_ETAG:
    case COPY_OBJECT_ETAG:
    case COPY_PART_ETAG:
        return fb_s3_parse_etag(xml->text.data, xml->text.len, answer->etag);
    case COPY_OBJECT_MTIME:
    case COPY_PART_MTIME:
        return take_mtime(xml, &answer->has_mtime, &answer->mtime_ns);
    default:
        return element < LIST || element >= DELETE ? take_error(xml, element)
                                                   : take_object(xml, element);
    }
}

static enum fb_s3_document document_of(enum element root)
{
    switch (root) {
    case ERROR:
        return FB_S3_DOC_ERROR;
    case LIST:
        return FB_S3_DOC_LIST;
    case INITIATE:
        return FB_S3_DOC_INITIATE;
    case COMPLETE:
        return FB_S3_DOC_COMPLETE;
    case COPY_OBJECT:
    case COPY_PART:
        return FB_S3_DOC_COPY;
    case DELETE:
        return FB_S3_DOC_DELETE;
    case UPLOADS:
        return FB_S3_DOC_UPLOADS;
    default:
        return FB_S3_DOC_NONE;
    }
}

/* ---- what expat calls ------------------------------------------------------------------------ */

static void stop(struct fb_s3_xml *xml, int why)
{
    if (why < 0 && xml->failed == 0) {
        xml->failed = why;
        XML_StopParser(xml->parser, XML_FALSE);
    }
}

static enum element find(enum element parent, const char *name)
{
    for (enum element e = UNKNOWN + 1; e < ELEMENTS; e++) {
        if (known[e].parent == parent && !strcmp(known[e].name, name))
            return e;
    }
    return UNKNOWN;
}

static void XMLCALL on_start(void *arg, const char *name, const char **attributes)
{
    struct fb_s3_xml *xml = arg;
    enum element element = find(xml->depth > 0 ? xml->path[xml->depth - 1] : NOWHERE, name);

    (void)attributes;
    if (xml->failed)
        return;
    if (xml->depth == FB_S3_XML_DEPTH_MAX || (xml->depth == 0 && element == UNKNOWN)) {
        stop(xml, -EBADMSG);
        return;
    }
    if (xml->depth == 0)
        xml->answer.document = document_of(element);
    xml->path[xml->depth++] = element;
    xml->wants_text = known[element].text;
    fb_s3_text_clear(&xml->text);
    if (element == LIST_OBJECT || element == LIST_PREFIXES || element == UPLOADS_UPLOAD)
        begin_line(xml);
}

static void XMLCALL on_text(void *arg, const char *bytes, int len)
{
    struct fb_s3_xml *xml = arg;

    if (xml->failed || !xml->wants_text)
        return;
    if (xml->text.len + (size_t)len > FB_S3_XML_TEXT_MAX) {
        stop(xml, -EBADMSG);
        return;
    }
    fb_s3_text_add(&xml->text, bytes, (size_t)len);
}

/* Control characters travel as U+FDD0 to U+FDEF, which are no characters; as UTF-8, EF B7 90 and
 * the following. */
static void put_controls_back(struct fb_s3_text *text)
{
    size_t to = 0;

    if (text->len == 0 || !memmem(text->data, text->len, "\xef\xb7", 2))
        return;
    for (size_t i = 0; i < text->len; i++) {
        unsigned char last = i + 2 < text->len ? (unsigned char)text->data[i + 2] : 0;

        if (!memcmp(text->data + i, "\xef\xb7", 2) && last >= 0x90 && last <= 0xaf) {
            text->data[to++] = (char)(last - 0x90);
            i += 2;
        } else {
            text->data[to++] = text->data[i];
        }
    }
    text->data[to] = '\0';
    text->len = to;
}

static void XMLCALL on_end(void *arg, const char *name)
{
    struct fb_s3_xml *xml = arg;
    enum element element;

    (void)name;
    if (xml->failed)
        return;
    element = xml->path[--xml->depth];
    fb_s3_text_add(&xml->text, "", 0); /* so that it has memory */
    if (!fb_s3_text_ok(&xml->text)) {
        stop(xml, -ENOMEM);
        return;
    }
    put_controls_back(&xml->text);
    stop(xml, take_element(xml, element));
    xml->wants_text = false;
    fb_s3_text_clear(&xml->text);
}

static void XMLCALL on_doctype(void *arg, const char *name, const char *system, const char *public,
                               int internal)
{
    (void)name;
    (void)system;
    (void)public;
    (void)internal;
    stop(arg, -EBADMSG);
}

/* ---- feeding --------------------------------------------------------------------------------- */

int fb_s3_xml_create(fb_s3_xml_entry_fn *entry, void *arg, struct fb_s3_xml **ret_xml)
{
    struct fb_s3_xml *xml = fb_alloc(sizeof *xml);

    if (!xml)
        return -ENOMEM;
    xml->entry = entry;
    xml->arg = arg;
    xml->parser = XML_ParserCreate("UTF-8");
    if (!xml->parser) {
        fb_s3_xml_destroy(xml);
        return -ENOMEM;
    }
    *ret_xml = xml;
    return 0;
}

void fb_s3_xml_destroy(struct fb_s3_xml *xml)
{
    if (!xml)
        return;
    if (xml->parser)
        XML_ParserFree(xml->parser);
    fb_s3_text_free(&xml->text);
    fb_s3_text_free(&xml->key);
    free(xml);
}

int fb_s3_xml_begin(struct fb_s3_xml *xml, bool encoded)
{
    if (!XML_ParserReset(xml->parser, "UTF-8"))
        return -ENOMEM;
    XML_SetUserData(xml->parser, xml);
    XML_SetElementHandler(xml->parser, on_start, on_end);
    XML_SetCharacterDataHandler(xml->parser, on_text);
    XML_SetStartDoctypeDeclHandler(xml->parser, on_doctype);
    memset(&xml->answer, 0, sizeof xml->answer);
    xml->failed = 0;
    xml->fed = 0;
    xml->begun = false;
    xml->depth = 0;
    xml->wants_text = false;
    xml->encoded = encoded;
    xml->said_encoded = false;
    xml->was_encoded = false;
    xml->bad_code = false;
    xml->reference_len = 0;
    fb_s3_text_clear(&xml->text);
    return 0;
}

static int parse(struct fb_s3_xml *xml, const char *bytes, size_t len, bool last)
{
    enum XML_Status status;

    if (xml->failed)
        return xml->failed;
    if (len == 0 && !last)
        return 0;
    status = XML_Parse(xml->parser, bytes, (int)len, last);
    xml->fed += len;
    if (status != XML_STATUS_OK && xml->failed == 0)
        xml->failed = XML_GetErrorCode(xml->parser) == XML_ERROR_NO_MEMORY ? -ENOMEM : -EBADMSG;
    /* Without this, one tag without an end would be looked at again and again as it grows. */
    if (xml->failed == 0 && !last &&
        xml->fed - (uint64_t)XML_GetCurrentByteIndex(xml->parser) > FB_S3_XML_MARKUP_MAX)
        xml->failed = -EBADMSG;
    return xml->failed;
}

/* The control character that the reference stands for, or 0: there is none, or XML has it, too. */
static unsigned control_of(const char *reference, size_t len)
{
    bool hex = len > 2 && reference[2] == 'x';
    unsigned value = 0;

    for (size_t i = hex ? 3 : 2; i + 1 < len; i++) {
        char c = reference[i];
        unsigned digit = c >= '0' && c <= '9'          ? (unsigned)(c - '0')
                         : hex && c >= 'a' && c <= 'f' ? (unsigned)(c - 'a' + 10)
                         : hex && c >= 'A' && c <= 'F' ? (unsigned)(c - 'A' + 10)
                                                       : 32;

        value = value * (hex ? 16 : 10) + digit;
        if (value >= 32)
            return 0;
    }
    return value == '\t' || value == '\n' || value == '\r' ? 0 : value;
}

/* Takes one byte of what may be a reference, and passes it on when that is decided. */
static int feed_reference(struct fb_s3_xml *xml, char c)
{
    char *reference = xml->reference;
    size_t len = xml->reference_len + 1;
    unsigned control = 0;

    reference[xml->reference_len] = c;
    xml->reference_len = len;
    if (c != ';' && len < REFERENCE_MAX && !(len == 2 && c != '#'))
        return 0;
    xml->reference_len = 0;
    if (c == ';')
        control = control_of(reference, len);
    if (control > 0)
        return parse(xml, (char[]){'\xef', '\xb7', (char)(0x90 + control)}, 3, false);
    return parse(xml, reference, len, false);
}

/* The next "&#", or an '&' at the very end; else the end. */
static const char *find_reference(const char *bytes, size_t len)
{
    const char *found = memmem(bytes, len, "&#", 2);

    if (found)
        return found;
    return len > 0 && bytes[len - 1] == '&' ? bytes + len - 1 : bytes + len;
}

int fb_s3_xml_feed(struct fb_s3_xml *xml, const char *bytes, size_t len)
{
    const char *end = bytes + len;

    while (!xml->begun && bytes < end && strchr(" \t\r\n", *bytes) && *bytes)
        bytes++;
    if (bytes < end)
        xml->begun = true;
    if (xml->failed == 0 && (size_t)(end - bytes) > FB_S3_XML_BODY_MAX - xml->fed)
        xml->failed = -EBADMSG;
    while (bytes < end && xml->failed == 0) {
        const char *reference;

        if (xml->reference_len > 0) {
            (void)feed_reference(xml, *bytes++);
            continue;
        }
        reference = find_reference(bytes, (size_t)(end - bytes));
        (void)parse(xml, bytes, (size_t)(reference - bytes), false);
        bytes = reference;
        if (bytes < end)
            (void)feed_reference(xml, *bytes++);
    }
    return xml->failed;
}

int fb_s3_xml_end(struct fb_s3_xml *xml)
{
    if (!xml->begun)
        return -ENODATA;
    (void)parse(xml, xml->reference, xml->reference_len, true);
    if (xml->failed)
        return xml->failed;
    if (xml->answer.truncated && !xml->answer.token[0])
        return -EBADMSG;
    if (xml->was_encoded && !xml->said_encoded)
        return FB_S3_XML_NOT_ENCODED;
    return xml->bad_code ? -EBADMSG : 0;
}

const struct fb_s3_answer *fb_s3_xml_answer(const struct fb_s3_xml *xml)
{
    return &xml->answer;
}
