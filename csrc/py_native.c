/* amfs._native: this and the py_*.c beside it are the only files that know Python. Buffers in, GIL off, one call, values out. Contracts: amfs/_native.pyi.
 *
 * One part per thing: helpers, XXH64, Launcher, Mover, the module. Stable ABI of Python 3.11, multi-phase initialisation.
 */
#include <Python.h>

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "launcher.h"
#include "mover.h"
#include "py_fsio.h"
#include "py_fuse.h"
#include "py_meta.h"
#include "xxh64.h"

/* ---------------------------------------------------------------------------------------------------------------- helpers */

typedef struct {
    PyTypeObject *launcher_type;
    PyTypeObject *mover_type;
} module_state;

/* The UTF-8 (with surrogate escapes, as file names have them) of a str. A new reference to bytes, or NULL with an error set. */
static PyObject *name_bytes(PyObject *text)
{
    if (!PyUnicode_Check(text)) {
        PyErr_Format(PyExc_TypeError, "expected str, not %R", Py_TYPE(text));
        return NULL;
    }
    return PyUnicode_AsEncodedString(text, "utf-8", "surrogateescape");
}

/* ------------------------------------------------------------------------------------------------------------------ XXH64 */

/* Hash of a str or any contiguous buffer. Returns 0, or -1 with an error set. */
static int hash_object(PyObject *data, uint64_t seed, uint64_t *hash)
{
    if (PyUnicode_Check(data)) {
        Py_ssize_t length;
        const char *text = PyUnicode_AsUTF8AndSize(data, &length);
        if (text != NULL) {
            *hash = amfs_xxh64(text, (size_t)length, seed);
            return 0;
        }
        if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError))
            return -1;
        PyErr_Clear(); /* a file name that is not UTF-8: hash the bytes it stands for */
        PyObject *bytes = name_bytes(data);
        if (bytes == NULL)
            return -1;
        *hash = amfs_xxh64(PyBytes_AsString(bytes), (size_t)PyBytes_Size(bytes), seed);
        Py_DECREF(bytes);
        return 0;
    }
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0)
        return -1;
    *hash = amfs_xxh64(view.buf, (size_t)view.len, seed);
    PyBuffer_Release(&view);
    return 0;
}

static PyObject *native_xxh64(PyObject *module, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"data", "seed", NULL};
    PyObject *data, *seed_object = NULL;
    uint64_t seed = 0, hash;

    (void)module;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|O:xxh64", names, &data, &seed_object))
        return NULL;
    if (seed_object != NULL) {
        seed = PyLong_AsUnsignedLongLong(seed_object);
        if (PyErr_Occurred())
            return NULL;
    }
    if (hash_object(data, seed, &hash) < 0)
        return NULL;
    return PyLong_FromUnsignedLongLong(hash);
}

static PyObject *native_partitions(PyObject *module, PyObject *args)
{
    PyObject *names;
    long long count;

    (void)module;
    if (!PyArg_ParseTuple(args, "OL:partitions", &names, &count))
        return NULL;
    if (count < 1) {
        PyErr_SetString(PyExc_ValueError, "the number of partitions must be at least 1");
        return NULL;
    }
    Py_ssize_t length = PySequence_Size(names);
    if (length < 0)
        return NULL;
    PyObject *result = PyList_New(length);
    if (result == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < length; i++) {
        uint64_t hash;
        PyObject *value = NULL, *name = PySequence_GetItem(names, i);
        if (name != NULL && hash_object(name, 0, &hash) == 0)
            value = PyLong_FromUnsignedLongLong(hash % (uint64_t)count);
        Py_XDECREF(name);
        if (value == NULL || PyList_SetItem(result, i, value) < 0) {
            Py_DECREF(result);
            return NULL;
        }
    }
    return result;
}

/* --------------------------------------------------------------------------------------------------------------- Launcher */

typedef struct {
    PyObject ob_base;
    amfs_launcher *launcher;
} launcher_object;

/* The launcher behind `self`, or NULL with an error set. */
static amfs_launcher *launcher_of(PyObject *self)
{
    amfs_launcher *launcher = ((launcher_object *)self)->launcher;
    if (launcher == NULL)
        PyErr_SetString(PyExc_RuntimeError, "this launcher was not initialised");
    else if (!amfs_launcher_is_ours(launcher)) {
        PyErr_SetString(PyExc_RuntimeError, "this launcher belongs to the process that this one was forked from");
        return NULL;
    }
    return launcher;
}

static PyObject *os_error(int number, const char *message)
{
    PyObject *error = PyObject_CallFunction(PyExc_OSError, "is", number, message);
    if (error != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_DECREF(error);
    }
    return NULL;
}

static int launcher_init(PyObject *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"slots", "memory", "sandbox_dir", "log_dir", NULL};
    launcher_object *object = (launcher_object *)self;
    PyObject *sandbox = NULL, *logs = NULL;
    Py_ssize_t slots;
    long long memory = 0;
    char fault[512];
    int failed;

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "n|$LO&O&:Launcher", names, &slots, &memory, PyUnicode_FSConverter, &sandbox,
                                     PyUnicode_FSConverter, &logs))
        goto error;
    if (sandbox == NULL || logs == NULL) {
        PyErr_SetString(PyExc_TypeError, "Launcher() needs sandbox_dir and log_dir");
        goto error;
    }
    if (slots < 1 || slots > 65536 || memory < 0) {
        PyErr_SetString(PyExc_ValueError, "slots must be from 1 to 65536, memory not negative");
        goto error;
    }
    if (object->launcher != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "this launcher is already initialised");
        goto error;
    }
    amfs_launcher_options options = {(uint32_t)slots, (uint64_t)memory, PyBytes_AsString(sandbox), PyBytes_AsString(logs)};
    Py_BEGIN_ALLOW_THREADS
    failed = amfs_launcher_new(&options, &object->launcher, fault, sizeof fault);
    Py_END_ALLOW_THREADS
    if (failed) {
        os_error(failed, fault);
        goto error;
    }
    Py_DECREF(sandbox);
    Py_DECREF(logs);
    return 0;
error:
    Py_XDECREF(sandbox);
    Py_XDECREF(logs);
    return -1;
}

static void launcher_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    amfs_launcher *launcher = ((launcher_object *)self)->launcher;

    if (launcher != NULL) {
        Py_BEGIN_ALLOW_THREADS
        amfs_launcher_free(launcher);
        Py_END_ALLOW_THREADS
    }
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyObject *launcher_fd(PyObject *self, void *closure)
{
    amfs_launcher *launcher = ((launcher_object *)self)->launcher;

    (void)closure;
    return launcher != NULL ? PyLong_FromLong(amfs_launcher_fd(launcher)) : PyLong_FromLong(-1);
}

static PyObject *launcher_set_context(PyObject *self, PyObject *args)
{
    amfs_launcher *launcher = launcher_of(self);
    unsigned long id;
    PyObject *base = NULL, *env, **kept = NULL, *result = NULL;
    const char **entries = NULL;
    Py_ssize_t count = 0;

    if (launcher == NULL || !PyArg_ParseTuple(args, "kO&O:set_context", &id, PyUnicode_FSConverter, &base, &env))
        return NULL;
    const char *path = PyBytes_AsString(base);
    if (id > UINT32_MAX || path[0] != '/') {
        PyErr_SetString(PyExc_ValueError, "a context needs a 32-bit number and an absolute base directory");
        goto done;
    }
    Py_ssize_t length = PySequence_Size(env);
    if (length < 0)
        goto done;
    kept = calloc((size_t)length + 1, sizeof *kept);
    entries = calloc((size_t)length + 1, sizeof *entries);
    if (kept == NULL || entries == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    for (; count < length; count++) {
        PyObject *entry = PySequence_GetItem(env, count);
        kept[count] = entry != NULL ? name_bytes(entry) : NULL;
        Py_XDECREF(entry);
        char *text;
        if (kept[count] == NULL || PyBytes_AsStringAndSize(kept[count], &text, NULL) < 0)
            goto done; /* ValueError: a NUL inside */
        entries[count] = text;
        if (text[0] == '=' || strchr(text, '=') == NULL) {
            PyErr_Format(PyExc_ValueError, "environment entry %zd is not NAME=VALUE", count);
            goto done;
        }
    }
    if (amfs_launcher_set_context(launcher, (uint32_t)id, path, entries, (size_t)length) != 0)
        PyErr_NoMemory();
    else
        result = Py_NewRef(Py_None);
done:
    for (Py_ssize_t i = 0; kept != NULL && i <= length && kept[i] != NULL; i++)
        Py_DECREF(kept[i]);
    free(kept);
    free(entries);
    Py_DECREF(base);
    return result;
}

static PyObject *launcher_drop_context(PyObject *self, PyObject *number)
{
    amfs_launcher *launcher = launcher_of(self);
    unsigned long id = launcher != NULL ? PyLong_AsUnsignedLong(number) : 0;

    if (launcher == NULL || PyErr_Occurred())
        return NULL;
    amfs_launcher_drop_context(launcher, (uint32_t)id);
    return Py_NewRef(Py_None);
}

static PyObject *launcher_submit(PyObject *self, PyObject *records)
{
    amfs_launcher *launcher = launcher_of(self);
    PyObject *result = NULL;
    Py_ssize_t done = 0;
    char fault[256];
    uint64_t odd = 0;

    Py_ssize_t count = launcher != NULL ? PySequence_Size(records) : -1;
    if (count < 0)
        return NULL;
    amfs_task **tasks = calloc((size_t)count + 1, sizeof *tasks);
    if (tasks == NULL)
        return PyErr_NoMemory();
    for (; done < count; done++) {
        PyObject *record = PySequence_GetItem(records, done);
        Py_buffer view;
        if (record == NULL)
            goto error;
        if (PyObject_GetBuffer(record, &view, PyBUF_SIMPLE) < 0) {
            Py_DECREF(record);
            goto error;
        }
        tasks[done] = amfs_task_parse(view.buf, (size_t)view.len, fault, sizeof fault);
        PyBuffer_Release(&view);
        Py_DECREF(record);
        if (tasks[done] == NULL) {
            if (fault[0] != '\0')
                PyErr_SetString(PyExc_ValueError, fault);
            else
                PyErr_NoMemory();
            goto error;
        }
    }
    switch (amfs_launcher_submit(launcher, tasks, (size_t)count, &odd)) {
    case 0:
        result = Py_NewRef(Py_None);
        done = 0; /* they are the launcher's */
        break;
    case ESHUTDOWN:
        PyErr_SetString(PyExc_RuntimeError, "the launcher is stopped");
        break;
    default:
        PyErr_Format(PyExc_ValueError, "record %llu: its context is not set", (unsigned long long)odd);
    }
error:
    for (Py_ssize_t i = 0; i < done; i++)
        amfs_task_free(tasks[i]);
    free(tasks);
    return result;
}

/* Put `value` (stolen; NULL: an error is set) at `at`. Returns 0 or -1. */
static int put(PyObject *tuple, Py_ssize_t at, PyObject *value)
{
    return value == NULL ? -1 : PyTuple_SetItem(tuple, at, value);
}

static PyObject *stamps_tuple(const amfs_completion *completion)
{
    PyObject *stamps = PyTuple_New((Py_ssize_t)completion->output_count);
    for (uint32_t i = 0; stamps != NULL && i < completion->output_count; i++) {
        const amfs_stamp *stamp = &completion->outputs[i];
        if (put(stamps, (Py_ssize_t)i,
                Py_BuildValue("(KK)", (unsigned long long)stamp->size, (unsigned long long)stamp->mtime_ns)) < 0)
            Py_CLEAR(stamps);
    }
    return stamps;
}

static PyObject *completion_tuple(const amfs_completion *completion)
{
    const char *detail = completion->detail != NULL ? completion->detail : "";
    PyObject *tuple = PyTuple_New(12);

    if (tuple == NULL)
        return NULL;
    if (put(tuple, 0, PyLong_FromUnsignedLongLong(completion->serial)) < 0 || put(tuple, 1, PyLong_FromLong(completion->outcome)) < 0 ||
        put(tuple, 2, PyLong_FromLong(completion->code)) < 0 || put(tuple, 3, PyLong_FromLong(completion->slot)) < 0 ||
        put(tuple, 4, PyLong_FromLongLong(completion->start_us)) < 0 || put(tuple, 5, PyLong_FromLongLong(completion->end_us)) < 0 ||
        put(tuple, 6, PyLong_FromLongLong(completion->cpu_us)) < 0 || put(tuple, 7, PyLong_FromLongLong(completion->maxrss_kib)) < 0 ||
        put(tuple, 8, stamps_tuple(completion)) < 0 ||
        put(tuple, 9, PyBytes_FromStringAndSize(completion->out, (Py_ssize_t)completion->out_length)) < 0 ||
        put(tuple, 10, PyBytes_FromStringAndSize(completion->err, (Py_ssize_t)completion->err_length)) < 0 ||
        put(tuple, 11, PyUnicode_DecodeUTF8(detail, (Py_ssize_t)strlen(detail), "surrogateescape")) < 0)
        Py_CLEAR(tuple);
    return tuple;
}

static PyObject *launcher_completions(PyObject *self, PyObject *unused)
{
    amfs_launcher *launcher = launcher_of(self);

    (void)unused;
    PyObject *list = launcher != NULL ? PyList_New(0) : NULL;
    if (list == NULL)
        return NULL;
    for (amfs_completion *at = amfs_launcher_take(launcher), *next; at != NULL; at = next) {
        next = at->next;
        PyObject *tuple = list != NULL ? completion_tuple(at) : NULL;
        if (list != NULL && (tuple == NULL || PyList_Append(list, tuple) < 0))
            Py_CLEAR(list);
        Py_XDECREF(tuple);
        amfs_completion_free(at);
    }
    return list;
}

static PyObject *launcher_kill(PyObject *self, PyObject *numbers)
{
    amfs_launcher *launcher = launcher_of(self);
    Py_ssize_t count = launcher != NULL ? PySequence_Size(numbers) : -1;

    if (count < 0)
        return NULL;
    uint64_t *serials = calloc((size_t)count + 1, sizeof *serials);
    if (serials == NULL)
        return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count && !PyErr_Occurred(); i++) {
        PyObject *number = PySequence_GetItem(numbers, i);
        serials[i] = number != NULL ? PyLong_AsUnsignedLongLong(number) : 0;
        Py_XDECREF(number);
    }
    if (!PyErr_Occurred() && amfs_launcher_kill(launcher, serials, (size_t)count) != 0)
        PyErr_NoMemory();
    free(serials);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static PyObject *launcher_withdraw(PyObject *self, PyObject *number)
{
    amfs_launcher *launcher = launcher_of(self);
    size_t wanted = launcher != NULL ? PyLong_AsSize_t(number) : 0;

    if (launcher == NULL || PyErr_Occurred())
        return NULL;
    size_t most = amfs_launcher_queued(launcher);
    if (wanted > most)
        wanted = most; /* only we add to the queue, and we hold the GIL: it can only have become shorter */
    uint64_t *serials = calloc(wanted + 1, sizeof *serials);
    if (serials == NULL)
        return PyErr_NoMemory();
    size_t count = amfs_launcher_withdraw(launcher, wanted, serials);
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; i < count && list != NULL; i++) {
        PyObject *serial = PyLong_FromUnsignedLongLong(serials[i]);
        if (serial == NULL || PyList_SetItem(list, (Py_ssize_t)i, serial) < 0)
            Py_CLEAR(list);
    }
    free(serials);
    return list;
}

static PyObject *launcher_queued(PyObject *self, PyObject *unused)
{
    amfs_launcher *launcher = launcher_of(self);
    (void)unused;
    return launcher != NULL ? PyLong_FromSize_t(amfs_launcher_queued(launcher)) : NULL;
}

static PyObject *launcher_running(PyObject *self, PyObject *unused)
{
    amfs_launcher *launcher = launcher_of(self);
    (void)unused;
    return launcher != NULL ? PyLong_FromSize_t(amfs_launcher_running(launcher)) : NULL;
}

static PyObject *launcher_cpu_us(PyObject *self, PyObject *unused)
{
    amfs_launcher *launcher = launcher_of(self);
    (void)unused;
    return launcher != NULL ? PyLong_FromLongLong(amfs_launcher_cpu_us(launcher)) : NULL;
}

static PyObject *launcher_stop(PyObject *self, PyObject *unused)
{
    amfs_launcher *launcher = launcher_of(self);

    (void)unused;
    if (launcher == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    amfs_launcher_stop(launcher);
    Py_END_ALLOW_THREADS
    return Py_NewRef(Py_None);
}

static PyMethodDef launcher_methods[] = {
    {"set_context", launcher_set_context, METH_VARARGS, "set_context(context, base, env)"},
    {"drop_context", launcher_drop_context, METH_O, "drop_context(context)"},
    {"submit", launcher_submit, METH_O, "submit(records)"},
    {"completions", launcher_completions, METH_NOARGS, "completions()"},
    {"kill", launcher_kill, METH_O, "kill(serials)"},
    {"withdraw", launcher_withdraw, METH_O, "withdraw(count)"},
    {"queued", launcher_queued, METH_NOARGS, "queued()"},
    {"running", launcher_running, METH_NOARGS, "running()"},
    {"cpu_us", launcher_cpu_us, METH_NOARGS, "cpu_us()"},
    {"stop", launcher_stop, METH_NOARGS, "stop()"},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef launcher_getset[] = {
    {"fd", launcher_fd, NULL, "eventfd, readable while completions wait", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot launcher_slots[] = {
    {Py_tp_doc, (void *)(uintptr_t)"Starts processes from packed records on a thread of its own."},
    {Py_tp_init, (void *)(uintptr_t)launcher_init},
    {Py_tp_dealloc, (void *)(uintptr_t)launcher_dealloc},
    {Py_tp_methods, launcher_methods},
    {Py_tp_getset, launcher_getset},
    {0, NULL},
};

static PyType_Spec launcher_spec = {
    .name = "amfs._native.Launcher",
    .basicsize = sizeof(launcher_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = launcher_slots,
};

/* ------------------------------------------------------------------------------------------------------------------ Mover */

typedef struct {
    PyObject_HEAD
    struct mover *mover;
} mover_object;

/* A str as the bytes of a path or host. A new reference, or NULL with an error set. */
static PyObject *path_bytes(PyObject *text)
{
    PyObject *bytes = name_bytes(text);
    if (bytes != NULL && strlen(PyBytes_AsString(bytes)) != (size_t)PyBytes_Size(bytes)) {
        PyErr_SetString(PyExc_ValueError, "a path or host name contains a NUL character");
        Py_CLEAR(bytes);
    }
    return bytes;
}

static PyObject *mover_object_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"threads", "listen", NULL};
    int threads = 2;
    const char *listen = "";
    char error[256] = "";

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|i$s:Mover", names, &threads, &listen))
        return NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    mover_object *self = (mover_object *)allocate(type, 0);
    if (self == NULL)
        return NULL;
    self->mover = mover_new(threads, listen, error, sizeof error);
    if (self->mover == NULL) {
        Py_DECREF(self);
        PyErr_SetString(threads < 1 || threads > MOVER_THREADS_MAX ? PyExc_ValueError : PyExc_OSError, error);
        return NULL;
    }
    return (PyObject *)self;
}

static void mover_object_dealloc(mover_object *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    if (self->mover != NULL) {
        Py_BEGIN_ALLOW_THREADS
        mover_free(self->mover);
        Py_END_ALLOW_THREADS
    }
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* What a queueing function returned: None, or MemoryError. */
static PyObject *mover_queued(int error)
{
    if (error != 0)
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *mover_object_copy(mover_object *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"serial", "source", "destination", "mode", "directories", NULL};
    unsigned long long serial;
    unsigned mode;
    int directories = 1;
    PyObject *source_text, *destination_text, *source, *destination, *result = NULL;

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "KUUI|$p:copy", names, &serial, &source_text, &destination_text, &mode, &directories))
        return NULL;
    source = path_bytes(source_text);
    destination = source == NULL ? NULL : path_bytes(destination_text);
    if (destination != NULL)
        result = mover_queued(
            mover_copy(self->mover, serial, PyBytes_AsString(source), PyBytes_AsString(destination), mode, directories));
    Py_XDECREF(source);
    Py_XDECREF(destination);
    return result;
}

static PyObject *mover_object_offer(mover_object *self, PyObject *args)
{
    PyObject *text, *path;
    uint8_t ticket[MOVER_TICKET_BYTES];

    if (!PyArg_ParseTuple(args, "U:offer", &text) || (path = path_bytes(text)) == NULL)
        return NULL;
    errno = mover_offer(self->mover, PyBytes_AsString(path), ticket);
    Py_DECREF(path);
    if (errno == ENOTCONN) {
        PyErr_SetString(PyExc_RuntimeError, "this mover does not listen: it has nobody to offer files to");
        return NULL;
    }
    if (errno != 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    return PyBytes_FromStringAndSize((const char *)ticket, MOVER_TICKET_BYTES);
}

static PyObject *mover_object_fetch(mover_object *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"serial", "host", "port", "ticket", "size", "destination", "mode", NULL};
    unsigned long long serial, size;
    int port;
    unsigned mode;
    char *ticket;
    Py_ssize_t ticket_length;
    PyObject *host_text, *destination_text, *ticket_bytes, *host, *destination, *result = NULL;

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "KUiSKUI:fetch", names, &serial, &host_text, &port, &ticket_bytes, &size,
                                     &destination_text, &mode))
        return NULL;
    if (PyBytes_AsStringAndSize(ticket_bytes, &ticket, &ticket_length) < 0)
        return NULL;
    if (ticket_length != MOVER_TICKET_BYTES) {
        PyErr_Format(PyExc_ValueError, "a ticket has %d bytes, not %zd", MOVER_TICKET_BYTES, ticket_length);
        return NULL;
    }
    if (port < 1 || port > 65535) {
        PyErr_Format(PyExc_ValueError, "%d is no port number", port);
        return NULL;
    }
    host = path_bytes(host_text);
    destination = host == NULL ? NULL : path_bytes(destination_text);
    if (destination != NULL)
        result = mover_queued(mover_fetch(self->mover, serial, PyBytes_AsString(host), port, (const uint8_t *)ticket, size,
                                          PyBytes_AsString(destination), mode));
    Py_XDECREF(host);
    Py_XDECREF(destination);
    return result;
}

static PyObject *mover_object_completions(mover_object *self, PyObject *unused)
{
    (void)unused;
    PyObject *result = PyList_New(0);
    struct mover_done *all = result == NULL ? NULL : mover_take(self->mover);
    for (struct mover_done *done = all; done != NULL; done = done->next) {
        const char *error = done->error != NULL ? done->error : "";
        /* not surrogateescape: the text is for people and terminals, and cannot be opened */
        PyObject *text = PyUnicode_DecodeUTF8(error, (Py_ssize_t)strlen(error), "backslashreplace");
        PyObject *entry = text == NULL ? NULL : Py_BuildValue("(KNK)", (unsigned long long)done->serial, text, (unsigned long long)done->bytes);
        if (entry == NULL || PyList_Append(result, entry) < 0) {
            Py_XDECREF(entry);
            Py_CLEAR(result);
            break;
        }
        Py_DECREF(entry);
    }
    mover_done_free(all);
    return result;
}

static PyObject *mover_object_counters(mover_object *self, PyObject *unused)
{
    (void)unused;
    struct mover_counters counters;
    mover_read_counters(self->mover, &counters);
    return Py_BuildValue("{s:K,s:K,s:K,s:K}", "bytes_copied", (unsigned long long)counters.bytes_copied, "bytes_fetched",
                         (unsigned long long)counters.bytes_fetched, "bytes_served", (unsigned long long)counters.bytes_served, "cpu_us",
                         (unsigned long long)counters.cpu_us);
}

static PyObject *mover_object_stop(mover_object *self, PyObject *unused)
{
    (void)unused;
    Py_BEGIN_ALLOW_THREADS
    mover_stop(self->mover);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *mover_object_fd(mover_object *self, void *unused)
{
    (void)unused;
    return PyLong_FromLong(mover_fd(self->mover));
}

static PyObject *mover_object_port(mover_object *self, void *unused)
{
    (void)unused;
    return PyLong_FromLong(mover_port(self->mover));
}

static PyMethodDef mover_methods[] = {
    {"copy", (PyCFunction)(void (*)(void))mover_object_copy, METH_VARARGS | METH_KEYWORDS,
     "Copy a regular file on this node; ends as a completion."},
    {"offer", (PyCFunction)(void (*)(void))mover_object_offer, METH_VARARGS, "A new ticket for one fetch of a file."},
    {"fetch", (PyCFunction)(void (*)(void))mover_object_fetch, METH_VARARGS | METH_KEYWORDS,
     "Get a file from another mover's data port; ends as a completion."},
    {"completions", (PyCFunction)(void (*)(void))mover_object_completions, METH_NOARGS, "(serial, error, bytes) of what ended, oldest first."},
    {"counters", (PyCFunction)(void (*)(void))mover_object_counters, METH_NOARGS, "bytes_copied, bytes_fetched, bytes_served, cpu_us."},
    {"stop", (PyCFunction)(void (*)(void))mover_object_stop, METH_NOARGS, "End the threads; unfinished jobs complete as \"stopped\"."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef mover_properties[] = {
    {"fd", (getter)(void (*)(void))mover_object_fd, NULL, "eventfd, readable while completions wait", NULL},
    {"port", (getter)(void (*)(void))mover_object_port, NULL, "data port, 0 if not listening", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot mover_slots[] = {
    {Py_tp_doc, "Copies files on threads of its own: on this node, and between nodes over TCP."},
    {Py_tp_new, (void *)(uintptr_t)mover_object_new},
    {Py_tp_dealloc, (void *)(uintptr_t)mover_object_dealloc},
    {Py_tp_methods, mover_methods},
    {Py_tp_getset, mover_properties},
    {0, NULL},
};

static PyType_Spec mover_spec = {
    .name = "amfs._native.Mover",
    .basicsize = sizeof(mover_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = mover_slots,
};

/* ----------------------------------------------------------------------------------------------------------------- module */

static PyMethodDef module_methods[] = {
    {"xxh64", (PyCFunction)(void (*)(void))native_xxh64, METH_VARARGS | METH_KEYWORDS,
     "xxh64(data, seed=0)\n--\n\nXXH64 of the bytes (str: its UTF-8)."},
    {"partitions", native_partitions, METH_VARARGS, "partitions(names, count)\n--\n\nxxh64(name) % count for each name."},
    {NULL, NULL, 0, NULL},
};

/* Make a type and add it to the module. Returns 0, or -1 with an error set. */
static int add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **type)
{
    *type = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    return *type == NULL ? -1 : PyModule_AddType(module, *type);
}

static int module_exec(PyObject *module)
{
    module_state *state = PyModule_GetState(module);
    if (add_type(module, &launcher_spec, &state->launcher_type) < 0)
        return -1;
    if (add_type(module, &mover_spec, &state->mover_type) < 0)
        return -1;
    if (add_fsio(module) < 0 || add_fuse(module) < 0)
        return -1;
    return add_meta(module);
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    module_state *state = PyModule_GetState(module);
    Py_VISIT(state->launcher_type);
    Py_VISIT(state->mover_type);
    return 0;
}

static int module_clear(PyObject *module)
{
    module_state *state = PyModule_GetState(module);
    Py_CLEAR(state->launcher_type);
    Py_CLEAR(state->mover_type);
    return 0;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, (void *)(uintptr_t)module_exec},
    {0, NULL},
};

static struct PyModuleDef module_definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "amfs._native",
    .m_doc = "XXH64, the launcher thread and the data mover.",
    .m_size = sizeof(module_state),
    .m_methods = module_methods,
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
};

PyMODINIT_FUNC PyInit__native(void);

PyMODINIT_FUNC PyInit__native(void)
{
    return PyModuleDef_Init(&module_definition);
}
