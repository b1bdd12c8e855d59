/* amfs._native.Launcher: starting processes for Python. Contracts: amfs/_native.pyi, launcher.h. */
#include "py_common.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/attempts.h"
#include "launcher/launcher.h"

typedef struct {
    PyObject ob_base;
    amfs_launcher *launcher;
} launcher_object;

/* The launcher behind `self`, or NULL with an error set. */
static amfs_launcher *launcher_of(PyObject *self) {
    amfs_launcher *launcher = ((launcher_object *)self)->launcher;
    if (launcher == NULL) PyErr_SetString(PyExc_RuntimeError, "this launcher was not initialised");
    else if (!amfs_launcher_is_ours(launcher)) {
        PyErr_SetString(PyExc_RuntimeError, "this launcher belongs to the process that this one was forked from");
        return NULL;
    }
    return launcher;
}

static PyObject *os_error(int number, const char *message) {
    PyObject *error = PyObject_CallFunction(PyExc_OSError, "is", number, message);
    if (error != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_DECREF(error);
    }
    return NULL;
}

static int launcher_init(PyObject *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"slots", "memory", "sandbox_dir", "log_dir", "mount_dir", "watcher", "kills", "last_words", NULL};
    launcher_object *object = (launcher_object *)self;
    PyObject *sandbox = NULL, *logs = NULL, *mount = NULL, *watcher = NULL, *kills = NULL, *words = NULL;
    Py_ssize_t slots;
    long long memory = 0;
    char fault[512];
    int failed;

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "n|$LO&O&O&O&O&O&:Launcher", names, &slots, &memory, PyUnicode_FSConverter, &sandbox,
                                     PyUnicode_FSConverter, &logs, PyUnicode_FSConverter, &mount, PyUnicode_FSConverter, &watcher,
                                     PyUnicode_FSConverter, &kills, PyUnicode_FSConverter, &words))
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
    amfs_launcher_options options = {(uint32_t)slots,
                                     (uint64_t)memory,
                                     PyBytes_AsString(sandbox),
                                     PyBytes_AsString(logs),
                                     mount != NULL ? PyBytes_AsString(mount) : NULL,
                                     watcher != NULL ? PyBytes_AsString(watcher) : NULL,
                                     kills != NULL ? PyBytes_AsString(kills) : NULL,
                                     words != NULL ? PyBytes_AsString(words) : NULL};
    WITHOUT_GIL(failed = amfs_launcher_new(&options, &object->launcher, fault, sizeof fault));
    if (failed) {
        os_error(failed, fault);
        goto error;
    }
    Py_DECREF(sandbox);
    Py_DECREF(logs);
    Py_XDECREF(mount);
    Py_XDECREF(watcher);
    Py_XDECREF(kills);
    Py_XDECREF(words);
    return 0;
error:
    Py_XDECREF(sandbox);
    Py_XDECREF(logs);
    Py_XDECREF(mount);
    Py_XDECREF(watcher);
    Py_XDECREF(kills);
    Py_XDECREF(words);
    return -1;
}

static void launcher_dealloc(PyObject *self) {
    amfs_launcher *launcher = ((launcher_object *)self)->launcher;

    if (launcher != NULL) WITHOUT_GIL(amfs_launcher_free(launcher));
    py_free_object(self);
}

static PyObject *launcher_fd(PyObject *self, void *closure) {
    amfs_launcher *launcher = ((launcher_object *)self)->launcher;

    (void)closure;
    return launcher != NULL ? PyLong_FromLong(amfs_launcher_fd(launcher)) : PyLong_FromLong(-1);
}

/* The soft limits in a sequence of numbers: -1: none, -2: not given. 0 or -1. */
static int read_customs(int umask, PyObject *nice, PyObject *limits, amfs_customs *customs) {
    uint64_t soft[RLIM_NLIMITS];
    bool given[RLIM_NLIMITS] = {false};
    bool niced = nice != NULL && nice != Py_None;
    Py_ssize_t count = limits != NULL ? PySequence_Size(limits) : 0;
    long level = niced ? PyLong_AsLong(nice) : 0;

    if (count > RLIM_NLIMITS) count = RLIM_NLIMITS;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *number = PySequence_GetItem(limits, i);
        long long value = number != NULL ? PyLong_AsLongLong(number) : -2;
        Py_XDECREF(number);
        soft[i] = value < 0 ? UINT64_MAX : (uint64_t)value;
        given[i] = value != -2;
    }
    if (PyErr_Occurred()) return -1;
    amfs_customs_set(customs, umask, niced, (int)level, soft, given, (unsigned)count);
    return 0;
}

static PyObject *launcher_set_context(PyObject *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"context", "base", "env", "umask", "nice", "limits", NULL};
    amfs_launcher *launcher = launcher_of(self);
    unsigned long id;
    PyObject *base = NULL, *env, **kept = NULL, *result = NULL, *nice = NULL, *limits = NULL;
    const char **entries = NULL;
    Py_ssize_t count = 0;
    int umask = -1;
    amfs_customs customs;

    if (launcher == NULL || !PyArg_ParseTupleAndKeywords(args, keywords, "kO&O|iOO:set_context", names, &id, PyUnicode_FSConverter, &base,
                                                         &env, &umask, &nice, &limits))
        return NULL;
    const char *path = PyBytes_AsString(base);
    if (read_customs(umask, nice, limits, &customs) < 0) goto done;
    if (id > UINT32_MAX || path[0] != '/') {
        PyErr_SetString(PyExc_ValueError, "a context needs a 32-bit number and an absolute base directory");
        goto done;
    }
    Py_ssize_t length = PySequence_Size(env);
    if (length < 0) goto done;
    kept = calloc((size_t)length + 1, sizeof *kept);
    entries = calloc((size_t)length + 1, sizeof *entries);
    if (kept == NULL || entries == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    for (; count < length; count++) {
        PyObject *entry = PySequence_GetItem(env, count);
        kept[count] = entry != NULL ? py_name_bytes(entry) : NULL;
        Py_XDECREF(entry);
        char *text;
        if (kept[count] == NULL || PyBytes_AsStringAndSize(kept[count], &text, NULL) < 0) goto done; /* ValueError: a NUL inside */
        entries[count] = text;
        if (text[0] == '=' || strchr(text, '=') == NULL) {
            PyErr_Format(PyExc_ValueError, "environment entry %zd is not NAME=VALUE", count);
            goto done;
        }
    }
    if (amfs_launcher_set_context(launcher, (uint32_t)id, path, entries, (size_t)length, &customs) != 0) PyErr_NoMemory();
    else result = Py_NewRef(Py_None);
done:
    for (Py_ssize_t i = 0; kept != NULL && i <= length && kept[i] != NULL; i++) Py_DECREF(kept[i]);
    free(kept);
    free(entries);
    Py_DECREF(base);
    return result;
}

static PyObject *launcher_drop_context(PyObject *self, PyObject *number) {
    amfs_launcher *launcher = launcher_of(self);
    unsigned long id = launcher != NULL ? PyLong_AsUnsignedLong(number) : 0;

    if (launcher == NULL || PyErr_Occurred()) return NULL;
    amfs_launcher_drop_context(launcher, (uint32_t)id);
    return Py_NewRef(Py_None);
}

static PyObject *launcher_enter(PyObject *self, PyObject *number) {
    amfs_launcher *launcher = launcher_of(self);
    long pid = launcher != NULL ? PyLong_AsLong(number) : 0;

    if (launcher == NULL || PyErr_Occurred()) return NULL;
    if (pid < 0 || pid > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "not the number of a process");
        return NULL;
    }
    amfs_launcher_enter(launcher, (pid_t)pid);
    return Py_NewRef(Py_None);
}

static PyObject *launcher_submit(PyObject *self, PyObject *records) {
    amfs_launcher *launcher = launcher_of(self);
    PyObject *result = NULL;
    Py_ssize_t done = 0;
    char fault[256];
    uint64_t odd = 0;

    Py_ssize_t count = launcher != NULL ? PySequence_Size(records) : -1;
    if (count < 0) return NULL;
    amfs_task **tasks = calloc((size_t)count + 1, sizeof *tasks);
    if (tasks == NULL) return PyErr_NoMemory();
    for (; done < count; done++) {
        PyObject *record = PySequence_GetItem(records, done);
        Py_buffer view;
        if (record == NULL) goto error;
        if (PyObject_GetBuffer(record, &view, PyBUF_SIMPLE) < 0) {
            Py_DECREF(record);
            goto error;
        }
        tasks[done] = amfs_task_parse(view.buf, (size_t)view.len, fault, sizeof fault);
        PyBuffer_Release(&view);
        Py_DECREF(record);
        if (tasks[done] == NULL) {
            if (fault[0] != '\0') PyErr_SetString(PyExc_ValueError, fault);
            else PyErr_NoMemory();
            goto error;
        }
    }
    switch (amfs_launcher_submit(launcher, tasks, (size_t)count, &odd)) {
    case 0:
        result = Py_NewRef(Py_None);
        done = 0; /* they are the launcher's */
        break;
    case ESHUTDOWN: PyErr_SetString(PyExc_RuntimeError, "the launcher is stopped"); break;
    default: PyErr_Format(PyExc_ValueError, "record %llu: its context is not set", (ull)odd);
    }
error:
    for (Py_ssize_t i = 0; i < done; i++) amfs_task_free(tasks[i]);
    free(tasks);
    return result;
}

/* Put `value` (stolen; NULL: an error is set) at `at`. Returns 0 or -1. */
static int put(PyObject *tuple, Py_ssize_t at, PyObject *value) { return value == NULL ? -1 : PyTuple_SetItem(tuple, at, value); }

static PyObject *stamps_tuple(const amfs_completion *completion) {
    PyObject *stamps = PyTuple_New((Py_ssize_t)completion->output_count);
    for (uint32_t i = 0; stamps != NULL && i < completion->output_count; i++) {
        const amfs_stamp *stamp = &completion->outputs[i];
        const char *format = stamp->holes == 0 ? "(KK)" : "(KKK)";
        PyObject *value = Py_BuildValue(format, (ull)stamp->size, (ull)stamp->mtime_ns, (ull)stamp->holes);
        if (put(stamps, (Py_ssize_t)i, value) < 0) Py_CLEAR(stamps);
    }
    return stamps;
}

/* (number, ((kind, directory, name, inode), ...), ((directory, name), ...)) */
static PyObject *traces_tuple(const struct amfs_traces *traces) {
    PyObject *all_made = PyTuple_New((Py_ssize_t)traces->made_count), *all_missed = PyTuple_New((Py_ssize_t)traces->missed_count);
    for (size_t i = 0; all_made != NULL && i < traces->made_count; i++) {
        const struct amfs_made *made = &traces->made[i];
        PyObject *value = Py_BuildValue("(iKy#K)", (int)made->kind, (ull)made->dir, made->name, (Py_ssize_t)made->length, (ull)made->ino);
        if (put(all_made, (Py_ssize_t)i, value) < 0) Py_CLEAR(all_made);
    }
    for (size_t i = 0; all_missed != NULL && i < traces->missed_count; i++) {
        const struct amfs_missed *missed = &traces->missed[i];
        PyObject *value = Py_BuildValue("(Ky#)", (ull)missed->dir, missed->name, (Py_ssize_t)missed->length);
        if (put(all_missed, (Py_ssize_t)i, value) < 0) Py_CLEAR(all_missed);
    }
    if (all_made != NULL && all_missed != NULL) return Py_BuildValue("(KNN)", (ull)traces->number, all_made, all_missed);
    Py_XDECREF(all_made);
    Py_XDECREF(all_missed);
    return NULL;
}

static PyObject *path_or_empty(const char *path) { return path != NULL ? PyUnicode_DecodeFSDefault(path) : PyUnicode_FromString(""); }

/* (inputs changed, file with the whole stdout, its size, where the sandbox is, processes left running); None: nothing of the kind. */
static PyObject *facts_tuple(const amfs_completion *completion) {
    if (completion->changed_count == 0 && completion->whole == NULL && completion->sandbox == NULL && completion->left == 0)
        return Py_NewRef(Py_None);
    PyObject *changed = PyTuple_New((Py_ssize_t)completion->changed_count);
    for (uint32_t i = 0; changed != NULL && i < completion->changed_count; i++)
        if (put(changed, (Py_ssize_t)i, PyLong_FromUnsignedLong(completion->changed[i])) < 0) Py_CLEAR(changed);
    if (changed == NULL) return NULL;
    return Py_BuildValue("(NNKNI)", changed, path_or_empty(completion->whole), (ull)completion->out_size,
                         path_or_empty(completion->sandbox), completion->left);
}

static PyObject *completion_tuple(const amfs_completion *completion) {
    const char *detail = completion->detail != NULL ? completion->detail : "";
    PyObject *tuple = PyTuple_New(completion->traces != NULL ? 14 : 13);

    if (tuple == NULL) return NULL;
    if (put(tuple, 0, PyLong_FromUnsignedLongLong(completion->serial)) < 0 || put(tuple, 1, PyLong_FromLong(completion->outcome)) < 0 ||
        put(tuple, 2, PyLong_FromLong(completion->code)) < 0 || put(tuple, 3, PyLong_FromLong(completion->slot)) < 0 ||
        put(tuple, 4, PyLong_FromLongLong(completion->start_us)) < 0 || put(tuple, 5, PyLong_FromLongLong(completion->end_us)) < 0 ||
        put(tuple, 6, PyLong_FromLongLong(completion->cpu_us)) < 0 || put(tuple, 7, PyLong_FromLongLong(completion->maxrss_kib)) < 0 ||
        put(tuple, 8, stamps_tuple(completion)) < 0 ||
        put(tuple, 9, PyBytes_FromStringAndSize(completion->out, (Py_ssize_t)completion->out_length)) < 0 ||
        put(tuple, 10, PyBytes_FromStringAndSize(completion->err, (Py_ssize_t)completion->err_length)) < 0 ||
        put(tuple, 11, PyUnicode_DecodeUTF8(detail, (Py_ssize_t)strlen(detail), "surrogateescape")) < 0 ||
        put(tuple, 12, facts_tuple(completion)) < 0 || (completion->traces != NULL && put(tuple, 13, traces_tuple(completion->traces)) < 0))
        Py_CLEAR(tuple);
    return tuple;
}

static PyObject *launcher_completions(PyObject *self, PyObject *unused) {
    amfs_launcher *launcher = launcher_of(self);

    (void)unused;
    PyObject *list = launcher != NULL ? PyList_New(0) : NULL;
    if (list == NULL) return NULL;
    for (amfs_completion *at = amfs_launcher_take(launcher), *next; at != NULL; at = next) {
        next = at->next;
        PyObject *tuple = list != NULL ? completion_tuple(at) : NULL;
        if (list != NULL && (tuple == NULL || PyList_Append(list, tuple) < 0)) Py_CLEAR(list);
        Py_XDECREF(tuple);
        amfs_completion_free(at);
    }
    return list;
}

static PyObject *launcher_kill(PyObject *self, PyObject *numbers) {
    amfs_launcher *launcher = launcher_of(self);
    Py_ssize_t count = launcher != NULL ? PySequence_Size(numbers) : -1;

    if (count < 0) return NULL;
    uint64_t *serials = calloc((size_t)count + 1, sizeof *serials);
    if (serials == NULL) return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count && !PyErr_Occurred(); i++) {
        PyObject *number = PySequence_GetItem(numbers, i);
        serials[i] = number != NULL ? PyLong_AsUnsignedLongLong(number) : 0;
        Py_XDECREF(number);
    }
    if (!PyErr_Occurred() && amfs_launcher_kill(launcher, serials, (size_t)count) != 0) PyErr_NoMemory();
    free(serials);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static PyObject *launcher_withdraw(PyObject *self, PyObject *number) {
    amfs_launcher *launcher = launcher_of(self);
    size_t wanted = launcher != NULL ? PyLong_AsSize_t(number) : 0;

    if (launcher == NULL || PyErr_Occurred()) return NULL;
    size_t most = amfs_launcher_queued(launcher);
    if (wanted > most) wanted = most; /* only we add to the queue, and we hold the GIL: it can only have become shorter */
    uint64_t *serials = calloc(wanted + 1, sizeof *serials);
    if (serials == NULL) return PyErr_NoMemory();
    size_t count = amfs_launcher_withdraw(launcher, wanted, serials);
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; i < count && list != NULL; i++) {
        PyObject *serial = PyLong_FromUnsignedLongLong(serials[i]);
        if (serial == NULL || PyList_SetItem(list, (Py_ssize_t)i, serial) < 0) Py_CLEAR(list);
    }
    free(serials);
    return list;
}

static PyObject *launcher_queued(PyObject *self, PyObject *unused) {
    amfs_launcher *launcher = launcher_of(self);
    (void)unused;
    return launcher != NULL ? PyLong_FromSize_t(amfs_launcher_queued(launcher)) : NULL;
}

static PyObject *launcher_running(PyObject *self, PyObject *unused) {
    amfs_launcher *launcher = launcher_of(self);
    (void)unused;
    return launcher != NULL ? PyLong_FromSize_t(amfs_launcher_running(launcher)) : NULL;
}

/* [(serial, start_us, slot, pid), ...] */
static PyObject *launcher_at_work(PyObject *self, PyObject *unused) {
    amfs_launcher *launcher = launcher_of(self);

    (void)unused;
    if (launcher == NULL) return NULL;
    amfs_at_work *tasks = calloc(amfs_launcher_slots(launcher), sizeof *tasks);
    if (tasks == NULL) return PyErr_NoMemory();
    size_t count = amfs_launcher_at_work(launcher, tasks);
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; i < count && list != NULL; i++) {
        PyObject *task = Py_BuildValue("(KLIi)", (ull)tasks[i].serial, (long long)tasks[i].start_us, tasks[i].slot, (int)tasks[i].pid);
        if (task == NULL || PyList_SetItem(list, (Py_ssize_t)i, task) < 0) Py_CLEAR(list);
    }
    free(tasks);
    return list;
}

static PyObject *launcher_cpu_us(PyObject *self, PyObject *unused) {
    amfs_launcher *launcher = launcher_of(self);
    (void)unused;
    return launcher != NULL ? PyLong_FromLongLong(amfs_launcher_cpu_us(launcher)) : NULL;
}

static PyObject *launcher_stop(PyObject *self, PyObject *unused) {
    amfs_launcher *launcher = launcher_of(self);

    (void)unused;
    if (launcher == NULL) return NULL;
    WITHOUT_GIL(amfs_launcher_stop(launcher));
    return Py_NewRef(Py_None);
}

static PyMethodDef launcher_methods[] = {
    {"set_context", WITH_KEYWORDS(launcher_set_context), METH_VARARGS | METH_KEYWORDS, "set_context(context, base, env)"},
    {"drop_context", launcher_drop_context, METH_O, "drop_context(context)"},
    {"enter", launcher_enter, METH_O, "enter(pid)"},
    {"submit", launcher_submit, METH_O, "submit(records)"},
    {"completions", launcher_completions, METH_NOARGS, "completions()"},
    {"kill", launcher_kill, METH_O, "kill(serials)"},
    {"withdraw", launcher_withdraw, METH_O, "withdraw(count)"},
    {"queued", launcher_queued, METH_NOARGS, "queued()"},
    {"running", launcher_running, METH_NOARGS, "running()"},
    {"at_work", launcher_at_work, METH_NOARGS, "at_work()"},
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

/* Soft limits of this process by number, but that of open files as our caller gave it. */
static PyObject *caller_limits(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    PyObject *list = PyTuple_New(RLIM_NLIMITS);
    for (int i = 0; list != NULL && i < RLIM_NLIMITS; i++) {
        struct rlimit limit;
        bool known = getrlimit(i, &limit) == 0;
        if (i == RLIMIT_NOFILE) amfs_files_limit(&limit);
        long long value = !known ? -2 : limit.rlim_cur > INT64_MAX ? -1 : (long long)limit.rlim_cur;
        if (put(list, i, PyLong_FromLongLong(value)) < 0) Py_CLEAR(list);
    }
    return list;
}

static PyObject *raise_files_limit(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    amfs_files_raise();
    return Py_NewRef(Py_None);
}

static PyMethodDef limit_functions[] = {
    {"caller_limits", caller_limits, METH_NOARGS, "caller_limits()"},
    {"raise_files_limit", raise_files_limit, METH_NOARGS, "raise_files_limit()"},
    {NULL, NULL, 0, NULL},
};

int add_launcher(PyObject *module) { return PyModule_AddFunctions(module, limit_functions) < 0 ? -1 : py_add_type(module, &launcher_spec); }
