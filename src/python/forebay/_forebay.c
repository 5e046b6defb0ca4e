/*
 * The extension behind the Python package `forebay`: libforebay's objects as Python's.
 *
 *     Connection ── open ──► Handle ── acquire ──► View (buffer protocol)
 *
 * What a file object is beyond that (a position, io.RawIOBase) is written in Python: __init__.py.
 *
 * The GIL is released around everything that may wait. So a handle can be closed while another
 * thread reads: then the last reader closes it. A view holds its pin until it is gone, and every
 * buffer made of it (numpy's, torch's, a memoryview) holds the view.
 *
 * Limited API: one file for CPython 3.11 and later.
 */
#include <Python.h>
#include <errno.h>
#include <stdbool.h>

#include "forebay.h"

#define GROW_BYTES 65536 /* beyond the size that a file which is read directly told */

struct connection {
    PyObject_HEAD struct forebay *fb;
};

struct handle {
    PyObject_HEAD struct forebay_file *file; /* NULL: closed */
    Py_ssize_t readers;                      /* threads that are reading; the GIL guards it */
    bool closing;
    PyObject *path;
};

struct view {
    PyObject_HEAD struct forebay_pin *pin; /* NULL: released */
    const void *data;
    Py_ssize_t length;
    Py_ssize_t exports; /* buffers that are out */
};

struct state {
    PyTypeObject *handle;
    PyTypeObject *view;
};

/* ---- helpers ---- */

static PyObject *os_error(PyObject *path)
{
    return PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, path);
}

static void *new_object(PyTypeObject *type)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);

    return alloc(type, 0);
}

static void free_object(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

    release(self);
    Py_DECREF(type);
}

/* ---- views ---- */

static void view_dealloc(PyObject *self)
{
    struct view *v = (struct view *)self;

    forebay_release(v->pin);
    free_object(self);
}

static bool view_is_open(const struct view *v)
{
    if (!v->pin)
        PyErr_SetString(PyExc_ValueError, "the view was released");
    return v->pin != NULL;
}

static int view_getbuffer(PyObject *self, Py_buffer *buffer, int flags)
{
    struct view *v = (struct view *)self;

    if (!view_is_open(v) ||
        PyBuffer_FillInfo(buffer, self, (void *)(uintptr_t)v->data, v->length, 1, flags) != 0) {
        buffer->obj = NULL;
        return -1;
    }
    v->exports++;
    return 0;
}

static void view_releasebuffer(PyObject *self, Py_buffer *buffer)
{
    (void)buffer;
    ((struct view *)self)->exports--;
}

static PyObject *view_release(PyObject *self, PyObject *ignored)
{
    struct view *v = (struct view *)self;

    (void)ignored;
    if (v->exports > 0) {
        PyErr_Format(PyExc_BufferError, "%zd buffers of this view are still in use", v->exports);
        return NULL;
    }
    forebay_release(v->pin);
    v->pin = NULL;
    v->data = NULL;
    v->length = 0;
    Py_RETURN_NONE;
}

static PyObject *view_enter(PyObject *self, PyObject *ignored)
{
    (void)ignored;
    if (!view_is_open((struct view *)self))
        return NULL;
    Py_INCREF(self);
    return self;
}

static PyObject *view_exit(PyObject *self, PyObject *args)
{
    (void)args;
    return view_release(self, NULL);
}

static Py_ssize_t view_length(PyObject *self)
{
    return ((struct view *)self)->length;
}

static PyObject *view_is_zero_copy(PyObject *self, void *closure)
{
    const struct view *v = (struct view *)self;

    (void)closure;
    return view_is_open(v) ? PyBool_FromLong(forebay_pin_is_shared(v->pin)) : NULL;
}

static PyMethodDef view_methods[] = {
    {"release", view_release, METH_NOARGS,
     "Gives the bytes back now, instead of when the view is gone. BufferError while an array or a\n"
     "memoryview still uses them."},
    {"__enter__", view_enter, METH_NOARGS, NULL},
    {"__exit__", view_exit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef view_attributes[] = {
    {"is_zero_copy", view_is_zero_copy, NULL,
     "True: these are the cache's own bytes. False: they had to be copied, since they lie in\n"
     "several blocks, not in the cache's memory, or too much of it is held already.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot view_slots[] = {
    {Py_tp_dealloc, (void *)view_dealloc},
    {Py_tp_methods, view_methods},
    {Py_tp_getset, view_attributes},
    {Py_sq_length, (void *)view_length},
    {Py_bf_getbuffer, (void *)view_getbuffer},
    {Py_bf_releasebuffer, (void *)view_releasebuffer},
    {Py_tp_doc,
     "Bytes of a file, read-only, through the buffer protocol: memoryview(view),\n"
     "numpy.frombuffer(view, dtype=...), torch.frombuffer(view, dtype=...).\n"
     "\n"
     "They stay as they are while the view, or anything made of it, lives: also when the cache\n"
     "evicts them, the daemon ends, or the file changes. A view keeps some megabytes of the\n"
     "cache's memory from being reused; do not keep thousands of them."},
    {0, NULL},
};

static PyType_Spec view_spec = {
    .name = "forebay.View",
    .basicsize = sizeof(struct view),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = view_slots,
};

/* ---- handles ---- */

/* With the GIL, before and after a call without it. False: ValueError is set. */
static bool begin(struct handle *h)
{
    if (!h->file || h->closing) {
        PyErr_SetString(PyExc_ValueError, "I/O operation on closed file");
        return false;
    }
    h->readers++;
    return true;
}

static void close_now(struct handle *h)
{
    struct forebay_file *file = h->file;

    h->file = NULL;
    Py_BEGIN_ALLOW_THREADS forebay_close(file);
    Py_END_ALLOW_THREADS
}

/* Keeps errno. */
static void end(struct handle *h)
{
    int saved = errno;

    if (--h->readers == 0 && h->closing)
        close_now(h);
    errno = saved;
}

static ssize_t pread_unlocked(struct handle *h, void *to, Py_ssize_t length, off_t offset)
{
    ssize_t n;

    Py_BEGIN_ALLOW_THREADS n = forebay_pread(h->file, to, (size_t)length, offset);
    Py_END_ALLOW_THREADS return n;
}

/* Fewer bytes only where the file ends. */
static PyObject *read_bytes(struct handle *h, Py_ssize_t length, off_t offset)
{
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, length), *fewer;
    ssize_t n;

    if (!bytes)
        return NULL;
    n = pread_unlocked(h, PyBytes_AsString(bytes), length, offset);
    if (n == length)
        return bytes;
    fewer = n < 0 ? os_error(h->path) : PyBytes_FromStringAndSize(PyBytes_AsString(bytes), n);
    Py_DECREF(bytes);
    return fewer;
}

/* What is left of a file from an offset on, as far as its size is known. */
static Py_ssize_t left_of(const struct handle *h, off_t offset)
{
    off_t size = forebay_size(h->file);

    return offset >= 0 && offset < size ? (Py_ssize_t)(size - offset) : 0;
}

static PyObject *handle_pread(PyObject *self, PyObject *args)
{
    struct handle *h = (struct handle *)self;
    Py_ssize_t length;
    long long offset;
    PyObject *bytes;

    if (!PyArg_ParseTuple(args, "nL:pread", &length, &offset))
        return NULL;
    if (length < 0) {
        PyErr_SetString(PyExc_ValueError, "a negative number of bytes");
        return NULL;
    }
    if (!begin(h))
        return NULL;
    /* A reader who asks for a gigabyte of a small file means all of it. */
    if (length > left_of(h, offset) && offset >= 0 && forebay_is_cached(h->file))
        length = left_of(h, offset);
    bytes = read_bytes(h, length, offset);
    end(h);
    return bytes;
}

/* To the end, wherever that is: the size of a file that is read directly may be from before, or,
 * below /proc, 0. */
static PyObject *read_all(struct handle *h, off_t offset)
{
    PyObject *bytes = read_bytes(h, left_of(h, offset), offset);

    while (bytes && !forebay_is_cached(h->file)) {
        PyObject *more = read_bytes(h, GROW_BYTES, offset + PyBytes_Size(bytes));
        bool is_end = more && PyBytes_Size(more) == 0;

        if (!more) {
            Py_DECREF(bytes);
            return NULL;
        }
        PyBytes_ConcatAndDel(&bytes, more);
        if (is_end)
            break;
    }
    return bytes;
}

static PyObject *handle_readall(PyObject *self, PyObject *args)
{
    struct handle *h = (struct handle *)self;
    PyObject *bytes;
    long long offset;

    if (!PyArg_ParseTuple(args, "L:readall", &offset) || !begin(h))
        return NULL;
    bytes = read_all(h, offset);
    end(h);
    return bytes;
}

static PyObject *handle_pread_into(PyObject *self, PyObject *args)
{
    struct handle *h = (struct handle *)self;
    Py_buffer buffer;
    long long offset;
    ssize_t n;

    if (!PyArg_ParseTuple(args, "w*L:pread_into", &buffer, &offset))
        return NULL;
    if (!begin(h)) {
        PyBuffer_Release(&buffer);
        return NULL;
    }
    n = pread_unlocked(h, buffer.buf, buffer.len, offset);
    end(h);
    if (n < 0)
        os_error(h->path);
    PyBuffer_Release(&buffer);
    return n < 0 ? NULL : PyLong_FromSsize_t(n);
}

static PyObject *handle_acquire(PyObject *self, PyObject *args)
{
    const struct state *state = PyModule_GetState(PyType_GetModule(Py_TYPE(self)));
    struct handle *h = (struct handle *)self;
    struct forebay_pin *pin;
    Py_ssize_t length;
    long long offset;
    const void *data;
    struct view *v;
    size_t got;

    if (!PyArg_ParseTuple(args, "Ln:acquire", &offset, &length) || !begin(h))
        return NULL;
    got = length < 0 ? SIZE_MAX : (size_t)length;
    Py_BEGIN_ALLOW_THREADS data = forebay_acquire(h->file, offset, &got, &pin);
    Py_END_ALLOW_THREADS end(h);
    if (!data)
        return os_error(h->path);
    v = new_object(state->view);
    if (!v) {
        forebay_release(pin);
        return NULL;
    }
    v->pin = pin;
    v->data = data;
    v->length = (Py_ssize_t)got;
    return (PyObject *)v;
}

static long long ns_of(const struct timespec *t)
{
    return t->tv_sec * 1000000000LL + t->tv_nsec;
}

static PyObject *handle_stat(PyObject *self, PyObject *ignored)
{
    struct handle *h = (struct handle *)self;
    struct stat st;

    (void)ignored;
    if (!begin(h))
        return NULL;
    (void)forebay_stat(h->file, &st);
    end(h);
    return Py_BuildValue("(IKKKIILLLLLL)", st.st_mode, (unsigned long long)st.st_ino,
                         (unsigned long long)st.st_dev, (unsigned long long)st.st_nlink, st.st_uid,
                         st.st_gid, (long long)st.st_size, ns_of(&st.st_atim), ns_of(&st.st_mtim),
                         ns_of(&st.st_ctim), (long long)st.st_blksize, (long long)st.st_blocks);
}

static PyObject *handle_close(PyObject *self, PyObject *ignored)
{
    struct handle *h = (struct handle *)self;

    (void)ignored;
    h->closing = true;
    if (h->file && h->readers == 0)
        close_now(h);
    Py_RETURN_NONE;
}

static void handle_dealloc(PyObject *self)
{
    struct handle *h = (struct handle *)self;

    forebay_close(h->file);
    Py_XDECREF(h->path);
    free_object(self);
}

static PyObject *handle_number(PyObject *self, void *closure)
{
    struct handle *h = (struct handle *)self;
    PyObject *number;

    if (!begin(h))
        return NULL;
    switch (*(const char *)closure) {
    case 's':
        number = PyLong_FromLongLong(forebay_size(h->file));
        break;
    case 'b':
        number = PyLong_FromSize_t(forebay_block_size(h->file));
        break;
    default:
        number = PyBool_FromLong(forebay_is_cached(h->file));
        break;
    }
    end(h);
    return number;
}

static PyMethodDef handle_methods[] = {
    {"pread", handle_pread, METH_VARARGS, "pread(length, offset) -> bytes"},
    {"pread_into", handle_pread_into, METH_VARARGS, "pread_into(buffer, offset) -> int"},
    {"readall", handle_readall, METH_VARARGS, "readall(offset) -> bytes"},
    {"acquire", handle_acquire, METH_VARARGS, "acquire(offset, length or -1) -> View"},
    {"stat", handle_stat, METH_NOARGS,
     "stat() -> (mode, ino, dev, nlink, uid, gid, size, atime_ns, mtime_ns, ctime_ns, blksize, "
     "blocks)"},
    {"close", handle_close, METH_NOARGS, "close()"},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef handle_attributes[] = {
    {"size", handle_number, NULL, "Bytes, when it was opened.", "s"},
    {"block_size", handle_number, NULL, "Bytes in a block; 0: not cached.", "b"},
    {"is_cached", handle_number, NULL, "Whether it was opened through the cache.", "c"},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot handle_slots[] = {
    {Py_tp_dealloc, (void *)handle_dealloc},
    {Py_tp_methods, handle_methods},
    {Py_tp_getset, handle_attributes},
    {Py_tp_doc, "A file that is open, without a position."},
    {0, NULL},
};

static PyType_Spec handle_spec = {
    .name = "forebay._forebay.Handle",
    .basicsize = sizeof(struct handle),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = handle_slots,
};

/* ---- connections ---- */

static PyObject *connection_new(PyTypeObject *type, PyObject *args, PyObject *words)
{
    static char *names[] = {"socket", NULL};
    PyObject *given = Py_None, *socket = NULL;
    struct connection *c;

    if (!PyArg_ParseTupleAndKeywords(args, words, "|O:Connection", names, &given) ||
        (given != Py_None && !PyUnicode_FSConverter(given, &socket)))
        return NULL;
    c = new_object(type);
    if (c) {
        c->fb = forebay_connect(socket ? PyBytes_AsString(socket) : NULL);
        if (!c->fb) {
            os_error(given);
            Py_DECREF(c);
            c = NULL;
        }
    }
    Py_XDECREF(socket);
    return (PyObject *)c;
}

static void connection_dealloc(PyObject *self)
{
    forebay_disconnect(((struct connection *)self)->fb);
    free_object(self);
}

static PyObject *connection_open(PyObject *self, PyObject *path)
{
    const struct state *state = PyModule_GetState(PyType_GetModule(Py_TYPE(self)));
    struct forebay_file *file;
    struct handle *h;
    PyObject *name;
    const char *text;

    if (!PyUnicode_FSConverter(path, &name))
        return NULL;
    text = PyBytes_AsString(name);
    Py_BEGIN_ALLOW_THREADS file = forebay_open(((struct connection *)self)->fb, text);
    Py_END_ALLOW_THREADS Py_DECREF(name);
    if (!file)
        return os_error(path);
    h = new_object(state->handle);
    if (!h) {
        forebay_close(file);
        return NULL;
    }
    h->file = file;
    Py_INCREF(path);
    h->path = path;
    return (PyObject *)h;
}

static PyObject *connection_read(PyObject *self, PyObject *path)
{
    PyObject *handle = connection_open(self, path);
    PyObject *bytes = handle ? read_all((struct handle *)handle, 0) : NULL;

    Py_XDECREF(handle);
    return bytes;
}

static PyMethodDef connection_methods[] = {
    {"open", connection_open, METH_O, "open(path) -> Handle"},
    {"read", connection_read, METH_O, "read(path) -> bytes"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot connection_slots[] = {
    {Py_tp_new, (void *)connection_new},
    {Py_tp_dealloc, (void *)connection_dealloc},
    {Py_tp_methods, connection_methods},
    {Py_tp_doc, "Connection(socket=None)"},
    {0, NULL},
};

static PyType_Spec connection_spec = {
    .name = "forebay._forebay.Connection",
    .basicsize = sizeof(struct connection),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = connection_slots,
};

/* ---- the module ---- */

static int add_type(PyObject *module, const char *name, PyType_Spec *spec, PyTypeObject **ret_type)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);

    if (!type)
        return -1;
    if (ret_type) {
        Py_INCREF(type);
        *ret_type = (PyTypeObject *)type;
    }
    if (PyModule_AddObject(module, name, type) == 0)
        return 0;
    Py_DECREF(type);
    return -1;
}

static int module_exec(PyObject *module)
{
    struct state *state = PyModule_GetState(module);

    if (add_type(module, "View", &view_spec, &state->view) != 0 ||
        add_type(module, "Handle", &handle_spec, &state->handle) != 0 ||
        add_type(module, "Connection", &connection_spec, NULL) != 0)
        return -1;
    return PyModule_AddStringConstant(module, "version", forebay_version());
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    struct state *state = PyModule_GetState(module);

    Py_VISIT(state->handle);
    Py_VISIT(state->view);
    return 0;
}

static int module_clear(PyObject *module)
{
    struct state *state = PyModule_GetState(module);

    Py_CLEAR(state->handle);
    Py_CLEAR(state->view);
    return 0;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, (void *)module_exec},
    {0, NULL},
};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,   .m_name = "_forebay",          .m_size = sizeof(struct state),
    .m_slots = module_slots, .m_traverse = module_traverse, .m_clear = module_clear,
};

PyMODINIT_FUNC PyInit__forebay(void);

PyMODINIT_FUNC PyInit__forebay(void)
{
    return PyModuleDef_Init(&module_def);
}
