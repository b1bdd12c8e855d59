/* Little-endian numbers at any alignment, and a growing text for messages. Header-only helpers; no state. */
#ifndef AMFS_BYTES_H
#define AMFS_BYTES_H

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline uint64_t amfs_load64(const unsigned char *at) {
    uint64_t value;
    memcpy(&value, at, sizeof value);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    value = __builtin_bswap64(value);
#endif
    return value;
}

static inline uint32_t amfs_load32(const unsigned char *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    value = __builtin_bswap32(value);
#endif
    return value;
}

static inline void put_le(uint8_t *to, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) to[i] = (uint8_t)(value >> (8 * i));
}

static inline uint64_t get_le(const uint8_t *from, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint64_t)from[i] << (8 * i);
    return value;
}

/* A message being written. Zero-initialise; `data` is NULL or a NUL-terminated malloc'ed string. When memory runs out the message stays
 * as long as it was: a shorter message is better than no completion. */
typedef struct {
    char *data;
    size_t length, capacity;
} amfs_text;

__attribute__((format(printf, 2, 3))) static inline void amfs_text_add(amfs_text *text, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int wanted = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (wanted <= 0) return;
    size_t need = text->length + (size_t)wanted + 1;
    if (need > text->capacity) {
        size_t capacity = need * 2 < 128 ? 128 : need * 2;
        char *data = realloc(text->data, capacity);
        if (data == NULL) return;
        text->data = data;
        text->capacity = capacity;
    }
    va_start(arguments, format);
    vsnprintf(text->data + text->length, (size_t)wanted + 1, format, arguments);
    va_end(arguments);
    text->length += (size_t)wanted;
}

static inline void amfs_text_clear(amfs_text *text) {
    free(text->data);
    memset(text, 0, sizeof *text);
}

#endif
