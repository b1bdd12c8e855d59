/* Meta: values and errors as Python has them. */
#include "py_meta_internal.h"

#include <errno.h>
#include <stdlib.h>

PyObject *py_meta_failed(int error) {
    const char *words = error == META_NOT_MINE ? "the partition is another node's or moving"
                        : error == META_BUSY   ? "another operation or node is concerned"
                                               : NULL;
    if (error == ENOMEM) return PyErr_NoMemory();
    if (words == NULL) return py_failed(error);
    PyObject *raised = PyObject_CallFunction(PyExc_OSError, "is", error, words);
    if (raised != NULL) PyErr_SetObject(PyExc_OSError, raised);
    Py_XDECREF(raised);
    return NULL;
}

PyObject *py_meta_nothing_or(int error) {
    if (error != 0) return py_meta_failed(error);
    Py_RETURN_NONE;
}

PyObject *py_meta_attr_or_none(const struct meta_attr *attr, bool there) {
    if (there) return py_attr_value(attr);
    Py_RETURN_NONE;
}

PyObject *py_meta_nodes(struct meta_nodes *nodes) {
    PyObject *tuple = PyTuple_New((Py_ssize_t)nodes->count);
    for (size_t i = 0; tuple != NULL && i < nodes->count; i++) {
        PyObject *node = PyLong_FromLong(nodes->nodes[i]);
        if (node == NULL || PyTuple_SetItem(tuple, (Py_ssize_t)i, node) < 0) Py_CLEAR(tuple);
    }
    free(nodes->nodes);
    *nodes = (struct meta_nodes){NULL, 0, 0};
    return tuple;
}

PyObject *py_meta_failed_nodes(int error, struct meta_nodes *nodes) {
    free(nodes->nodes);
    return py_meta_failed(error);
}

uint32_t *py_meta_numbers(PyObject *sequence, size_t *count) {
    Py_ssize_t length = PySequence_Size(sequence);
    if (length < 0) return NULL;
    *count = (size_t)length;
    uint32_t *array = malloc(((size_t)length + 1) * sizeof *array);
    if (array == NULL) PyErr_NoMemory();
    for (Py_ssize_t i = 0; array != NULL && i < length; i++) {
        PyObject *item = PySequence_GetItem(sequence, i);
        long long number = item == NULL ? -1 : PyLong_AsLongLong(item);
        Py_XDECREF(item);
        if (!PyErr_Occurred() && (number < INT32_MIN || number > UINT32_MAX))
            PyErr_SetString(PyExc_OverflowError, "a number is out of range");
        if (PyErr_Occurred()) {
            free(array);
            return NULL;
        }
        array[i] = (uint32_t)number;
    }
    return array;
}
