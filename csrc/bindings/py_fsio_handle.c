/* amfs._native.IoHandle: an open file of fsio for Python. Contracts: amfs/_native.pyi, fsio.h. */
#include "py_fsio.h"

#include <errno.h>
#include <stdlib.h>

PyObject *fsio_stat_tuple(int error, uint64_t size, uint64_t blocks, int64_t atime, int64_t mtime, int64_t ctime) {
    if (error != 0) return py_failed(error);
    return Py_BuildValue("(KKLLL)", (ull)size, (ull)blocks, (long long)atime, (long long)mtime, (long long)ctime);
}

typedef struct {
    PyObject ob_base;
    PyObject *owner; /* the Io: lives as long as its handles */
    struct fsio_handle *handle;
    struct fsio_handle *closing; /* has been closed while calls were under way: the last of them does it */
    int uses;                    /* calls under way with the GIL released */
} handle_object;

#define USING(self, call)                                                                                                                  \
    do {                                                                                                                                   \
        ((handle_object *)(self))->uses++;                                                                                                 \
        WITHOUT_GIL(call);                                                                                                                 \
        end_use((handle_object *)(self));                                                                                                  \
    } while (0)

static void end_use(handle_object *object) {
    struct fsio_handle *closing = object->closing;

    if (--object->uses > 0 || closing == NULL) return;
    object->closing = NULL;
    WITHOUT_GIL(fsio_close(closing)); /* close has told what the flush met */
}

PyObject *fsio_handle_object(PyObject *io, struct fsio_handle *handle) {
    PyObject *module = PyType_GetModule(Py_TYPE(io)); /* borrowed */
    PyObject *type = module == NULL ? NULL : PyObject_GetAttrString(module, "IoHandle");
    handle_object *object = type == NULL ? NULL : py_new_object((PyTypeObject *)type);
    Py_XDECREF(type);
    if (object == NULL) {
        WITHOUT_GIL(fsio_close(handle));
        return NULL;
    }
    object->owner = Py_NewRef(io);
    object->handle = handle;
    return (PyObject *)object;
}

static struct fsio_handle *handle_of(PyObject *self) {
    struct fsio_handle *handle = ((handle_object *)self)->handle;
    if (handle == NULL) py_failed(EBADF);
    return handle;
}

static void handle_dealloc(PyObject *self) {
    handle_object *object = (handle_object *)self;

    if (object->handle != NULL) WITHOUT_GIL(fsio_close(object->handle));
    Py_XDECREF(object->owner);
    py_free_object(self);
}

static PyObject *handle_read(PyObject *self, PyObject *args) {
    struct fsio_handle *handle = handle_of(self);
    Py_ssize_t count;
    ull offset;
    size_t got;
    int error;

    if (handle == NULL || !PyArg_ParseTuple(args, "nK:read", &count, &offset)) return NULL;
    if (count < 0) return py_failed(EINVAL);
    char *buffer = malloc((size_t)count + 1);
    if (buffer == NULL) return PyErr_NoMemory();
    USING(self, error = fsio_read(handle, buffer, (size_t)count, offset, &got));
    PyObject *bytes = error != 0 ? py_failed(error) : PyBytes_FromStringAndSize(buffer, (Py_ssize_t)got);
    free(buffer);
    return bytes;
}

static PyObject *handle_readinto(PyObject *self, PyObject *args) {
    struct fsio_handle *handle = handle_of(self);
    PyObject *target;
    ull offset;
    Py_buffer view;
    size_t got;
    int error;

    if (handle == NULL || !PyArg_ParseTuple(args, "OK:readinto", &target, &offset) || PyObject_GetBuffer(target, &view, PyBUF_WRITABLE) < 0)
        return NULL;
    USING(self, error = fsio_read(handle, view.buf, (size_t)view.len, offset, &got));
    PyBuffer_Release(&view);
    return error != 0 ? py_failed(error) : PyLong_FromSize_t(got);
}

static PyObject *handle_write(PyObject *self, PyObject *args) {
    struct fsio_handle *handle = handle_of(self);
    PyObject *source;
    ull offset;
    Py_buffer view;
    int error;

    if (handle == NULL || !PyArg_ParseTuple(args, "OK:write", &source, &offset) || PyObject_GetBuffer(source, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    USING(self, error = fsio_write(handle, view.buf, (size_t)view.len, offset));
    PyBuffer_Release(&view);
    return py_nothing_or(error);
}

static PyObject *handle_truncate(PyObject *self, PyObject *number) {
    struct fsio_handle *handle = handle_of(self);
    ull size = handle == NULL ? 0 : PyLong_AsUnsignedLongLong(number);
    int error;

    if (handle == NULL || PyErr_Occurred()) return NULL;
    USING(self, error = fsio_truncate(handle, size));
    return py_nothing_or(error);
}

static PyObject *handle_fallocate(PyObject *self, PyObject *args) {
    struct fsio_handle *handle = handle_of(self);
    int mode, error;
    ull offset, length;

    if (handle == NULL || !PyArg_ParseTuple(args, "iKK:fallocate", &mode, &offset, &length)) return NULL;
    USING(self, error = fsio_fallocate(handle, mode, offset, length));
    return py_nothing_or(error);
}

static PyObject *handle_seek(PyObject *self, PyObject *args) {
    struct fsio_handle *handle = handle_of(self);
    int whence, error;
    ull offset;
    uint64_t found = 0;

    if (handle == NULL || !PyArg_ParseTuple(args, "Ki:seek", &offset, &whence)) return NULL;
    USING(self, error = fsio_seek(handle, offset, whence, &found));
    return error != 0 ? py_failed(error) : PyLong_FromUnsignedLongLong(found);
}

static PyObject *handle_flush(PyObject *self, PyObject *unused) {
    struct fsio_handle *handle = handle_of(self);
    int error;

    (void)unused;
    if (handle == NULL) return NULL;
    USING(self, error = fsio_flush(handle));
    return py_nothing_or(error);
}

static PyObject *handle_stat(PyObject *self, PyObject *unused) {
    struct fsio_handle *handle = handle_of(self);
    uint64_t size = 0, blocks = 0;
    int64_t atime = 0, mtime = 0, ctime = 0;
    int error;

    (void)unused;
    if (handle == NULL) return NULL;
    USING(self, error = fsio_stat(handle, &size, &blocks, &atime, &mtime, &ctime));
    return fsio_stat_tuple(error, size, blocks, atime, mtime, ctime);
}

static PyObject *handle_close(PyObject *self, PyObject *unused) {
    handle_object *object = (handle_object *)self;
    struct fsio_handle *handle = object->handle;
    int error = 0;

    (void)unused;
    object->handle = NULL;
    if (handle != NULL && object->uses > 0) {
        object->closing = handle;
        USING(self, error = fsio_flush(handle));
    } else if (handle != NULL) {
        WITHOUT_GIL(error = fsio_close(handle));
    }
    return py_nothing_or(error);
}

static PyMethodDef handle_methods[] = {
    {"read", handle_read, METH_VARARGS, "read($self, count, offset, /)\n--\n\nAt most count bytes; fewer only at the end."},
    {"readinto", handle_readinto, METH_VARARGS, "readinto($self, buffer, offset, /)\n--\n\nHow many bytes came."},
    {"write", handle_write, METH_VARARGS, "write($self, data, offset, /)\n--\n\nAll of it."},
    {"truncate", handle_truncate, METH_O, "truncate(size)"},
    {"fallocate", handle_fallocate, METH_VARARGS, "fallocate(mode, offset, length)"},
    {"seek", handle_seek, METH_VARARGS, "seek($self, offset, whence, /)\n--\n\nSEEK_DATA or SEEK_HOLE."},
    {"flush", handle_flush, METH_NOARGS, "What is held back goes to its owners; reports what failed."},
    {"stat", handle_stat, METH_NOARGS, "(size, blocks, atime, mtime, ctime)"},
    {"close", handle_close, METH_NOARGS, "Flush and close. Repeatable."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot handle_slots[] = {
    {Py_tp_doc, "An open file's data. Made by Io.open."},
    {Py_tp_dealloc, (void *)(uintptr_t)handle_dealloc},
    {Py_tp_methods, handle_methods},
    {0, NULL},
};

PyType_Spec fsio_handle_spec = {
    .name = "amfs._native.IoHandle",
    .basicsize = sizeof(handle_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = handle_slots,
};
