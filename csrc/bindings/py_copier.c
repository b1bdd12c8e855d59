/* amfs._native.Copier: copying files for Python. Contracts: amfs/_native.pyi, copier.h. */
#include "py_common.h"

#include <string.h>

#include "data/copier.h"

typedef struct {
    PyObject_HEAD struct copier *copier;
} copier_object;

static PyObject *copier_object_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"threads", NULL};
    int threads = 2;
    char error[256] = "";

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|i:Copier", names, &threads)) return NULL;
    copier_object *self = py_new_object(type);
    if (self == NULL) return NULL;
    self->copier = copier_new(threads, error, sizeof error);
    if (self->copier == NULL) {
        Py_DECREF(self);
        PyErr_SetString(threads < 1 || threads > COPIER_THREADS_MAX ? PyExc_ValueError : PyExc_OSError, error);
        return NULL;
    }
    return (PyObject *)self;
}

static void copier_object_dealloc(copier_object *self) {
    if (self->copier != NULL) WITHOUT_GIL(copier_free(self->copier));
    py_free_object((PyObject *)self);
}

/* The result of a queueing function: None, or MemoryError. */
static PyObject *copier_queued(int error) {
    if (error != 0) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *copier_object_copy(copier_object *self, PyObject *args, PyObject *keywords) {
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
        result =
            copier_queued(copier_copy(self->copier, serial, PyBytes_AsString(source), PyBytes_AsString(destination), mode, directories));
    Py_XDECREF(source);
    Py_XDECREF(destination);
    return result;
}

static PyObject *copier_object_completions(copier_object *self, PyObject *unused) {
    (void)unused;
    PyObject *result = PyList_New(0);
    struct copier_done *all = result == NULL ? NULL : copier_take(self->copier);
    for (struct copier_done *done = all; done != NULL; done = done->next) {
        const char *error = done->error != NULL ? done->error : "";
        /* not surrogateescape: the text is for people and terminals, and cannot be opened */
        PyObject *text = PyUnicode_DecodeUTF8(error, (Py_ssize_t)strlen(error), "backslashreplace");
        PyObject *entry = text == NULL ? NULL : Py_BuildValue("(KNKi)", (ull)done->serial, text, (ull)done->bytes, done->code);
        if (entry == NULL || PyList_Append(result, entry) < 0) {
            Py_XDECREF(entry);
            Py_CLEAR(result);
            break;
        }
        Py_DECREF(entry);
    }
    copier_done_free(all);
    return result;
}

static PyObject *copier_object_stop(copier_object *self, PyObject *unused) {
    (void)unused;
    WITHOUT_GIL(copier_stop(self->copier));
    Py_RETURN_NONE;
}

static PyObject *copier_object_fd(copier_object *self, void *unused) {
    (void)unused;
    return PyLong_FromLong(copier_fd(self->copier));
}

static PyMethodDef copier_methods[] = {
    {"copy", WITH_KEYWORDS(copier_object_copy), METH_VARARGS | METH_KEYWORDS, "Copy a regular file on this node; ends as a completion."},
    {"completions", WITH_KEYWORDS(copier_object_completions), METH_NOARGS, "(serial, error, bytes, code) of what ended, oldest first."},
    {"stop", WITH_KEYWORDS(copier_object_stop), METH_NOARGS, "End the threads; unfinished jobs complete as \"stopped\"."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef copier_properties[] = {
    {"fd", (getter)(void (*)(void))copier_object_fd, NULL, "eventfd, readable while completions wait", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot copier_slots[] = {
    {Py_tp_doc, "Copies files between shared storage and the store, on threads of its own."},
    {Py_tp_new, (void *)(uintptr_t)copier_object_new},
    {Py_tp_dealloc, (void *)(uintptr_t)copier_object_dealloc},
    {Py_tp_methods, copier_methods},
    {Py_tp_getset, copier_properties},
    {0, NULL},
};

static PyType_Spec copier_spec = {
    .name = "amfs._native.Copier",
    .basicsize = sizeof(copier_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = copier_slots,
};

int add_copier(PyObject *module) { return py_add_type(module, &copier_spec); }
