/* Task records: the packed form that Python hands over (amfs/vocabulary/records.py is the other half of this contract) and the unpacked one.
 *
 * Layout, little-endian:
 *   header   80 bytes: u32 length, flags; u64 serial; u32 context, cores; u64 memory; u32 time_limit_ms, depth, argc, envc, inputs,
 *            outputs, capture, body_length; 16 reserved bytes
 *   stamps   inputs x (u64 size, u64 mtime_ns); mtime_ns 0: unknown, taken when the task starts, and so is what is in a directory
 *   body     NUL-terminated: program, cwd, stdin, stdout, stderr, argv..., env...
 *   files    NUL-terminated: inputs x (source, name), outputs x (name, destination); a destination with "+" before it may
 *            become a directory
 *
 * Names of inputs, outputs, stdin, stdout and stderr are relative to the task's *place*: the working directory of its sandbox (staged), or
 * its context's base (unstaged). A blind task has none, and its cwd is a path in the session's file system. The process itself starts in place/cwd, and a relative program is relative to that, as in a shell.
 */
#ifndef AMFS_RECORD_H
#define AMFS_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { AMFS_STAGED = 1, AMFS_KEEP_FAILED = 2, AMFS_WANT_OUTPUT = 4, AMFS_DIRECTORIES = 8, AMFS_BLIND = 16 };

/* engine.states.Outcome */
enum {
    AMFS_OK,
    AMFS_EXIT,
    AMFS_SIGNAL,
    AMFS_TIME_LIMIT,
    AMFS_MISSING_OUTPUT,
    AMFS_INPUT_CHANGED,
    AMFS_SETUP,
    AMFS_CANCELLED,
    AMFS_INPUT_LOST = 10,
};

typedef struct {
    uint64_t size, mtime_ns, holes; /* holes: so many of its bytes take no room; of outputs only */
} amfs_stamp;

/* The time in the stamp of an output that is a directory and lies on shared storage. */
#define AMFS_IS_DIRECTORY UINT64_MAX

/* The same of one that lies in the store: the two topmost bits are 10, the others of amfs_tree_facts.names. No file has such a time. */
#define AMFS_TREE_TIME(names) ((1ULL << 63) | ((names) & ((1ULL << 62) - 1)))

/* The result of a task. Owned by the caller that takes it from the launcher; freed with amfs_completion_free. */
typedef struct amfs_completion {
    struct amfs_completion *next;
    uint64_t serial;
    int outcome, code, slot;
    int64_t start_us, end_us; /* since the epoch; 0: never started */
    int64_t cpu_us;
    int64_t maxrss_kib; /* 0: below what the launcher's own process had, which the kernel counts in; so not known */
    uint32_t output_count;
    amfs_stamp *outputs; /* zero unless the outcome is OK */
    char *out, *err; /* may be NULL when the length is 0 */
    size_t out_length, err_length;
    char *detail; /* for people only; NULL: nothing to say */
    uint32_t changed_count, *changed; /* which inputs were changed (AMFS_INPUT_CHANGED), by their places in the record */
    char *whole; /* the file with more of stdout than `out` has; NULL: there is none */
    uint64_t out_size; /* of all that the task wrote to stdout, if that is more than `out` has */
    char *sandbox; /* where it was kept; NULL: it was not */
    uint32_t left; /* processes that the task left running, which were ended */
    struct amfs_traces *traces; /* of a blind task: attempts.h; else NULL */
} amfs_completion;

typedef struct {
    const char *source; /* "@path": symbolic link to path, read in place; "@@path": likewise, and the path is in the spill directory */
    const char *name;
    amfs_stamp stamp;
    bool watched; /* a regular file whose stamp is known: compared after the run */
    bool spilled; /* "@@": only the node removes it there, so that the disk has lost what is gone after the run */
    struct amfs_tree_marks *tree; /* of a directory, likewise: common/tree.h; NULL: not compared */
} amfs_input;

typedef struct {
    const char *name;
    const char *destination; /* "": only has to exist */
    uint32_t mode;
    bool followed; /* a symbolic link, or outside of the sandbox: published as a copy or a link, not by rename */
    bool may_be_tree; /* it goes to a URL, so it may be a directory, which the store keeps whole */
    bool tree; /* turned out to be one */
    bool directory; /* turned out to be one, and may: copied to the base directory, on shared storage */
    bool kept_first; /* its destination had a file, which stays */
} amfs_output;

struct amfs_context;

typedef struct amfs_task {
    struct amfs_task *next, *previous;
    uint64_t serial, memory;
    uint32_t flags, context_id, cores, time_limit_ms, depth, capture;
    uint32_t argc, envc, input_count, output_count;
    const char *program, *cwd, *in, *out, *err;
    const char **argv; /* argv[-1] is free, for the shell's name when the program is a script without "#!" */
    const char **env;
    amfs_input *inputs;
    amfs_output *outputs;
    struct amfs_context *context; /* a reference, set when queued */
    char *prefix; /* staged: "<serial hex>/d0/d1/", relative to the sandbox directory */
    size_t prefix_length, top_length;
    int64_t wants_since_us; /* it could not be started since then, for want of something of ours; 0: no such thing */
    bool nested; /* the sandbox has directories below the working directory */
    amfs_completion *completion;
} amfs_task;

/* Unpack (copying) a record. Returns NULL with a sentence in `fault` when it is malformed, NULL with an empty `fault` when there is no
 * memory. */
amfs_task *amfs_task_parse(const void *record, size_t length, char *fault, size_t fault_size);

/* Free the task, and its completion unless that was taken away (set to NULL). The context is the launcher's business. */
void amfs_task_free(amfs_task *task);
void amfs_completion_free(amfs_completion *completion);

#endif
