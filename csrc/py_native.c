/* amfs._native: the only file that knows Python. Buffers in, GIL off, one call, values out. Contracts: amfs/_native.pyi.
 *
 * One part per thing: helpers, XXH64, (Launcher), (Mover), the module. Stable ABI of Python 3.11, multi-phase initialisation.
 */
#include <Python.h>

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "mover.h"
#include "xxh64.h"

/* ---------------------------------------------------------------------------------------------------------------- helpers */

typedef struct {
    PyTypeObject *launcher_type;
    PyTypeObject *mover_type;
} module_state;

/* The UTF-8 (with surrogate escapes, as file names have them) of a str. A new reference to bytes, or NULL with an error set. */
static PyObject *name_bytes(PyObject *text)
{
    if (!PyUnicode_Check(text)) {
        PyErr_Format(PyExc_TypeError, "expected str, not %R", Py_TYPE(text));
        return NULL;
    }
    return PyUnicode_AsEncodedString(text, "utf-8", "surrogateescape");
}

/* ------------------------------------------------------------------------------------------------------------------ XXH64 */

/* Hash of a str or any contiguous buffer. Returns 0, or -1 with an error set. */
static int hash_object(PyObject *data, uint64_t seed, uint64_t *hash)
{
    if (PyUnicode_Check(data)) {
        Py_ssize_t length;
        const char *text = PyUnicode_AsUTF8AndSize(data, &length);
        if (text != NULL) {
            *hash = amfs_xxh64(text, (size_t)length, seed);
            return 0;
        }
        if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError))
            return -1;
        PyErr_Clear(); /* a file name that is not UTF-8: hash the bytes it stands for */
        PyObject *bytes = name_bytes(data);
        if (bytes == NULL)
            return -1;
        *hash = amfs_xxh64(PyBytes_AsString(bytes), (size_t)PyBytes_Size(bytes), seed);
        Py_DECREF(bytes);
        return 0;
    }
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0)
        return -1;
    *hash = amfs_xxh64(view.buf, (size_t)view.len, seed);
    PyBuffer_Release(&view);
    return 0;
}

static PyObject *native_xxh64(PyObject *module, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"data", "seed", NULL};
    PyObject *data, *seed_object = NULL;
    uint64_t seed = 0, hash;

    (void)module;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|O:xxh64", names, &data, &seed_object))
        return NULL;
    if (seed_object != NULL) {
        seed = PyLong_AsUnsignedLongLong(seed_object);
        if (PyErr_Occurred())
            return NULL;
    }
    if (hash_object(data, seed, &hash) < 0)
        return NULL;
    return PyLong_FromUnsignedLongLong(hash);
}

static PyObject *native_partitions(PyObject *module, PyObject *args)
{
    PyObject *names;
    long long count;

    (void)module;
    if (!PyArg_ParseTuple(args, "OL:partitions", &names, &count))
        return NULL;
    if (count < 1) {
        PyErr_SetString(PyExc_ValueError, "the number of partitions must be at least 1");
        return NULL;
    }
    Py_ssize_t length = PySequence_Size(names);
    if (length < 0)
        return NULL;
    PyObject *result = PyList_New(length);
    if (result == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < length; i++) {
        uint64_t hash;
        PyObject *value = NULL, *name = PySequence_GetItem(names, i);
        if (name != NULL && hash_object(name, 0, &hash) == 0)
            value = PyLong_FromUnsignedLongLong(hash % (uint64_t)count);
        Py_XDECREF(name);
        if (value == NULL || PyList_SetItem(result, i, value) < 0) {
            Py_DECREF(result);
            return NULL;
        }
    }
    return result;
}

/* ------------------------------------------------------------------------------------------------------------------ Mover */

typedef struct {
    PyObject_HEAD
    struct mover *mover;
} mover_object;

/* A str as the bytes of a path or host. A new reference, or NULL with an error set. */
static PyObject *path_bytes(PyObject *text)
{
    PyObject *bytes = name_bytes(text);
    if (bytes != NULL && strlen(PyBytes_AsString(bytes)) != (size_t)PyBytes_Size(bytes)) {
        PyErr_SetString(PyExc_ValueError, "a path or host name contains a NUL character");
        Py_CLEAR(bytes);
    }
    return bytes;
}

static PyObject *mover_object_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"threads", "listen", NULL};
    int threads = 2;
    const char *listen = "";
    char error[256] = "";

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|i$s:Mover", names, &threads, &listen))
        return NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    mover_object *self = (mover_object *)allocate(type, 0);
    if (self == NULL)
        return NULL;
    self->mover = mover_new(threads, listen, error, sizeof error);
    if (self->mover == NULL) {
        Py_DECREF(self);
        PyErr_SetString(threads < 1 || threads > MOVER_THREADS_MAX ? PyExc_ValueError : PyExc_OSError, error);
        return NULL;
    }
    return (PyObject *)self;
}

static void mover_object_dealloc(mover_object *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    if (self->mover != NULL) {
        Py_BEGIN_ALLOW_THREADS
        mover_free(self->mover);
        Py_END_ALLOW_THREADS
    }
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* What a queueing function returned: None, or MemoryError. */
static PyObject *mover_queued(int error)
{
    if (error != 0)
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *mover_object_copy(mover_object *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"serial", "source", "destination", "mode", "directories", NULL};
    unsigned long long serial;
    unsigned mode;
    int directories = 1;
    PyObject *source_text, *destination_text, *source, *destination, *result = NULL;

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "KUUI|$p:copy", names, &serial, &source_text, &destination_text, &mode, &directories))
        return NULL;
    source = path_bytes(source_text);
    destination = source == NULL ? NULL : path_bytes(destination_text);
    if (destination != NULL)
        result = mover_queued(
            mover_copy(self->mover, serial, PyBytes_AsString(source), PyBytes_AsString(destination), mode, directories));
    Py_XDECREF(source);
    Py_XDECREF(destination);
    return result;
}

static PyObject *mover_object_offer(mover_object *self, PyObject *args)
{
    PyObject *text, *path;
    uint8_t ticket[MOVER_TICKET_BYTES];

    if (!PyArg_ParseTuple(args, "U:offer", &text) || (path = path_bytes(text)) == NULL)
        return NULL;
    errno = mover_offer(self->mover, PyBytes_AsString(path), ticket);
    Py_DECREF(path);
    if (errno == ENOTCONN) {
        PyErr_SetString(PyExc_RuntimeError, "this mover does not listen: it has nobody to offer files to");
        return NULL;
    }
    if (errno != 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    return PyBytes_FromStringAndSize((const char *)ticket, MOVER_TICKET_BYTES);
}

static PyObject *mover_object_fetch(mover_object *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"serial", "host", "port", "ticket", "size", "destination", "mode", NULL};
    unsigned long long serial, size;
    int port;
    unsigned mode;
    char *ticket;
    Py_ssize_t ticket_length;
    PyObject *host_text, *destination_text, *ticket_bytes, *host, *destination, *result = NULL;

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "KUiSKUI:fetch", names, &serial, &host_text, &port, &ticket_bytes, &size,
                                     &destination_text, &mode))
        return NULL;
    if (PyBytes_AsStringAndSize(ticket_bytes, &ticket, &ticket_length) < 0)
        return NULL;
    if (ticket_length != MOVER_TICKET_BYTES) {
        PyErr_Format(PyExc_ValueError, "a ticket has %d bytes, not %zd", MOVER_TICKET_BYTES, ticket_length);
        return NULL;
    }
    if (port < 1 || port > 65535) {
        PyErr_Format(PyExc_ValueError, "%d is no port number", port);
        return NULL;
    }
    host = path_bytes(host_text);
    destination = host == NULL ? NULL : path_bytes(destination_text);
    if (destination != NULL)
        result = mover_queued(mover_fetch(self->mover, serial, PyBytes_AsString(host), port, (const uint8_t *)ticket, size,
                                          PyBytes_AsString(destination), mode));
    Py_XDECREF(host);
    Py_XDECREF(destination);
    return result;
}

static PyObject *mover_object_completions(mover_object *self, PyObject *unused)
{
    (void)unused;
    PyObject *result = PyList_New(0);
    struct mover_done *all = result == NULL ? NULL : mover_take(self->mover);
    for (struct mover_done *done = all; done != NULL; done = done->next) {
        const char *error = done->error != NULL ? done->error : "";
        /* not surrogateescape: the text is for people and terminals, and cannot be opened */
        PyObject *text = PyUnicode_DecodeUTF8(error, (Py_ssize_t)strlen(error), "backslashreplace");
        PyObject *entry = text == NULL ? NULL : Py_BuildValue("(KNK)", (unsigned long long)done->serial, text, (unsigned long long)done->bytes);
        if (entry == NULL || PyList_Append(result, entry) < 0) {
            Py_XDECREF(entry);
            Py_CLEAR(result);
            break;
        }
        Py_DECREF(entry);
    }
    mover_done_free(all);
    return result;
}

static PyObject *mover_object_counters(mover_object *self, PyObject *unused)
{
    (void)unused;
    struct mover_counters counters;
    mover_read_counters(self->mover, &counters);
    return Py_BuildValue("{s:K,s:K,s:K,s:K}", "bytes_copied", (unsigned long long)counters.bytes_copied, "bytes_fetched",
                         (unsigned long long)counters.bytes_fetched, "bytes_served", (unsigned long long)counters.bytes_served, "cpu_us",
                         (unsigned long long)counters.cpu_us);
}

static PyObject *mover_object_stop(mover_object *self, PyObject *unused)
{
    (void)unused;
    Py_BEGIN_ALLOW_THREADS
    mover_stop(self->mover);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *mover_object_fd(mover_object *self, void *unused)
{
    (void)unused;
    return PyLong_FromLong(mover_fd(self->mover));
}

static PyObject *mover_object_port(mover_object *self, void *unused)
{
    (void)unused;
    return PyLong_FromLong(mover_port(self->mover));
}

static PyMethodDef mover_methods[] = {
    {"copy", (PyCFunction)(void (*)(void))mover_object_copy, METH_VARARGS | METH_KEYWORDS,
     "Copy a regular file on this node; ends as a completion."},
    {"offer", (PyCFunction)(void (*)(void))mover_object_offer, METH_VARARGS, "A new ticket for one fetch of a file."},
    {"fetch", (PyCFunction)(void (*)(void))mover_object_fetch, METH_VARARGS | METH_KEYWORDS,
     "Get a file from another mover's data port; ends as a completion."},
    {"completions", (PyCFunction)(void (*)(void))mover_object_completions, METH_NOARGS, "(serial, error, bytes) of what ended, oldest first."},
    {"counters", (PyCFunction)(void (*)(void))mover_object_counters, METH_NOARGS, "bytes_copied, bytes_fetched, bytes_served, cpu_us."},
    {"stop", (PyCFunction)(void (*)(void))mover_object_stop, METH_NOARGS, "End the threads; unfinished jobs complete as \"stopped\"."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef mover_properties[] = {
    {"fd", (getter)(void (*)(void))mover_object_fd, NULL, "eventfd, readable while completions wait", NULL},
    {"port", (getter)(void (*)(void))mover_object_port, NULL, "data port, 0 if not listening", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot mover_slots[] = {
    {Py_tp_doc, "Copies files on threads of its own: on this node, and between nodes over TCP."},
    {Py_tp_new, (void *)(uintptr_t)mover_object_new},
    {Py_tp_dealloc, (void *)(uintptr_t)mover_object_dealloc},
    {Py_tp_methods, mover_methods},
    {Py_tp_getset, mover_properties},
    {0, NULL},
};

static PyType_Spec mover_spec = {
    .name = "amfs._native.Mover",
    .basicsize = sizeof(mover_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = mover_slots,
};

/* ----------------------------------------------------------------------------------------------------------------- module */

static PyMethodDef module_methods[] = {
    {"xxh64", (PyCFunction)(void (*)(void))native_xxh64, METH_VARARGS | METH_KEYWORDS,
     "xxh64(data, seed=0)\n--\n\nXXH64 of the bytes (str: its UTF-8)."},
    {"partitions", native_partitions, METH_VARARGS, "partitions(names, count)\n--\n\nxxh64(name) % count for each name."},
    {NULL, NULL, 0, NULL},
};

static int module_exec(PyObject *module)
{
    module_state *state = PyModule_GetState(module);
    state->mover_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &mover_spec, NULL);
    if (state->mover_type == NULL || PyModule_AddType(module, state->mover_type) < 0)
        return -1;
    return 0;
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    module_state *state = PyModule_GetState(module);
    Py_VISIT(state->launcher_type);
    Py_VISIT(state->mover_type);
    return 0;
}

static int module_clear(PyObject *module)
{
    module_state *state = PyModule_GetState(module);
    Py_CLEAR(state->launcher_type);
    Py_CLEAR(state->mover_type);
    return 0;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, (void *)(uintptr_t)module_exec},
    {0, NULL},
};

static struct PyModuleDef module_definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "amfs._native",
    .m_doc = "XXH64, the launcher thread and the data mover.",
    .m_size = sizeof(module_state),
    .m_methods = module_methods,
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
};

PyMODINIT_FUNC PyInit__native(void);

PyMODINIT_FUNC PyInit__native(void)
{
    return PyModuleDef_Init(&module_definition);
}
