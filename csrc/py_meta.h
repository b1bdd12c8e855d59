/* Meta for py_native.c, and for whoever is given one by Python. */
#ifndef AMFS_PY_META_H
#define AMFS_PY_META_H

#include <Python.h>

struct meta;

int add_meta(PyObject *module);                /* 0, or -1 with an error set */
struct meta *meta_of_object(PyObject *object); /* NULL with an error set: it is no Meta. Lives as long as the object: keep a reference. */

#endif
