/* amfs._native.Io and IoHandle, for the other files of the extension. */
#ifndef AMFS_PY_FSIO_H
#define AMFS_PY_FSIO_H

#include <Python.h>

#include "fsio.h"

int add_fsio(PyObject *module); /* 0, or -1 with an error set */
struct fsio *fsio_of_object(PyObject *io); /* borrowed from an amfs._native.Io: keep a reference to that */

#endif
