/* Shared by the files of the extension: the GIL, errors, making types and objects, names and attributes as Python has them. */
#ifndef AMFS_PY_COMMON_H
#define AMFS_PY_COMMON_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "metadata/fsmeta.h"

typedef unsigned long long ull;

/* The parts of the module, for py_native.c: 0, or -1 with an error set. */
int add_hash(PyObject *module);
int add_launcher(PyObject *module);
int add_copier(PyObject *module);
int add_data(PyObject *module);
int add_files(PyObject *module);
int add_fsio(PyObject *module);
int add_fuse(PyObject *module);
int add_meta(PyObject *module);

/* Around everything that may wait or touch a file. */
#define WITHOUT_GIL(call)                                                                                                                  \
    do {                                                                                                                                   \
        Py_BEGIN_ALLOW_THREADS call;                                                                                                       \
        Py_END_ALLOW_THREADS                                                                                                               \
    } while (0)

#define WITH_KEYWORDS(function) (PyCFunction)(void (*)(void))(function)

int py_add_type(PyObject *module, PyType_Spec *spec); /* 0, or -1 with an error set */
void *py_new_object(PyTypeObject *type);              /* zeroed; NULL with an error set */
void py_free_object(PyObject *self);                  /* the end of every dealloc */

PyObject *py_failed(int error);     /* NULL, with OSError set */
PyObject *py_nothing_or(int error); /* None, or that */

/* A str as UTF-8 with surrogate escapes, as file names have them. A new reference to bytes, or NULL with an error set. */
PyObject *py_name_bytes(PyObject *text);
PyObject *py_path_bytes(PyObject *text); /* that, refused if it contains a NUL */

/* [(what, number, milliseconds), ...] of what takes long. */
struct watch_entry;
enum { PY_WATCH_MOST = 64 };
PyObject *py_watched(const struct watch_entry *found, size_t count);

/* An attr is a tuple of 16 numbers (amfs/_native.pyi). */
PyObject *py_attr_value(const struct meta_attr *attr);
int py_to_attr(PyObject *value, void *to); /* "O&" converter to a struct meta_attr: 1, or 0 with an error set */

#endif
