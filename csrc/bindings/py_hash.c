/* amfs._native.xxh64 and partitions: hashes of names and bytes. Contracts: amfs/_native.pyi, xxh64.h, digest.h. */
#include <errno.h>

#include "common/digest.h"
#include "common/digests.h"
#include "common/sha256.h"
#include "common/watch.h"
#include "common/xxh64.h"
#include "py_common.h"

/* Hash of a str or any contiguous buffer. Returns 0, or -1 with an error set. */
static int hash_object(PyObject *data, uint64_t seed, uint64_t *hash) {
    if (PyUnicode_Check(data)) {
        Py_ssize_t length;
        const char *text = PyUnicode_AsUTF8AndSize(data, &length);
        if (text != NULL) {
            *hash = amfs_xxh64(text, (size_t)length, seed);
            return 0;
        }
        if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) return -1;
        PyErr_Clear(); /* a file name that is not UTF-8: hash the bytes it stands for */
        PyObject *bytes = py_name_bytes(data);
        if (bytes == NULL) return -1;
        *hash = amfs_xxh64(PyBytes_AsString(bytes), (size_t)PyBytes_Size(bytes), seed);
        Py_DECREF(bytes);
        return 0;
    }
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0) return -1;
    *hash = amfs_xxh64(view.buf, (size_t)view.len, seed);
    PyBuffer_Release(&view);
    return 0;
}

static PyObject *native_xxh64(PyObject *module, PyObject *args, PyObject *keywords) {
    static char *names[] = {"data", "seed", NULL};
    PyObject *data, *seed_object = NULL;
    uint64_t seed = 0, hash;

    (void)module;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|O:xxh64", names, &data, &seed_object)) return NULL;
    if (seed_object != NULL) {
        seed = PyLong_AsUnsignedLongLong(seed_object);
        if (PyErr_Occurred()) return NULL;
    }
    if (hash_object(data, seed, &hash) < 0) return NULL;
    return PyLong_FromUnsignedLongLong(hash);
}

static PyObject *native_partitions(PyObject *module, PyObject *args) {
    PyObject *names;
    long long count;

    (void)module;
    if (!PyArg_ParseTuple(args, "OL:partitions", &names, &count)) return NULL;
    if (count < 1) {
        PyErr_SetString(PyExc_ValueError, "the number of partitions must be at least 1");
        return NULL;
    }
    Py_ssize_t length = PySequence_Size(names);
    if (length < 0) return NULL;
    PyObject *result = PyList_New(length);
    if (result == NULL) return NULL;
    for (Py_ssize_t i = 0; i < length; i++) {
        uint64_t hash;
        PyObject *value = NULL, *name = PySequence_GetItem(names, i);
        if (name != NULL && hash_object(name, 0, &hash) == 0) value = PyLong_FromUnsignedLongLong(hash % (uint64_t)count);
        Py_XDECREF(name);
        if (value == NULL || PyList_SetItem(result, i, value) < 0) {
            Py_DECREF(result);
            return NULL;
        }
    }
    return result;
}

/* Part by part: the whole is the same however it is cut. */
static PyObject *native_hmac_sha256(PyObject *module, PyObject *args) {
    PyObject *key, *parts;
    char *data;
    Py_ssize_t length;
    struct amfs_hmac mac;
    uint8_t digest[AMFS_SHA256_BYTES];

    (void)module;
    if (!PyArg_ParseTuple(args, "SO:hmac_sha256", &key, &parts) || PyBytes_AsStringAndSize(key, &data, &length) < 0) return NULL;
    amfs_hmac_begin(&mac, data, (size_t)length);
    Py_ssize_t count = PySequence_Size(parts);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *part = PySequence_GetItem(parts, i);
        int failed = part == NULL || PyBytes_AsStringAndSize(part, &data, &length) < 0;
        if (!failed) WITHOUT_GIL(amfs_hmac_add(&mac, data, (size_t)length));
        Py_XDECREF(part);
        if (failed) return NULL;
    }
    if (count < 0) return NULL;
    amfs_hmac_end(&mac, digest);
    return PyBytes_FromStringAndSize((const char *)digest, sizeof digest);
}

/* The file name of an error is "from" or "to", so that the caller knows which side it was. */
static PyObject *native_digest(PyObject *module, PyObject *args) {
    int from, to = -1, error, writing;
    uint8_t digest[DIGEST_BYTES];
    uint64_t size;

    (void)module;
    if (!PyArg_ParseTuple(args, "i|i:digest", &from, &to)) return NULL;
    WITHOUT_GIL(error = amfs_digest(from, to, digest, &size, &writing));
    if (error != 0) {
        errno = error;
        PyObject *side = writing ? PyUnicode_FromString("to") : PyUnicode_FromString("from");
        if (side != NULL) PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, side);
        Py_XDECREF(side);
        return NULL;
    }
    return Py_BuildValue("y#K", (const char *)digest, (Py_ssize_t)sizeof digest, (unsigned long long)size);
}

static PyObject *native_xxh3(PyObject *module, PyObject *data) {
    struct xxh3 state;
    uint8_t digest[XXH3_BYTES];
    Py_buffer view;

    (void)module;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) != 0) return NULL;
    xxh3_begin(&state);
    WITHOUT_GIL(xxh3_add(&state, view.buf, (size_t)view.len));
    xxh3_end(&state, digest);
    PyBuffer_Release(&view);
    return PyBytes_FromStringAndSize((const char *)digest, sizeof digest);
}

static PyObject *native_digest_of_content(PyObject *module, PyObject *data) {
    struct digests_run run;
    uint8_t digest[XXH3_BYTES];
    Py_buffer view;

    (void)module;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) != 0) return NULL;
    digests_begin(&run);
    WITHOUT_GIL(digests_add(&run, view.buf, (size_t)view.len));
    digests_end(&run, digest);
    PyBuffer_Release(&view);
    return PyBytes_FromStringAndSize((const char *)digest, sizeof digest);
}

static PyObject *native_check_file(PyObject *module, PyObject *args) {
    struct stat found;
    int fd, verdict = DIGESTS_UNKNOWN;

    (void)module;
    if (!PyArg_ParseTuple(args, "i:check_file", &fd)) return NULL;
    if (fstat(fd, &found) != 0) return PyErr_SetFromErrno(PyExc_OSError);
    WITHOUT_GIL(verdict = (int)digests_check(digests_key_of(&found), fd, NULL));
    return PyLong_FromLong(verdict);
}

static PyObject *native_digest_later(PyObject *module, PyObject *text) {
    (void)module;
    PyObject *path = py_path_bytes(text);
    if (path == NULL) return NULL;
    digests_later_file(PyBytes_AsString(path));
    Py_DECREF(path);
    Py_RETURN_NONE;
}

static PyObject *native_forget_digest(PyObject *module, PyObject *args) {
    unsigned long long device, inode;
    (void)module;
    if (!PyArg_ParseTuple(args, "KK:forget_digest", &device, &inode)) return NULL;
    digests_forget((struct digests_key){device, inode});
    Py_RETURN_NONE;
}

static PyObject *native_watched(PyObject *module, PyObject *number) {
    struct watch_entry found[PY_WATCH_MOST];
    long long longer = PyLong_AsLongLong(number);
    (void)module;
    if (PyErr_Occurred()) return NULL;
    return py_watched(found, amfs_watch_look(longer, found, PY_WATCH_MOST));
}

static PyMethodDef functions[] = {
    {"watched", native_watched, METH_O,
     "watched(longer_than_ms, /)\n--\n\n(what, number, milliseconds) that threads of C are at for longer."},
    {"xxh3", native_xxh3, METH_O, "xxh3(data, /)\n--\n\nXXH3 with 128 bits."},
    {"digest_of_content", native_digest_of_content, METH_O,
     "digest_of_content(data, /)\n--\n\nBy which this process knows a finished file of that content."},
    {"check_file", native_check_file, METH_VARARGS, "check_file(fd, /)\n--\n\n0: no digest is known, 1: it has it, 2: it is damaged."},
    {"digest_later", native_digest_later, METH_O, "digest_later(path, /)\n--\n\nTake the digest of a finished file in the background."},
    {"forget_digest", native_forget_digest, METH_VARARGS, "forget_digest(device, inode, /)\n--\n\nThe file has gone."},
    {"digest", native_digest, METH_VARARGS, "digest(from_, to=-1, /)\n--\n\nDigest and size of what can be read; written to `to` as well."},
    {"hmac_sha256", native_hmac_sha256, METH_VARARGS, "hmac_sha256(key, parts)\n--\n\nHMAC-SHA-256 of the bytes of all parts."},
    {"xxh64", WITH_KEYWORDS(native_xxh64), METH_VARARGS | METH_KEYWORDS, "xxh64(data, seed=0)\n--\n\nXXH64 of the bytes (str: its UTF-8)."},
    {"partitions", native_partitions, METH_VARARGS, "partitions(names, count)\n--\n\nxxh64(name) % count for each name."},
    {NULL, NULL, 0, NULL},
};

int add_hash(PyObject *module) { return PyModule_AddFunctions(module, functions); }
