/* A CUPTI without a GPU: records that a test makes, through the same functions. */

#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    uint32_t kind, operation, memory_kind, correlation;
    uint64_t address, bytes, timestamp, pc;
    uint32_t process, device, context, stream;
    const char *name;
    uint32_t is_async, pad, pool_type, pool_pad;
    uint64_t pool, pool_threshold, pool_bytes, pool_used_bytes;
    const char *source;
} record_t;

typedef void (*request_t)(uint8_t **, size_t *, size_t *);
typedef void (*complete_t)(void *, uint32_t, uint8_t *, size_t, size_t);
typedef void (*callback_t)(void *, int, uint32_t, const void *);

static request_t request;
static complete_t complete;
static callback_t callback;
static uint8_t *buffer;
static size_t size, used;
static int is_enabled, holder, is_subscribed, hears_modules, flush_error, enable_error;
static struct { uint8_t before[64], records[4096]; } other; /* a buffer of another tool */
static uint64_t attributes[16];
static pthread_mutex_t allocator = PTHREAD_MUTEX_INITIALIZER;

int cuptiGetVersion(uint32_t *version) { return *version = 130001, 0; }

int cuptiGetResultString(int code, const char **text)
{
    *text = code == 39 ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"
          : code == 35 ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES" : "CUPTI_ERROR_UNKNOWN";
    return 0;
}

int cuptiGetTimestamp(uint64_t *now)
{
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    *now = (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
    return 0;
}

int cuptiSubscribe(void **subscriber, callback_t function, void *user)
{
    (void)user;
    if (holder)
        return holder;
    callback = function, is_subscribed = 1, *subscriber = &callback;
    return 0;
}

int cuptiUnsubscribe(void *subscriber) { return (void)subscriber, is_subscribed = hears_modules = 0; }

int cuptiEnableCallback(uint32_t enable, void *subscriber, int domain, uint32_t id)
{
    (void)subscriber;
    return hears_modules = enable && domain == 3 && id == 6, 0;
}

int cuptiActivitySetAttribute(int attribute, size_t *bytes, void *value)
{
    memcpy(&attributes[attribute], value, *bytes);
    return 0;
}

int cuptiActivityRegisterCallbacks(request_t asked, complete_t completed)
{
    return request = asked, complete = completed, 0;
}

int cuptiActivityEnableAllocationSource(uint8_t enable) { return (void)enable, 0; }
int cuptiActivityEnable(int kind) { return is_enabled = kind == 49 && !enable_error, enable_error; }
int cuptiActivityDisable(int kind) { return is_enabled = is_enabled && kind != 49, 0; }

int cuptiActivityFlushAll(uint32_t flag)
{
    (void)flag;
    if (buffer)
        complete(NULL, 0, buffer, size, used);
    buffer = NULL;
    return flush_error;
}

int cuptiActivityGetNextRecord(uint8_t *place, size_t valid, void **record)
{
    uint8_t *next = *record ? (uint8_t *)*record + sizeof(record_t) : place;
    if (next + sizeof(record_t) > place + valid)
        return 12; /* CUPTI_ERROR_MAX_LIMIT_REACHED */
    return *record = next, 0;
}

/* What a test calls. */

void fake_hold(int code) { holder = code; }
void fake_fail_to_flush(int code) { flush_error = code; }
void fake_fail_to_enable(int code) { enable_error = code; }
int fake_is_enabled(void) { return is_enabled; }
int fake_is_subscribed(void) { return is_subscribed; }
uint64_t fake_attribute(int attribute) { return attributes[attribute]; }
void fake_preset(int attribute) { attributes[attribute] = 3; }

/* Another tool was asked for the buffer that is filled now. */
void fake_fill_others(const record_t *record)
{
    memset(other.before, 7, sizeof other.before);
    memcpy(other.records, record, sizeof *record);
    buffer = other.records, size = sizeof other.records, used = sizeof *record;
}

int fake_is_others_whole(void)
{
    for (size_t place = 0; place < sizeof other.before; place++)
        if (other.before[place] != 7)
            return 0;
    return 1;
}

void fake_load_module(void)
{
    if (is_subscribed && hears_modules)
        callback(NULL, 3, 6, NULL);
}

void fake_call(const record_t *record)
{
    size_t most;
    if (!is_enabled)
        return;
    if (buffer && used + sizeof *record > size)
        cuptiActivityFlushAll(0);
    if (!buffer) {
        request(&buffer, &size, &most);
        used = 0;
    }
    if (!buffer)
        return;
    memcpy(buffer + used, record, sizeof *record);
    used += sizeof *record;
}

/* As torch calls cudaMalloc: under the lock of its allocator, which others want meanwhile. */
void fake_call_under_lock(const record_t *record, unsigned milliseconds)
{
    pthread_mutex_lock(&allocator);
    usleep(milliseconds * 1000);
    fake_call(record);
    pthread_mutex_unlock(&allocator);
}

void fake_take_lock(void)
{
    pthread_mutex_lock(&allocator);
    pthread_mutex_unlock(&allocator);
}
