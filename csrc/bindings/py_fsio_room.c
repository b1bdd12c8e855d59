/* amfs._native.Io: memory that is full, and what is spilled. Contracts: amfs/_native.pyi, fsio.h. */
#include "py_fsio.h"

PyObject *fsio_expect_room_object(PyObject *self, PyObject *number) {
    int patience_ms = (int)PyLong_AsLong(number);

    if (PyErr_Occurred()) return NULL;
    fsio_expect_room(fsio_of_object(self), patience_ms);
    Py_RETURN_NONE;
}

PyObject *fsio_room_made_object(PyObject *self, PyObject *args) {
    unsigned long long serial, freed;

    if (!PyArg_ParseTuple(args, "KK:room_made", &serial, &freed)) return NULL;
    fsio_room_made(fsio_of_object(self), serial, freed);
    Py_RETURN_NONE;
}

PyObject *fsio_spill_above_object(PyObject *self, PyObject *args) {
    unsigned long long mark, most;

    if (!PyArg_ParseTuple(args, "KK:spill_above", &mark, &most)) return NULL;
    fsio_spill_above(fsio_of_object(self), mark, most);
    Py_RETURN_NONE;
}

PyObject *fsio_spill_object(PyObject *self, PyObject *number) {
    unsigned long long ino = PyLong_AsUnsignedLongLong(number);
    uint64_t freed;
    int error;

    if (PyErr_Occurred()) return NULL;
    WITHOUT_GIL(error = fsio_spill(fsio_of_object(self), ino, &freed));
    return error != 0 ? py_failed(error) : PyLong_FromUnsignedLongLong(freed);
}

PyObject *fsio_spilled_object(PyObject *self, void *closure) {
    (void)closure;
    return PyLong_FromUnsignedLongLong(fsio_spilled(fsio_of_object(self)));
}

PyObject *fsio_hold_object(PyObject *self, PyObject *args) {
    unsigned long long bytes, spilled;

    if (!PyArg_ParseTuple(args, "KK:hold", &bytes, &spilled)) return NULL;
    return PyLong_FromUnsignedLongLong(fsio_hold(fsio_of_object(self), bytes, spilled));
}

PyObject *fsio_usage_object(PyObject *self, PyObject *unused) {
    uint64_t used, limit, parts;

    (void)unused;
    WITHOUT_GIL(fsio_usage(fsio_of_object(self), &used, &limit, &parts));
    return Py_BuildValue("(KKK)", (ull)used, (ull)limit, (ull)parts);
}
