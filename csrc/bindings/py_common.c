#include "py_common.h"
#include "common/thread.h"
#include "common/watch.h"

#include <errno.h>
#include <string.h>

/* ── types and objects ── */

int py_add_type(PyObject *module, PyType_Spec *spec) {
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    int added = type == NULL ? -1 : PyModule_AddType(module, (PyTypeObject *)type);
    Py_XDECREF(type);
    return added;
}

void *py_new_object(PyTypeObject *type) {
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    return allocate(type, 0);
}

void py_free_object(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* ── errors ── */

PyObject *py_failed(int error) {
    errno = error;
    return PyErr_SetFromErrno(PyExc_OSError);
}

PyObject *py_nothing_or(int error) {
    if (error != 0) return py_failed(error);
    Py_RETURN_NONE;
}

/* ── names ── */

PyObject *py_name_bytes(PyObject *text) {
    if (PyUnicode_Check(text)) return PyUnicode_AsEncodedString(text, "utf-8", "surrogateescape");
    PyErr_Format(PyExc_TypeError, "expected str, not %R", Py_TYPE(text));
    return NULL;
}

PyObject *py_path_bytes(PyObject *text) {
    PyObject *bytes = py_name_bytes(text);
    if (bytes != NULL && strlen(PyBytes_AsString(bytes)) != (size_t)PyBytes_Size(bytes)) {
        PyErr_SetString(PyExc_ValueError, "a path or host name contains a NUL character");
        Py_CLEAR(bytes);
    }
    return bytes;
}

/* ── attributes ── */

PyObject *py_attr_value(const struct meta_attr *a) {
    return Py_BuildValue("(KIIIIIIBBiiKKLLLKB)", (ull)a->ino, a->mode, a->nlink, a->uid, a->gid, a->rdev, a->stripe, a->layout, a->finished,
                         a->writer, a->rank, (ull)a->size, (ull)a->blocks, (long long)a->atime, (long long)a->mtime, (long long)a->ctime,
                         (ull)a->pending, a->copies);
}

int py_to_attr(PyObject *value, void *to) {
    struct meta_attr *a = to;
    ull ino, size, blocks, pending = 0;
    a->copies = 0;
    long long atime, mtime, ctime;
    if (!PyTuple_Check(value)) {
        PyErr_Format(PyExc_TypeError, "an attr is a tuple, not %R", (PyObject *)Py_TYPE(value));
        return 0;
    }
    if (!PyArg_ParseTuple(value, "KIIIIIIBBiiKKLLL|KB;an attr has 16 to 18 numbers", &ino, &a->mode, &a->nlink, &a->uid, &a->gid, &a->rdev,
                          &a->stripe, &a->layout, &a->finished, &a->writer, &a->rank, &size, &blocks, &atime, &mtime, &ctime, &pending,
                          &a->copies))
        return 0;
    a->ino = ino;
    a->size = size;
    a->blocks = blocks;
    a->pending = pending;
    a->atime = atime;
    a->mtime = mtime;
    a->ctime = ctime;
    return 1;
}

PyObject *py_watched(const struct watch_entry *found, size_t count) {
    PyObject *list = PyList_New(0);
    int64_t now = now_ms();
    for (size_t i = 0; list != NULL && i < count; i++) {
        PyObject *item = Py_BuildValue("(sKL)", found[i].what, (ull)found[i].number, (long long)(now - found[i].since_ms));
        if (item == NULL || PyList_Append(list, item) < 0) Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}
