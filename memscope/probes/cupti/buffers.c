/* Buffers of CUPTI's activity records, handed over without Python.

   CUPTI asks for a buffer on the program's thread, inside cudaMalloc: PyTorch holds its
   allocator's lock there, and a thread that waits for this lock may hold the interpreter's. A
   callback into Python would wait for the interpreter, and both would wait for ever. */

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

enum { BUFFER_BYTES = 1 << 16, HEAD_BYTES = 64, MOST_BUFFERS = 1024 };

struct memscope_buffer {
    struct memscope_buffer *next;
    uint64_t valid_bytes;
};

/* As `Counts` in cupti_buffers.py has them. */
struct memscope_counts {
    uint64_t calls, nanoseconds, buffers, refused, module_loads;
};

/* The buffers that CUPTI has of us. Taking over from another tool it may complete one of that tool's,
   which has no head and is left alone. */
static _Atomic(uint8_t *) lent[MOST_BUFFERS];
static _Atomic(struct memscope_buffer *) completed;
static _Atomic uint64_t calls, nanoseconds, buffers, refused, module_loads;

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void end_call(uint64_t start)
{
    atomic_fetch_add(&calls, 1);
    atomic_fetch_add(&nanoseconds, now() - start);
}

/* Whether some place of `lent` held `before`; it holds `after` now. */
static int exchange(uint8_t *before, uint8_t *after)
{
    for (int place = 0; place < MOST_BUFFERS; place++) {
        uint8_t *expected = before;
        if (atomic_compare_exchange_strong(&lent[place], &expected, after))
            return 1;
    }
    return 0;
}

/* CUpti_BuffersCallbackRequestFunc: without a buffer CUPTI drops the record and counts it. */
void memscope_request(uint8_t **buffer, size_t *size, size_t *most_records)
{
    uint64_t start = now();
    uint8_t *memory = NULL;
    if (atomic_fetch_add(&buffers, 1) < MOST_BUFFERS)
        memory = aligned_alloc(HEAD_BYTES, HEAD_BYTES + BUFFER_BYTES);
    if (memory == NULL) {
        atomic_fetch_sub(&buffers, 1);
        atomic_fetch_add(&refused, 1);
    } else {
        exchange(NULL, memory + HEAD_BYTES); /* there are as many places as buffers */
    }
    *buffer = memory == NULL ? NULL : memory + HEAD_BYTES;
    *size = memory == NULL ? 0 : BUFFER_BYTES;
    *most_records = 0; /* as many as fit */
    end_call(start);
}

/* CUpti_BuffersCallbackCompleteFunc: keeps the buffer for memscope_take. */
void memscope_complete(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    uint64_t start = now();
    (void)context, (void)stream, (void)size;
    if (buffer != NULL && exchange(buffer, NULL)) {
        struct memscope_buffer *head = (struct memscope_buffer *)(buffer - HEAD_BYTES);
        head->valid_bytes = valid;
        head->next = atomic_load(&completed);
        while (!atomic_compare_exchange_weak(&completed, &head->next, head)) {
        }
    }
    end_call(start);
}

/* CUpti_CallbackFunc, for loaded modules alone. */
void memscope_module_loaded(void *user, int domain, uint32_t id, const void *data)
{
    (void)user, (void)domain, (void)id, (void)data;
    atomic_fetch_add(&module_loads, 1);
}

/* All completed buffers, the last one first. */
struct memscope_buffer *memscope_take(void)
{
    return atomic_exchange(&completed, NULL);
}

uint8_t *memscope_records(struct memscope_buffer *head)
{
    return (uint8_t *)head + HEAD_BYTES;
}

/* Frees the buffer and gives the next one. */
struct memscope_buffer *memscope_free(struct memscope_buffer *head)
{
    struct memscope_buffer *next = head->next;
    free(head);
    atomic_fetch_sub(&buffers, 1);
    return next;
}

struct memscope_counts memscope_read_counts(void)
{
    struct memscope_counts counts = {calls, nanoseconds, buffers, refused, module_loads};
    return counts;
}
