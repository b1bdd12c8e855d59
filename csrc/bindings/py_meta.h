/* For whoever is given an amfs._native.Meta by Python. */
#ifndef AMFS_PY_META_H
#define AMFS_PY_META_H

#include <Python.h>

struct meta;

struct meta *meta_of_object(PyObject *object); /* NULL with an error set: it is no Meta. Lives as long as the object: keep a reference. */

#endif
