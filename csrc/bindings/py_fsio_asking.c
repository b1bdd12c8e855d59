/* amfs._native.Io: questions of the poll loop that go to the shards of other nodes directly. Contracts: amfs/_native.pyi, peer_meta.h. */
#include "py_fsio.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "metadata/peer_meta.h"

/* One question to one node. */
struct part {
    struct peer_meta_call call;
    struct fsio_asked *asked;
    int32_t node;
    int error;
    uint8_t *bytes;
    size_t count;
};

/* The same question to some nodes: ended when all have answered. */
struct fsio_asked {
    struct fsio_asked *next;
    io_object *io;
    uint64_t serial;
    atomic_size_t left;
    size_t nodes;
    struct part parts[];
};

static void free_asked(struct fsio_asked *asked) {
    for (size_t i = 0; i < asked->nodes; i++) free(asked->parts[i].bytes);
    free(asked);
}

static void one_less(struct fsio_asked *asked) {
    io_object *io = asked->io;
    uint64_t serial = asked->serial;
    if (atomic_fetch_sub(&asked->left, 1) != 1) return;
    pthread_mutex_lock(&io->answers_lock);
    asked->next = io->answers;
    io->answers = asked;
    pthread_mutex_unlock(&io->answers_lock);
    fsio_tell_done(io->io, serial, 0);
}

/* By any thread, and without Python. */
static void answered(struct peer_meta_call *call, const struct peer_meta_answer *answer) {
    struct part *part = (struct part *)(void *)call;
    part->error = answer->error == PEER_META_LOST ? ECONNABORTED : answer->error;
    if (part->error == 0 && answer->count > 0) {
        part->bytes = malloc(answer->count);
        if (part->bytes != NULL) memcpy(part->bytes, answer->bytes, answer->count);
        part->count = answer->count;
        if (part->bytes == NULL) part->error = ECONNABORTED; /* it was done, and nobody can say what came of it */
    }
    one_less(part->asked);
}

/* New, for the nodes of a tuple. NULL with an error set. */
static struct fsio_asked *to_ask(PyObject *self, PyObject *nodes, uint64_t serial) {
    Py_ssize_t count = PyTuple_Size(nodes);
    struct fsio_asked *asked = count < 0 ? NULL : calloc(1, sizeof *asked + (size_t)count * sizeof *asked->parts);
    if (asked == NULL) return count < 0 ? NULL : (PyErr_NoMemory(), NULL);
    asked->io = (io_object *)self;
    asked->serial = serial;
    asked->nodes = (size_t)count;
    atomic_init(&asked->left, asked->nodes + 1);
    for (size_t i = 0; i < asked->nodes; i++) {
        asked->parts[i].asked = asked;
        asked->parts[i].call = (struct peer_meta_call){.owner = self, .done = answered};
        asked->parts[i].node = (int32_t)PyLong_AsLong(PyTuple_GetItem(nodes, (Py_ssize_t)i));
    }
    if (!PyErr_Occurred()) return asked;
    free(asked);
    return NULL;
}

PyObject *fsio_ask_object(PyObject *self, PyObject *args) {
    ull serial, ino;
    int op;
    long long now;
    PyObject *nodes;
    const char *name, *value;
    Py_ssize_t name_length, value_length;
    if (!PyArg_ParseTuple(args, "KO!iKLy#y#:ask", &serial, &PyTuple_Type, &nodes, &op, &ino, &now, &name, &name_length, &value,
                          &value_length))
        return NULL;
    struct peer_meta *peer_meta = peer_meta_of(fsio_of_object(self));
    struct fsio_asked *asked = to_ask(self, nodes, serial);
    if (asked == NULL) return NULL;
    struct peer_meta_question question = {.op = (enum peer_meta_op)op,
                                          .ino = ino,
                                          .now = now,
                                          .name = name,
                                          .name_length = (size_t)name_length,
                                          .value = value,
                                          .value_length = (size_t)value_length};
    Py_BEGIN_ALLOW_THREADS;
    for (size_t i = 0; i < asked->nodes; i++) {
        struct part *part = &asked->parts[i];
        int error = peer_meta == NULL ? ENOTCONN : peer_meta_ask(peer_meta, part->node, &question, &part->call);
        if (error == 0) continue; /* from now on it may be answered */
        part->error = error;
        one_less(asked);
    }
    one_less(asked);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

static PyObject *answers_of(const struct fsio_asked *asked) {
    PyObject *list = PyList_New((Py_ssize_t)asked->nodes);
    for (size_t i = 0; list != NULL && i < asked->nodes; i++) {
        const struct part *part = &asked->parts[i];
        PyObject *answer = Py_BuildValue("(iy#)", part->error, part->count > 0 ? (const char *)part->bytes : "", (Py_ssize_t)part->count);
        if (answer == NULL || PyList_SetItem(list, (Py_ssize_t)i, answer) < 0) Py_CLEAR(list);
    }
    return list;
}

PyObject *fsio_answers_object(PyObject *self, PyObject *number) {
    ull serial = PyLong_AsUnsignedLongLong(number);
    io_object *io = (io_object *)self;
    if (PyErr_Occurred()) return NULL;
    pthread_mutex_lock(&io->answers_lock);
    struct fsio_asked **at = &io->answers, *asked;
    while (*at != NULL && (*at)->serial != serial) at = &(*at)->next;
    if ((asked = *at) != NULL) *at = asked->next;
    pthread_mutex_unlock(&io->answers_lock);
    if (asked == NULL) return py_failed(ENOENT);
    PyObject *answers = answers_of(asked);
    free_asked(asked);
    return answers;
}

void fsio_asking_end(io_object *io) {
    struct peer_meta *peer_meta = io->io == NULL ? NULL : peer_meta_of(io->io);
    if (peer_meta != NULL) WITHOUT_GIL(peer_meta_cancel(peer_meta, io, 0));
}

void fsio_asking_free(io_object *io) {
    for (struct fsio_asked *asked = io->answers, *next; asked != NULL; asked = next) {
        next = asked->next;
        free_asked(asked);
    }
    pthread_mutex_destroy(&io->answers_lock);
}
