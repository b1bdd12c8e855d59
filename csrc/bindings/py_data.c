/* amfs._native.read_stored: a file of a node's store, for a process that is no node. Contract: amfs/_native.pyi. */
#include "py_common.h"

#include "data/peers/client.h"

static PyObject *native_read_stored(PyObject *module, PyObject *args) {
    ull id, incarnation, size;
    int node, port, error;
    const char *host, *key;
    Py_ssize_t key_length;
    PyObject *text;
    struct data_client client = {0};

    (void)module;
    if (!PyArg_ParseTuple(args, "y#KiKsiUK:read_stored", &key, &key_length, &id, &node, &incarnation, &host, &port, &text, &size))
        return NULL;
    if (key_length != HANDSHAKE_KEY_BYTES || id < DATA_CLIENTS_FROM || port < 1 || port > 65535) {
        PyErr_SetString(PyExc_ValueError, "no key of a session, no client's number, or no port");
        return NULL;
    }
    PyObject *path = py_path_bytes(text), *content = path == NULL ? NULL : PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (content != NULL) {
        const char *name = PyBytes_AsString(path);
        char *to = PyBytes_AsString(content);
        data_client_begin(&client, id, 0, (const uint8_t *)key);
        data_set_peer(&client, node, incarnation, host, port);
        WITHOUT_GIL(error = data_read_stored(&client, node, name, to, size));
        data_client_end(&client);
        if (error != 0) {
            Py_CLEAR(content);
            py_failed(error);
        }
    }
    Py_XDECREF(path);
    return content;
}

static PyMethodDef functions[] = {
    {"read_stored", native_read_stored, METH_VARARGS,
     "read_stored(key, id, node, incarnation, host, port, path, size)\n--\n\nA file of a node's store, for a client."},
    {NULL, NULL, 0, NULL},
};

int add_data(PyObject *module) { return PyModule_AddFunctions(module, functions); }
