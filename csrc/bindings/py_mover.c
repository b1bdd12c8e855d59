/* amfs._native.Mover: copying files between nodes for Python. Contracts: amfs/_native.pyi, mover.h. */
#include "py_common.h"

#include <errno.h>
#include <string.h>

#include "data/mover.h"

typedef struct {
    PyObject_HEAD struct mover *mover;
} mover_object;

static PyObject *mover_object_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"threads", "listen", NULL};
    int threads = 2;
    const char *listen = "";
    char error[256] = "";

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|i$s:Mover", names, &threads, &listen)) return NULL;
    mover_object *self = py_new_object(type);
    if (self == NULL) return NULL;
    self->mover = mover_new(threads, listen, error, sizeof error);
    if (self->mover == NULL) {
        Py_DECREF(self);
        PyErr_SetString(threads < 1 || threads > MOVER_THREADS_MAX ? PyExc_ValueError : PyExc_OSError, error);
        return NULL;
    }
    return (PyObject *)self;
}

static void mover_object_dealloc(mover_object *self) {
    if (self->mover != NULL) WITHOUT_GIL(mover_free(self->mover));
    py_free_object((PyObject *)self);
}

/* What a queueing function returned: None, or MemoryError. */
static PyObject *mover_queued(int error) {
    if (error != 0) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *mover_object_copy(mover_object *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"serial", "source", "destination", "mode", "directories", NULL};
    ull serial;
    unsigned mode;
    int directories = 1;
    PyObject *source_text, *destination_text, *source, *destination, *result = NULL;

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "KUUI|$p:copy", names, &serial, &source_text, &destination_text, &mode, &directories))
        return NULL;
    source = py_path_bytes(source_text);
    destination = source == NULL ? NULL : py_path_bytes(destination_text);
    if (destination != NULL)
        result = mover_queued(mover_copy(self->mover, serial, PyBytes_AsString(source), PyBytes_AsString(destination), mode, directories));
    Py_XDECREF(source);
    Py_XDECREF(destination);
    return result;
}

static PyObject *mover_object_offer(mover_object *self, PyObject *args) {
    PyObject *text, *path;
    uint8_t ticket[MOVER_TICKET_BYTES];

    if (!PyArg_ParseTuple(args, "U:offer", &text) || (path = py_path_bytes(text)) == NULL) return NULL;
    errno = mover_offer(self->mover, PyBytes_AsString(path), ticket);
    Py_DECREF(path);
    if (errno == ENOTCONN) {
        PyErr_SetString(PyExc_RuntimeError, "this mover does not listen: it has nobody to offer files to");
        return NULL;
    }
    if (errno != 0) return PyErr_SetFromErrno(PyExc_OSError);
    return PyBytes_FromStringAndSize((const char *)ticket, MOVER_TICKET_BYTES);
}

static PyObject *mover_object_fetch(mover_object *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"serial", "host", "port", "ticket", "size", "destination", "mode", NULL};
    ull serial, size;
    int port;
    unsigned mode;
    char *ticket;
    Py_ssize_t ticket_length;
    PyObject *host_text, *destination_text, *ticket_bytes, *host, *destination, *result = NULL;

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "KUiSKUI:fetch", names, &serial, &host_text, &port, &ticket_bytes, &size,
                                     &destination_text, &mode))
        return NULL;
    if (PyBytes_AsStringAndSize(ticket_bytes, &ticket, &ticket_length) < 0) return NULL;
    if (ticket_length != MOVER_TICKET_BYTES) {
        PyErr_Format(PyExc_ValueError, "a ticket has %d bytes, not %zd", MOVER_TICKET_BYTES, ticket_length);
        return NULL;
    }
    if (port < 1 || port > 65535) {
        PyErr_Format(PyExc_ValueError, "%d is no port number", port);
        return NULL;
    }
    host = py_path_bytes(host_text);
    destination = host == NULL ? NULL : py_path_bytes(destination_text);
    if (destination != NULL)
        result = mover_queued(mover_fetch(self->mover, serial, PyBytes_AsString(host), port, (const uint8_t *)ticket, size,
                                          PyBytes_AsString(destination), mode));
    Py_XDECREF(host);
    Py_XDECREF(destination);
    return result;
}

static PyObject *mover_object_completions(mover_object *self, PyObject *unused) {
    (void)unused;
    PyObject *result = PyList_New(0);
    struct mover_done *all = result == NULL ? NULL : mover_take(self->mover);
    for (struct mover_done *done = all; done != NULL; done = done->next) {
        const char *error = done->error != NULL ? done->error : "";
        /* not surrogateescape: the text is for people and terminals, and cannot be opened */
        PyObject *text = PyUnicode_DecodeUTF8(error, (Py_ssize_t)strlen(error), "backslashreplace");
        PyObject *entry = text == NULL ? NULL : Py_BuildValue("(KNK)", (ull)done->serial, text, (ull)done->bytes);
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

static PyObject *mover_object_counters(mover_object *self, PyObject *unused) {
    (void)unused;
    struct mover_counters counters;
    mover_read_counters(self->mover, &counters);
    return Py_BuildValue("{s:K,s:K,s:K,s:K}", "bytes_copied", (ull)counters.bytes_copied, "bytes_fetched", (ull)counters.bytes_fetched,
                         "bytes_served", (ull)counters.bytes_served, "cpu_us", (ull)counters.cpu_us);
}

static PyObject *mover_object_stop(mover_object *self, PyObject *unused) {
    (void)unused;
    WITHOUT_GIL(mover_stop(self->mover));
    Py_RETURN_NONE;
}

static PyObject *mover_object_fd(mover_object *self, void *unused) {
    (void)unused;
    return PyLong_FromLong(mover_fd(self->mover));
}

static PyObject *mover_object_port(mover_object *self, void *unused) {
    (void)unused;
    return PyLong_FromLong(mover_port(self->mover));
}

static PyMethodDef mover_methods[] = {
    {"copy", WITH_KEYWORDS(mover_object_copy), METH_VARARGS | METH_KEYWORDS, "Copy a regular file on this node; ends as a completion."},
    {"offer", WITH_KEYWORDS(mover_object_offer), METH_VARARGS, "A new ticket for one fetch of a file."},
    {"fetch", WITH_KEYWORDS(mover_object_fetch), METH_VARARGS | METH_KEYWORDS,
     "Get a file from another mover's data port; ends as a completion."},
    {"completions", WITH_KEYWORDS(mover_object_completions), METH_NOARGS, "(serial, error, bytes) of what ended, oldest first."},
    {"counters", WITH_KEYWORDS(mover_object_counters), METH_NOARGS, "bytes_copied, bytes_fetched, bytes_served, cpu_us."},
    {"stop", WITH_KEYWORDS(mover_object_stop), METH_NOARGS, "End the threads; unfinished jobs complete as \"stopped\"."},
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

int add_mover(PyObject *module) { return py_add_type(module, &mover_spec); }
