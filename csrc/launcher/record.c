#include "record.h"

#include "attempts.h"

#include "common/bytes.h"

enum { HEADER = 80, STAMP = 16, DEPTH_MAX = 256 };

/* Walks over NUL-terminated strings; `failed` once they run out. */
typedef struct {
    const char *at, *end;
    bool failed;
} strings;

static const char *next_string(strings *text) {
    const char *start = text->at;
    const char *nul = memchr(start, 0, (size_t)(text->end - start));
    if (nul == NULL) {
        text->failed = true;
        return "";
    }
    text->at = nul + 1;
    return start;
}

/* Is this the name of a file that stays below the sandbox's top, `depth` directories above the working directory? Absolute names are
 * somebody else's place and allowed. */
static bool name_is_inside(const char *name, uint32_t depth) {
    long level = (long)depth;
    const char *at = name;

    if (*name == '\0') return false;
    bool absolute = *name == '/';
    for (;;) {
        size_t length = strcspn(at, "/");
        bool last = at[length] == '\0';
        bool up = length == 2 && at[0] == '.' && at[1] == '.';
        bool same = length == 0 || (length == 1 && at[0] == '.');
        if (last) return !up && !same;
        if (up && --level < 0 && !absolute) return false;
        if (!up && !same) level++;
        at += length + 1;
    }
}

static void make_prefix(amfs_task *task, char *to) {
    int length = sprintf(to, "%llx", (unsigned long long)task->serial);
    task->prefix = to;
    task->top_length = (size_t)length;
    to[length++] = '/';
    for (uint32_t i = 0; i < task->depth; i++) length += sprintf(to + length, "d%u/", i);
    to[length] = '\0';
    task->prefix_length = (size_t)length;
}

static const char *check(const amfs_task *task) {
    if (task->cores == 0) return "it takes no cores";
    if (*task->program == '\0') return "it has no program";
    if (strchr(task->program, '/') == NULL) return "its program is a bare name, not a path";
    if (task->flags & ~(uint32_t)(AMFS_STAGED | AMFS_KEEP_FAILED | AMFS_WANT_OUTPUT | AMFS_DIRECTORIES | AMFS_BLIND))
        return "it has unknown flags";
    if ((task->flags & AMFS_BLIND) != 0 && ((task->flags & AMFS_STAGED) != 0 || task->cwd[0] != '/'))
        return "it is blind, and staged or without an absolute directory";
    for (uint32_t i = 0; i < task->envc; i++)
        if (task->env[i][0] == '\0' || task->env[i][0] == '=') return "an environment entry has no name";
    for (uint32_t i = 0; i < task->input_count; i++) {
        const char *source = task->inputs[i].source;
        if (*source == '\0' || (source[0] == '@' && source[1] == '\0')) return "an input has no source";
    }
    if (!(task->flags & AMFS_STAGED)) return NULL;
    for (uint32_t i = 0; i < task->input_count; i++)
        if (!name_is_inside(task->inputs[i].name, task->depth)) return "the name of an input is not that of a file in its sandbox";
    for (uint32_t i = 0; i < task->output_count; i++)
        if (!name_is_inside(task->outputs[i].name, task->depth)) return "the name of an output is not that of a file in its sandbox";
    const char *streams[] = {task->in, task->out, task->err};
    for (int i = 0; i < 3; i++)
        if (*streams[i] != '\0' && !name_is_inside(streams[i], task->depth))
            return "the name for stdin, stdout or stderr is not that of a file in its sandbox";
    return NULL;
}

static void *align(char *at) {
    uintptr_t mask = sizeof(void *) > sizeof(uint64_t) ? sizeof(void *) - 1 : sizeof(uint64_t) - 1;
    return (void *)(((uintptr_t)at + mask) & ~mask);
}

amfs_task *amfs_task_parse(const void *record, size_t length, char *fault, size_t fault_size) {
    const unsigned char *header = record;

    fault[0] = '\0';
    if (length < HEADER || amfs_load32(header) != length) {
        snprintf(fault, fault_size, "a record is %zu bytes long and says %zu", length, length < 4 ? 0 : (size_t)amfs_load32(header));
        return NULL;
    }
    uint64_t serial = amfs_load64(header + 8);
    uint32_t depth = amfs_load32(header + 36);
    uint64_t argc = amfs_load32(header + 40), envc = amfs_load32(header + 44);
    uint64_t inputs = amfs_load32(header + 48), outputs = amfs_load32(header + 52);
    uint64_t body = amfs_load32(header + 60);
    const char *problem = NULL;
    /* Every string takes a byte at least, so the counts are bounded by the record's own length before anything is allocated. */
    if (HEADER + inputs * STAMP + body > length) problem = "its parts are longer than it is";
    else if (argc < 1 || 5 + argc + envc > body) problem = "its command is shorter than its counts";
    else if (2 * (inputs + outputs) > length - HEADER - inputs * STAMP - body) problem = "its file names are shorter than its counts";
    else if (depth > DEPTH_MAX) problem = "its sandbox is too deep";
    if (problem != NULL) {
        snprintf(fault, fault_size, "record %llu: %s", (unsigned long long)serial, problem);
        return NULL;
    }

    size_t text_length = length - HEADER - (size_t)inputs * STAMP;
    size_t size = sizeof(amfs_task) + (size_t)(argc + 2 + envc) * sizeof(char *) + (size_t)inputs * sizeof(amfs_input) +
                  (size_t)outputs * sizeof(amfs_output) + text_length + 24 + depth * 5u + 8 * 5;
    char *block = malloc(size);
    amfs_completion *completion = calloc(1, sizeof *completion + (size_t)outputs * sizeof(amfs_stamp) + (size_t)inputs * sizeof(uint32_t));
    if (block == NULL || completion == NULL) {
        free(block);
        free(completion);
        return NULL;
    }
    amfs_task *task = (amfs_task *)(void *)block;
    memset(task, 0, sizeof *task);
    task->completion = completion;
    completion->serial = serial;
    completion->output_count = (uint32_t)outputs;
    completion->outputs = (amfs_stamp *)(completion + 1);
    completion->changed = (uint32_t *)(completion->outputs + outputs);
    task->flags = amfs_load32(header + 4);
    task->serial = serial;
    task->context_id = amfs_load32(header + 16);
    task->cores = amfs_load32(header + 20);
    task->memory = amfs_load64(header + 24);
    task->time_limit_ms = amfs_load32(header + 32);
    task->depth = depth;
    task->argc = (uint32_t)argc;
    task->envc = (uint32_t)envc;
    task->input_count = (uint32_t)inputs;
    task->output_count = (uint32_t)outputs;
    task->capture = amfs_load32(header + 56);

    char *at = align(block + sizeof *task);
    task->argv = (const char **)(void *)at + 1;
    at += (argc + 2) * sizeof(char *);
    task->env = (const char **)(void *)at;
    at = align(at + envc * sizeof(char *));
    task->inputs = (amfs_input *)(void *)at;
    at = align(at + inputs * sizeof(amfs_input));
    task->outputs = (amfs_output *)(void *)at;
    at += outputs * sizeof(amfs_output);
    memcpy(at, header + HEADER + inputs * STAMP, text_length);

    strings text = {at, at + body, false};
    task->program = next_string(&text);
    task->cwd = next_string(&text);
    task->in = next_string(&text);
    task->out = next_string(&text);
    task->err = next_string(&text);
    for (uint64_t i = 0; i < argc; i++) task->argv[i] = next_string(&text);
    task->argv[argc] = NULL;
    for (uint64_t i = 0; i < envc; i++) task->env[i] = next_string(&text);
    bool whole = !text.failed && text.at == text.end;

    text.at = at + body;
    text.end = at + text_length;
    const unsigned char *stamp = header + HEADER;
    for (uint64_t i = 0; i < inputs; i++, stamp += STAMP) {
        amfs_input *input = &task->inputs[i];
        input->source = next_string(&text);
        input->spilled = input->source[0] == '@' && input->source[1] == '@';
        input->source += input->spilled;
        input->name = next_string(&text);
        input->stamp.size = amfs_load64(stamp);
        input->stamp.mtime_ns = amfs_load64(stamp + 8);
        input->watched = input->stamp.mtime_ns != 0;
        input->tree = NULL;
    }
    for (uint64_t i = 0; i < outputs; i++) {
        amfs_output *output = &task->outputs[i];
        output->name = next_string(&text);
        output->destination = next_string(&text);
        output->may_be_tree = output->destination[0] == '+';
        output->destination += output->may_be_tree;
        output->tree = false;
        output->mode = 0;
        output->followed = false;
        output->directory = false;
    }
    whole = whole && !text.failed && text.at == text.end;
    make_prefix(task, at + text_length);

    problem = whole ? check(task) : "its strings and its counts do not agree";
    if (problem != NULL) {
        snprintf(fault, fault_size, "record %llu: %s", (unsigned long long)serial, problem);
        amfs_task_free(task);
        return NULL;
    }
    return task;
}

void amfs_completion_free(amfs_completion *completion) {
    if (completion == NULL) return;
    free(completion->out);
    free(completion->err);
    free(completion->detail);
    free(completion->whole);
    free(completion->sandbox);
    amfs_traces_free(completion->traces);
    free(completion);
}

void amfs_task_free(amfs_task *task) {
    if (task == NULL) return;
    amfs_completion_free(task->completion);
    for (uint32_t i = 0; i < task->input_count; i++) free(task->inputs[i].tree);
    free(task);
}
