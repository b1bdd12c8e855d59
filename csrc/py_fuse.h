/* amfs._native.Fuse and what goes with mounts, for py_native.c. */
#ifndef AMFS_PY_FUSE_H
#define AMFS_PY_FUSE_H

#include <Python.h>

int add_fuse(PyObject *module); /* 0, or -1 with an error set */

#endif
