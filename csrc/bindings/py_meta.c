/* amfs._native.Meta: the metadata shard for Python. Contract: csrc/metadata/fsmeta.h; signatures: amfs/_native.pyi.
 *
 * Here: the type, counting and checking. The methods are in the py_meta_*.c beside this. */
#include "py_meta.h"

#include <string.h>

#include "py_meta_internal.h"

/* ── counting, checking ── */

static PyObject *counts(PyObject *self, PyObject *unused_) {
    struct meta_counts c;
    (void)unused_;
    meta_counts(of(self), &c);
    return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K}", "inodes", (ull)c.inodes, "entries", (ull)c.entries, "dirs", (ull)c.dirs, "cached",
                         (ull)c.cached, "bytes", (ull)c.bytes);
}

static PyObject *check(PyObject *self, PyObject *unused_) {
    char what[512];
    int error;
    (void)unused_;
    WITHOUT_GIL(error = meta_check(of(self), what, sizeof what));
    if (error == 0) Py_RETURN_NONE;
    PyObject *text = PyUnicode_DecodeUTF8(what, (Py_ssize_t)strlen(what), "backslashreplace");
    if (text != NULL) PyErr_SetObject(PyExc_AssertionError, text);
    Py_XDECREF(text);
    return NULL;
}

/* ── the type ── */

static PyObject *meta_object_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"node", NULL};
    int node;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "i:Meta", names, &node)) return NULL;
    if (node < 0) {
        PyErr_Format(PyExc_ValueError, "%d is no node number", node);
        return NULL;
    }
    meta_object *self = py_new_object(type);
    if (self == NULL) return NULL;
    self->meta = meta_new(node);
    if (self->meta != NULL) return (PyObject *)self;
    Py_DECREF(self);
    return PyErr_NoMemory();
}

static void meta_object_dealloc(PyObject *self) {
    WITHOUT_GIL(meta_free(of(self)));
    py_free_object(self);
}

struct meta *meta_of_object(PyObject *object) {
    PyObject *module = PyImport_ImportModule("amfs._native");
    PyObject *type = module == NULL ? NULL : PyObject_GetAttrString(module, "Meta");
    int is = type == NULL ? -1 : PyObject_IsInstance(object, type);
    Py_XDECREF(type);
    Py_XDECREF(module);
    if (is == 0) PyErr_Format(PyExc_TypeError, "expected a Meta, not %R", (PyObject *)Py_TYPE(object));
    return is == 1 ? of(object) : NULL;
}

static PyMethodDef own_methods[] = {
    {"counts", counts, METH_NOARGS, "counts()"},
    {"check", check, METH_NOARGS, "check()"},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef *const tables[] = {py_meta_places_methods, py_meta_entries_methods,  py_meta_inodes_methods, py_meta_backups_methods,
                                      py_meta_copies_methods, py_meta_replicas_methods, py_meta_dirs_methods,   own_methods};

static PyMethodDef meta_methods[128]; /* all of them: a type takes one table, and keeps it */

/* 0, or -1 with an error set. */
static int join_methods(void) {
    size_t count = 0;
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        for (const PyMethodDef *method = tables[i]; method->ml_name != NULL; method++) {
            if (count == sizeof meta_methods / sizeof meta_methods[0] - 1) {
                PyErr_SetString(PyExc_SystemError, "Meta has more methods than there is room for");
                return -1;
            }
            meta_methods[count++] = *method;
        }
    return 0;
}

static PyType_Slot meta_slots[] = {
    {Py_tp_doc, "The metadata of the file system that this node keeps."},
    {Py_tp_new, (void *)(uintptr_t)meta_object_new},
    {Py_tp_dealloc, (void *)(uintptr_t)meta_object_dealloc},
    {Py_tp_methods, meta_methods},
    {0, NULL},
};

static PyType_Spec meta_spec = {
    .name = "amfs._native.Meta",
    .basicsize = sizeof(meta_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = meta_slots,
};

int add_meta(PyObject *module) { return join_methods() < 0 ? -1 : py_add_type(module, &meta_spec); }
