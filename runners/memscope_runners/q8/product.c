/* The q8 product, out = x · (q × scale)ᵀ, weights read once where they lie.
 *
 * Every output is computed by the same sequence of operations whatever the number of tokens or of
 * threads, so its bits depend on x and the weight alone. Rows are handed out in chunks to whoever
 * is free; the caller takes part, so a thread that wakes late costs nothing. */

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#ifdef __F16C__
#include <immintrin.h>
#endif

#define GROUP 32
#define LANES 8
#define TOKEN_TILE 4
#define PREFETCH_BYTES 4096
#define CHUNK_ROWS 32
#define WORTH_SHARING (1 << 17) /* multiplications; below, waking a thread takes longer */
#define SPINS 200
#define MAX_WORKERS 63
#define UNROLL _Pragma("GCC unroll 4")
#define INLINE static inline __attribute__((always_inline))

typedef float floats __attribute__((vector_size(4 * LANES)));
typedef int32_t ints __attribute__((vector_size(4 * LANES)));
typedef int8_t bytes __attribute__((vector_size(LANES)));

typedef struct {
    const float *x;        /* (tokens, columns) */
    const int8_t *q;       /* (rows, columns) */
    const uint16_t *scale; /* (rows, columns / GROUP), float16 */
    float *out;            /* (tokens, rows) */
    int tokens, rows, columns;
} Job;

INLINE floats load_floats(const float *from) {
    floats value;
    memcpy(&value, from, sizeof value);
    return value;
}

INLINE floats load_weights(const int8_t *from) {
#ifdef __AVX2__
    return (floats)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)from)));
#else
    bytes value;
    memcpy(&value, from, sizeof value);
    return __builtin_convertvector(__builtin_convertvector(value, ints), floats);
#endif
}

INLINE float half_to_float(uint16_t bits) {
#ifdef __F16C__
    return _cvtsh_ss(bits);
#else
    _Float16 value;
    memcpy(&value, &bits, sizeof value);
    return (float)value;
#endif
}

INLINE float sum(floats v) {
    return ((v[0] + v[4]) + (v[1] + v[5])) + ((v[2] + v[6]) + (v[3] + v[7]));
}

/* One row times `tokens` tokens, a constant where it is inlined. */
INLINE void dot(const Job *job, int row, int token, int tokens) {
    const int columns = job->columns, groups = columns / GROUP;
    const int8_t *q = job->q + (int64_t)row * columns;
    const uint16_t *scale = job->scale + (int64_t)row * groups;
    const float *x = job->x + (int64_t)token * columns;
    floats total[TOKEN_TILE] = {0};
    for (int g = 0; g < groups; g++, q += GROUP, x += GROUP) {
        floats part[TOKEN_TILE] = {0};
        __builtin_prefetch(q + PREFETCH_BYTES);
        UNROLL for (int lane = 0; lane < GROUP; lane += LANES) {
            floats w = load_weights(q + lane);
            UNROLL for (int t = 0; t < tokens; t++)
                part[t] += w * load_floats(x + (int64_t)t * columns + lane);
        }
        UNROLL for (int t = 0; t < tokens; t++) total[t] += part[t] * half_to_float(scale[g]);
    }
    UNROLL for (int t = 0; t < tokens; t++)
        job->out[(int64_t)(token + t) * job->rows + row] = sum(total[t]);
}

static void product_rows(const Job *job, int first, int last) {
    for (int row = first; row < last; row++) {
        int token = 0;
        for (; token + TOKEN_TILE <= job->tokens; token += TOKEN_TILE)
            dot(job, row, token, TOKEN_TILE);
        for (; token < job->tokens; token++) dot(job, row, token, 1);
    }
}

static Job current;
static _Atomic uint64_t tickets; /* generation << 32 | chunks not yet taken */
static _Atomic int done;
static _Atomic int sleepers;
static int workers;
static pthread_mutex_t one_job = PTHREAD_MUTEX_INITIALIZER, sleep_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;

static int chunks_left(void) { return (int)(uint32_t)atomic_load(&tickets); }

/* A ticket taken keeps `current` as it is: the caller waits for every chunk. */
static int take_chunk(void) {
    uint64_t seen = atomic_load(&tickets);
    while ((uint32_t)seen)
        if (atomic_compare_exchange_weak(&tickets, &seen, seen - 1)) {
            int first = ((int)(uint32_t)seen - 1) * CHUNK_ROWS, last = first + CHUNK_ROWS;
            product_rows(&current, first, last < current.rows ? last : current.rows);
            atomic_fetch_add(&done, 1);
            return 1;
        }
    return 0;
}

static void *work(void *unused) {
    (void)unused;
    for (int idle = 0;;) {
        if (take_chunk()) {
            idle = 0;
        } else if (++idle < SPINS) {
            sched_yield();
        } else {
            pthread_mutex_lock(&sleep_lock);
            atomic_fetch_add(&sleepers, 1);
            while (!chunks_left()) pthread_cond_wait(&wake, &sleep_lock);
            atomic_fetch_sub(&sleepers, 1);
            pthread_mutex_unlock(&sleep_lock);
            idle = 0;
        }
    }
    return 0;
}

static void forget_workers(void) { /* a forked child has none, and nobody to unlock these */
    workers = 0;
    atomic_store(&sleepers, 0);
    pthread_mutex_init(&one_job, 0);
    pthread_mutex_init(&sleep_lock, 0);
    pthread_cond_init(&wake, 0);
}

static void start_workers(int wanted) {
    static int is_registered;
    if (!is_registered) is_registered = !pthread_atfork(0, 0, forget_workers);
    for (; workers < wanted && workers < MAX_WORKERS; workers++) {
        pthread_t thread;
        if (pthread_create(&thread, 0, work, 0)) return;
        pthread_detach(thread);
    }
}

static void share(const Job *job, int threads) {
    const int chunks = (job->rows + CHUNK_ROWS - 1) / CHUNK_ROWS;
    pthread_mutex_lock(&one_job);
    start_workers(threads - 1);
    current = *job;
    atomic_store(&done, 0);
    atomic_store(&tickets, (((atomic_load(&tickets) >> 32) + 1) << 32) | (uint64_t)chunks);
    if (atomic_load(&sleepers)) {
        pthread_mutex_lock(&sleep_lock);
        pthread_cond_broadcast(&wake);
        pthread_mutex_unlock(&sleep_lock);
    }
    while (take_chunk()) {}
    while (atomic_load(&done) < chunks) sched_yield();
    pthread_mutex_unlock(&one_job);
}

/* `columns` is a multiple of GROUP; `threads` counts the caller, and the workers stay. */
void q8_product(const float *x, const int8_t *q, const uint16_t *scale, float *out, int tokens,
                int rows, int columns, int threads) {
    const Job job = {x, q, scale, out, tokens, rows, columns};
    if (threads > 1 && (int64_t)tokens * rows * columns >= WORTH_SHARING)
        share(&job, threads);
    else
        product_rows(&job, 0, rows);
}
