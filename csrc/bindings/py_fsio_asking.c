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

/* The same question to some nodes. */
struct step {
    struct peer_meta_question question;
    uint8_t *bytes; /* its name and value */
    Py_ssize_t
        fill; /* where in its value the u64 goes that the step before was answered; -1: that must have been answered zeros, or nothing */
    size_t nodes;
    struct part *parts;
};

/* Steps, of which one begins when all nodes have answered the one before as it must be. Ended when none does any more. */
struct fsio_asked {
    struct fsio_asked *next;
    io_object *io;
    uint64_t serial;
    atomic_size_t left; /* of the nodes of the last step that has begun */
    size_t steps, begun;
    struct step each[];
};

static void free_asked(struct fsio_asked *asked) {
    for (size_t i = 0; asked != NULL && i < asked->steps; i++) {
        struct step *step = &asked->each[i];
        for (size_t k = 0; k < step->nodes; k++) free(step->parts[k].bytes);
        free(step->parts);
        free(step->bytes);
    }
    free(asked);
}

static bool is_zero(const struct part *part) {
    for (size_t i = 0; i < part->count; i++)
        if (part->bytes[i] != 0) return false;
    return true;
}

/* Does the next step begin? Then what it needs of the last one is in it. */
static bool goes_on(struct fsio_asked *asked) {
    const struct step *last = &asked->each[asked->begun - 1];
    struct step *next = last + 1;
    if (asked->begun == asked->steps || atomic_load(&asked->io->asks_no_more)) return false;
    for (size_t i = 0; i < last->nodes; i++) {
        const struct part *part = &last->parts[i];
        if (part->error != 0 || (next->fill < 0 && !is_zero(part))) return false;
    }
    if (next->fill < 0) return true;
    if (last->nodes != 1 || last->parts[0].count != 8) return false;
    memcpy(next->bytes + next->question.name_length + next->fill, last->parts[0].bytes, 8);
    return true;
}

static void begin_step(struct fsio_asked *asked);

static void one_less(struct fsio_asked *asked) {
    io_object *io = asked->io;
    uint64_t serial = asked->serial;
    if (atomic_fetch_sub(&asked->left, 1) != 1) return;
    if (goes_on(asked)) {
        begin_step(asked);
        return;
    }
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
        part->count = part->bytes != NULL ? answer->count : 0;
        if (part->bytes == NULL) part->error = ECONNABORTED; /* it was done, and nobody can say what came of it */
    }
    one_less(part->asked);
}

static void begin_step(struct fsio_asked *asked) {
    struct peer_meta *peer_meta = peer_meta_of(asked->io->io);
    struct step *step = &asked->each[asked->begun++];
    atomic_store(&asked->left, step->nodes + 1);
    for (size_t i = 0; i < step->nodes; i++) {
        struct part *part = &step->parts[i];
        int error = peer_meta == NULL ? ENOTCONN : peer_meta_ask(peer_meta, part->node, &step->question, &part->call);
        if (error == 0) continue; /* from now on it may be answered */
        part->error = error;
        one_less(asked);
    }
    one_less(asked);
}

/* False with an error set. */
static bool read_step(struct fsio_asked *asked, struct step *step, PyObject *from) {
    ull ino;
    int op;
    long long now;
    PyObject *nodes;
    const char *name, *value;
    Py_ssize_t name_length, value_length;
    if (!PyArg_ParseTuple(from, "O!iKLy#y#n:ask", &PyTuple_Type, &nodes, &op, &ino, &now, &name, &name_length, &value, &value_length,
                          &step->fill))
        return false;
    if (step->fill >= 0 && step->fill > value_length - 8) {
        PyErr_SetString(PyExc_ValueError, "no place for a number");
        return false;
    }
    size_t count = (size_t)PyTuple_Size(nodes);
    step->parts = calloc(count + 1, sizeof *step->parts);
    step->bytes = malloc((size_t)(name_length + value_length) + 1);
    if (step->parts == NULL || step->bytes == NULL) {
        PyErr_NoMemory();
        return false;
    }
    step->nodes = count;
    memcpy(step->bytes, name, (size_t)name_length);
    memcpy(step->bytes + name_length, value, (size_t)value_length);
    step->question = (struct peer_meta_question){.op = (enum peer_meta_op)op,
                                                 .ino = ino,
                                                 .now = now,
                                                 .name = (const char *)step->bytes,
                                                 .name_length = (size_t)name_length,
                                                 .value = step->bytes + name_length,
                                                 .value_length = (size_t)value_length};
    for (size_t i = 0; i < count; i++) {
        step->parts[i].asked = asked;
        step->parts[i].call = (struct peer_meta_call){.owner = asked->io, .done = answered};
        step->parts[i].node = (int32_t)PyLong_AsLong(PyTuple_GetItem(nodes, (Py_ssize_t)i));
    }
    return PyErr_Occurred() == NULL;
}

PyObject *fsio_ask_object(PyObject *self, PyObject *args) {
    ull serial;
    PyObject *steps;
    if (!PyArg_ParseTuple(args, "KO!:ask", &serial, &PyTuple_Type, &steps)) return NULL;
    size_t count = (size_t)PyTuple_Size(steps);
    struct fsio_asked *asked = calloc(1, sizeof *asked + count * sizeof *asked->each);
    if (asked == NULL) return PyErr_NoMemory();
    *asked = (struct fsio_asked){.io = (io_object *)self, .serial = serial, .steps = count};
    bool good = count > 0;
    if (!good) PyErr_SetString(PyExc_ValueError, "nothing is asked");
    for (size_t i = 0; i < count && good; i++) {
        PyObject *step = PyTuple_GetItem(steps, (Py_ssize_t)i);
        good = PyTuple_Check(step) && read_step(asked, &asked->each[i], step);
        if (!good && !PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a step is a tuple");
    }
    if (!good) {
        free_asked(asked);
        return NULL;
    }
    WITHOUT_GIL(begin_step(asked));
    Py_RETURN_NONE;
}

static PyObject *answers_of(const struct step *step) {
    PyObject *list = PyList_New((Py_ssize_t)step->nodes);
    for (size_t i = 0; list != NULL && i < step->nodes; i++) {
        const struct part *part = &step->parts[i];
        PyObject *answer = Py_BuildValue("(iy#)", part->error, part->count > 0 ? (const char *)part->bytes : "", (Py_ssize_t)part->count);
        if (answer == NULL || PyList_SetItem(list, (Py_ssize_t)i, answer) < 0) Py_CLEAR(list);
    }
    return list;
}

static PyObject *answers_of_steps(const struct fsio_asked *asked) {
    PyObject *list = PyList_New((Py_ssize_t)asked->begun);
    for (size_t i = 0; list != NULL && i < asked->begun; i++) {
        PyObject *answers = answers_of(&asked->each[i]);
        if (answers == NULL || PyList_SetItem(list, (Py_ssize_t)i, answers) < 0) Py_CLEAR(list);
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
    PyObject *answers = answers_of_steps(asked);
    free_asked(asked);
    return answers;
}

void fsio_asking_end(io_object *io) {
    struct peer_meta *peer_meta = io->io == NULL ? NULL : peer_meta_of(io->io);
    atomic_store(&io->asks_no_more, true);
    if (peer_meta == NULL) return;
    WITHOUT_GIL(peer_meta_cancel(peer_meta, io, 0));
    WITHOUT_GIL(peer_meta_cancel(peer_meta, io, 0)); /* an answer that came just before may have led to another question */
}

void fsio_asking_free(io_object *io) {
    for (struct fsio_asked *asked = io->answers, *next; asked != NULL; asked = next) {
        next = asked->next;
        free_asked(asked);
    }
    pthread_mutex_destroy(&io->answers_lock);
}
