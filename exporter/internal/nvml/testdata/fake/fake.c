/*
 * Fake of NVIDIA's libnvidia-ml.so.1, controlled by a test.
 *
 * PLIMSOLL_FAKE_CONTROL names a file of 64-bit words, which the test maps as well. The
 * words define the devices and their values, and count the calls. The enums below are the
 * offsets of the words. fake_test.go defines the same offsets.
 *
 * -DOLD_DRIVER compiles a driver without the newer calls, -DWITHOUT_UUID a driver without
 * a call required by the exporter.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, TIMEOUT = 10, IS_LOST = 15, RESET_REQUIRED = 16, UNKNOWN = 999 };

/* Words of the whole library. */
enum { COUNT, INIT_RESULT, UNLOADED, RELEASE_FD, READY, STALLED, CALLS, INITS, SHUTDOWNS, XID_WRITTEN, XID_READ, STALL_COUNT, LATENCY_US, DRIVER, SAMPLES, EVENT_SETS, XID_RING = 16, DEVICES = 64 };
enum { RING = 16, MAX_DEVICES = 16, DEVICE_WORDS = 64, MIG_WORDS = 80, PROCESS_WORDS = 24 };

/* Words of a device. */
enum {
	STATE, UNSUPPORTED, SERIAL, ABSENT, DEVICE_CALLS, SM_CLOCK, MEM_CLOCK, TEMPERATURE, POWER, POWER_LIMIT, ENERGY, REPLAY,
	UTIL, MEM_UTIL, ENC, DEC, TOTAL, USED, RESERVED, CORRECTABLE, UNCORRECTABLE, REMAP_FAILED, MEMORY_TEMP, WATCHED, SWITCHLESS,
	FAILING, FAILURE, SLOWDOWN, MARGIN, POWER_SET, EVENTS, LICENSED, NARROW, NVLINK_KIB, PCIE_BYTES, GPM_UTIL, REPLACED, COMPUTE_MODE,
	LINK_GEN, LINK_WIDTH, FAN, PSTATE, FABRIC_STATE, FABRIC_STATUS, CLIQUE, FABRIC_VERSION, FIELD_RESULT, SAME_UUID, FLOOD
};
enum { STATE_OK, STATE_LOST, STATE_HUNG, STATE_RESET_REQUIRED, STATE_BROKEN };

typedef int ret;
/* instance is 0 for a device, or 1 + the index of a MIG instance. */
struct nvmlDevice_st { int n, instance; };
typedef struct nvmlDevice_st *dev;

static struct nvmlDevice_st devices[MAX_DEVICES], replacements[MAX_DEVICES];
static int visible[MAX_DEVICES], nvisible; /* updated by nvmlInit and nvmlDeviceGetCount */
static _Atomic uint64_t *words;

static void map_control(void)
{
	const char *path = getenv("PLIMSOLL_FAKE_CONTROL");
	size_t size = (DEVICES + MAX_DEVICES * (DEVICE_WORDS + MIG_WORDS + PROCESS_WORDS)) * sizeof(uint64_t);
	int fd = path ? open(path, O_RDWR) : -1;
	void *at = fd < 0 ? MAP_FAILED : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED) {
		perror("fake libnvidia-ml: PLIMSOLL_FAKE_CONTROL");
		abort();
	}
	close(fd);
	words = at;
}

static _Atomic uint64_t *device_words(int n) { return words + DEVICES + n * DEVICE_WORDS; }

#include "mig.c"

/* Blocks until the test closes the release pipe, at most 30 seconds. The Go runtime sends
 * signals to preempt threads, so an interrupted call is repeated. */
static void stall(void)
{
	struct pollfd release = { .fd = (int)words[RELEASE_FD], .events = POLLIN };
	words[STALLED]++;
	while (poll(&release, 1, 30000) < 0 && errno == EINTR)
		;
	words[STALLED]--;
}

static void add_latency(void)
{
	struct timespec t = { 0, (long)words[LATENCY_US] * 1000 };
	while (t.tv_nsec && nanosleep(&t, &t) < 0 && errno == EINTR)
		;
}

/* Common part of all device calls: counts the call, adds LATENCY_US and applies the
 * state of the device. Bit `call` of UNSUPPORTED makes the call unsupported, bit `call`
 * of FAILING makes it return FAILURE. After a device was REPLACED, the calls on its old
 * handle return IS_LOST. */
static ret enter(dev d, int call)
{
	words[CALLS]++;
	if (words[UNLOADED] || !words[READY])
		return UNINITIALIZED;
	if (!is_present(d))
		return INVALID_ARGUMENT;
	_Atomic uint64_t *w = device_words(d->n);
	w[DEVICE_CALLS]++;
	add_latency();
	if (w[REPLACED] && d == &devices[d->n])
		return IS_LOST;
	switch (w[STATE]) {
	case STATE_LOST: return IS_LOST;
	case STATE_HUNG: stall(); break;
	case STATE_RESET_REQUIRED: return RESET_REQUIRED;
	case STATE_BROKEN: return UNKNOWN;
	}
	if (w[FAILING] >> call & 1)
		return (ret)w[FAILURE];
	return w[UNSUPPORTED] >> call & 1 || !mig_supports(d, call) ? NOT_SUPPORTED : SUCCESS;
}

static void update_visible(void)
{
	nvisible = 0;
	for (int n = 0; n < (int)words[COUNT] && n < MAX_DEVICES; n++) {
		devices[n].n = replacements[n].n = n;
		if (!device_words(n)[ABSENT])
			visible[nvisible++] = n;
	}
}

ret nvmlInit_v2(void)
{
	if (!words)
		map_control();
	words[CALLS]++;
	words[INITS]++;
	if (words[INIT_RESULT])
		return (ret)words[INIT_RESULT];
	update_visible();
	for (int n = 0; n < nvisible; n++)
		device_words(visible[n])[WATCHED] = 0;
	words[UNLOADED] = 0;
	words[READY] = 1;
	return SUCCESS;
}

ret nvmlShutdown(void)
{
	words[CALLS]++;
	words[SHUTDOWNS]++;
	if (words[UNLOADED] || !words[READY])
		return UNINITIALIZED;
	if (words[STALLED]) /* the stalled call holds the driver's lock */
		stall();
	words[READY] = 0;
	return SUCCESS;
}

const char *nvmlErrorString(ret r)
{
	switch (r) {
	case SUCCESS: return "Success";
	case UNINITIALIZED: return "Uninitialized";
	case NOT_SUPPORTED: return "Not Supported";
	case 9: return "Driver Not Loaded";
	case 18: return "Driver/library version mismatch";
	case IS_LOST: return "GPU is lost";
	case RESET_REQUIRED: return "GPU requires reset";
	}
	return "Unknown Error";
}

ret nvmlSystemGetDriverVersion(char *version, unsigned length)
{
	words[CALLS]++;
	snprintf(version, length, "%u.1.fake", (unsigned)words[DRIVER]);
	return SUCCESS;
}

ret nvmlDeviceGetCount_v2(unsigned *count)
{
	words[CALLS]++;
	if (words[UNLOADED] || !words[READY])
		return UNINITIALIZED;
	if (words[STALL_COUNT])
		stall();
	update_visible();
	*count = nvisible;
	return SUCCESS;
}

ret nvmlDeviceGetHandleByIndex_v2(unsigned index, dev *d)
{
	if (index >= (unsigned)nvisible)
		return INVALID_ARGUMENT;
	int n = visible[index];
	dev found = device_words(n)[REPLACED] ? &replacements[n] : &devices[n];
	ret r = enter(found, 63);
	if (r == SUCCESS)
		*d = found;
	return r;
}

#ifndef WITHOUT_UUID
/* SAME_UUID is 0, or 1 + the number of the device whose UUID is returned. */
ret nvmlDeviceGetUUID(dev d, char *uuid, unsigned length)
{
	ret r = enter(d, 62);
	if (r == SUCCESS && !d->instance && device_words(d->n)[SAME_UUID])
		d = &devices[device_words(d->n)[SAME_UUID] - 1];
	if (r == SUCCESS)
		d->instance ? mig_uuid(d, uuid, length) : (void)snprintf(uuid, length, "GPU-%08x-0000-4000-8000-%012x", (unsigned)device_words(d->n)[SERIAL], d->n);
	return r;
}
#endif

ret nvmlDeviceGetName(dev d, char *name, unsigned length)
{
	ret r = enter(d, 61);
	if (r == SUCCESS)
		d->instance ? mig_name(d, name, length) : (void)snprintf(name, length, "NVIDIA H100 80GB HBM3");
	return r;
}

#define MIG_CALLS
#include "mig.c"
#include "processes.c"

/* Calls with a string as result. */
#define TEXT(name, call, ...) \
	ret name(dev d, char *text, unsigned length) { ret r = enter(d, call); if (r == SUCCESS) snprintf(text, length, __VA_ARGS__); return r; }

TEXT(nvmlDeviceGetSerial, 22, "serial-%d", d->n)
TEXT(nvmlDeviceGetVbiosVersion, 23, "96.00.%02d", d->n)
TEXT(nvmlDeviceGetInforomImageVersion, 24, "G520.%04d", d->n)

ret nvmlDeviceGetInforomVersion(dev d, int object, char *text, unsigned length)
{
	static const char *const objects[] = { "oem", "ecc", "power" };
	ret r = enter(d, 25);
	if (r == SUCCESS)
		snprintf(text, length, "%s-%d", objects[object], d->n);
	return r;
}

ret nvmlSystemGetNVMLVersion(char *version, unsigned length)
{
	words[CALLS]++;
	snprintf(version, length, "12.%u.1.fake", (unsigned)words[DRIVER]);
	return SUCCESS;
}

/* Calls with a number as result. `call` is the bit in UNSUPPORTED. */
#define NUMBER(name, type, call, word) \
	ret name(dev d, type *v) { ret r = enter(d, call); if (r == SUCCESS) *v = (type)device_words(d->n)[word]; return r; }

NUMBER(nvmlDeviceGetPowerUsage, unsigned, 2, POWER)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, unsigned, 3, POWER_LIMIT)
NUMBER(nvmlDeviceGetTotalEnergyConsumption, unsigned long long, 4, ENERGY)
NUMBER(nvmlDeviceGetPcieReplayCounter, unsigned, 5, REPLAY)
NUMBER(nvmlDeviceGetComputeMode, int, 55, COMPUTE_MODE)
NUMBER(nvmlDeviceGetPowerManagementLimit, unsigned, 16, POWER_SET)
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, 17, EVENTS)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, 26, LINK_GEN)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, unsigned, 27, LINK_WIDTH)
NUMBER(nvmlDeviceGetFanSpeed, unsigned, 30, FAN)
NUMBER(nvmlDeviceGetPerformanceState, unsigned, 31, PSTATE)

static ret constant(dev d, int call, unsigned v, unsigned *out)
{
	ret r = enter(d, call);
	if (r == SUCCESS)
		*out = v;
	return r;
}

ret nvmlDeviceGetMaxPcieLinkGeneration(dev d, unsigned *v) { return constant(d, 28, 5, v); }
ret nvmlDeviceGetMaxPcieLinkWidth(dev d, unsigned *v) { return constant(d, 29, 16, v); }
ret nvmlDeviceGetBrand(dev d, unsigned *v) { return constant(d, 33, 14, v); }

#ifndef OLD_DRIVER
struct fabric { unsigned version; unsigned char cluster[16]; unsigned status, clique; unsigned char state; unsigned mask; unsigned char summary; };
struct fabric_v2 { unsigned version; unsigned char cluster[16]; unsigned status, clique; unsigned char state; unsigned mask; };

/* FABRIC_VERSION is the newest version of the structure, 3 or 2. */
ret nvmlDeviceGetGpuFabricInfoV(dev d, struct fabric *f)
{
	ret r = enter(d, 32);
	if (r != SUCCESS)
		return r;
	_Atomic uint64_t *w = device_words(d->n);
	int is_v3 = f->version == (sizeof *f | 3 << 24);
	if ((is_v3 && w[FABRIC_VERSION] < 3) || (!is_v3 && f->version != (sizeof(struct fabric_v2) | 2 << 24)))
		return 25;
	for (int i = 0; i < 16; i++)
		f->cluster[i] = w[CLIQUE] ? 0xa0 + i : 0;
	f->status = (unsigned)w[FABRIC_STATUS];
	f->clique = (unsigned)w[CLIQUE];
	f->state = (unsigned char)w[FABRIC_STATE];
	f->mask = 0x11;
	if (is_v3)
		f->summary = 1;
	return SUCCESS;
}

NUMBER(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, 17, EVENTS)
#endif

ret nvmlDeviceGetTemperatureThreshold(dev d, int kind, unsigned *celsius)
{
	ret r = enter(d, 18);
	if (r == SUCCESS)
		*celsius = (unsigned)device_words(d->n)[SLOWDOWN];
	return kind == 1 ? r : INVALID_ARGUMENT;
}

ret nvmlDeviceGetMinorNumber(dev d, unsigned *minor)
{
	ret r = enter(d, 60);
	if (r == SUCCESS)
		*minor = d->n;
	return r;
}

struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char busId[32]; };

ret nvmlDeviceGetPciInfo_v3(dev d, struct pci *pci)
{
	ret r = enter(d, 59);
	if (r != SUCCESS)
		return r;
	memset(pci, 0, sizeof *pci);
	pci->bus = 0x1b + d->n;
	pci->id = 0x233010de;
	snprintf(pci->legacy, sizeof pci->legacy, "%04X:%02X:%02X.0", 0, pci->bus, 0);
	snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.0", 0, pci->bus, 0);
	return SUCCESS;
}

ret nvmlDeviceGetClockInfo(dev d, int type, unsigned *mhz)
{
	ret r = enter(d, 0);
	if (r == SUCCESS)
		*mhz = (unsigned)device_words(d->n)[type == 1 ? SM_CLOCK : MEM_CLOCK];
	return r;
}

ret nvmlDeviceGetTemperature(dev d, int sensor, unsigned *celsius)
{
	ret r = enter(d, 1);
	if (r == SUCCESS)
		*celsius = (unsigned)device_words(d->n)[TEMPERATURE];
	return sensor == 0 ? r : INVALID_ARGUMENT;
}

struct utilization { unsigned gpu, memory; };

ret nvmlDeviceGetUtilizationRates(dev d, struct utilization *u)
{
	ret r = enter(d, 6);
	if (r == SUCCESS)
		*u = (struct utilization){ (unsigned)device_words(d->n)[UTIL], (unsigned)device_words(d->n)[MEM_UTIL] };
	return r;
}

static ret codec(dev d, int call, int word, unsigned *v, unsigned *period)
{
	ret r = enter(d, call);
	if (r == SUCCESS) {
		*v = (unsigned)device_words(d->n)[word];
		*period = 167000;
	}
	return r;
}

ret nvmlDeviceGetEncoderUtilization(dev d, unsigned *v, unsigned *period) { return codec(d, 7, ENC, v, period); }
ret nvmlDeviceGetDecoderUtilization(dev d, unsigned *v, unsigned *period) { return codec(d, 8, DEC, v, period); }

struct memory { unsigned long long total, free, used; };

/* In the first version the used memory includes the reserved memory. */
ret nvmlDeviceGetMemoryInfo(dev d, struct memory *m)
{
	ret r = enter(d, 58);
	if (r == SUCCESS) {
		uint64_t total = *memory_of(d, TOTAL), used = *memory_of(d, USED), reserved = *memory_of(d, RESERVED);
		*m = (struct memory){ total, total - used - reserved, used + reserved };
	}
	return r;
}

#ifndef OLD_DRIVER
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };

ret nvmlDeviceGetMemoryInfo_v2(dev d, struct memory_v2 *m)
{
	ret r = enter(d, 9);
	if (r != SUCCESS)
		return r;
	if (m->version != (sizeof *m | 2 << 24))
		return 25; /* argument version mismatch */
	m->total = *memory_of(d, TOTAL);
	m->reserved = *memory_of(d, RESERVED);
	m->used = *memory_of(d, USED);
	m->free = m->total - m->used - m->reserved;
	return SUCCESS;
}

ret nvmlDeviceGetRemappedRows(dev d, unsigned *correctable, unsigned *uncorrectable, unsigned *pending, unsigned *failed)
{
	ret r = enter(d, 10);
	if (r == SUCCESS) {
		_Atomic uint64_t *w = device_words(d->n);
		*correctable = (unsigned)w[CORRECTABLE];
		*uncorrectable = (unsigned)w[UNCORRECTABLE];
		*pending = w[UNCORRECTABLE] > 0;
		*failed = (unsigned)w[REMAP_FAILED];
	}
	return r;
}

struct margin { unsigned version; int celsius; };

ret nvmlDeviceGetMarginTemperature(dev d, struct margin *m)
{
	ret r = enter(d, 19);
	if (r == SUCCESS && m->version != (sizeof *m | 1 << 24))
		return 25;
	if (r == SUCCESS)
		m->celsius = (int)device_words(d->n)[MARGIN];
	return r;
}

struct feature { int code; unsigned licensed; char info[128], product[128]; unsigned enabled; struct { unsigned year; unsigned short month, day, hour, min, sec; unsigned char status; } expiry; };
struct features { int supported; unsigned count; struct feature feature[3]; };

/* LICENSED is 0 without license requirement, 1 without a license and 2 with a license. */
ret nvmlDeviceGetGridLicensableFeatures_v4(dev d, struct features *f)
{
	ret r = enter(d, 20);
	if (r != SUCCESS)
		return r;
	memset(f, 0, sizeof *f);
	f->supported = device_words(d->n)[LICENSED] > 0;
	f->count = f->supported;
	f->feature[0].licensed = device_words(d->n)[LICENSED] > 1;
	return SUCCESS;
}

struct field { unsigned id, scope; long long timestamp, latency; int type; ret result; union { double d; unsigned u; unsigned long long l; } value; };

/* Sets a field value. Drivers since 595 have the slowdown counters in fields 269-271,
 * older drivers in 251-253. The other three IDs have a different meaning. */
static ret set_field(dev d, struct field *f)
{
	_Atomic uint64_t *w = device_words(d->n);
	unsigned id = f->id, first = words[DRIVER] < 595 ? 251 : 269;
	f->type = 3;
	if ((id >= 3 && id <= 6) || (id >= 29 && id <= 31) || id == 38 || id == 45 || id == 52 || id == 59 || (id >= 74 && id <= 79) || (id >= first && id < first + 3)) {
		f->value.l = 1000000000ull * id + d->n;
	} else if ((id >= 251 && id <= 253) || (id >= 269 && id <= 271)) {
		f->value.l = 7;
	} else if (((id >= 161 && id <= 163) || (id >= 206 && id <= 221)) && f->scope == 0xffffffff) {
		f->value.l = id;
	} else if ((id == 138 || id == 139) && f->scope == 0xffffffff) {
		f->value.l = w[NVLINK_KIB] + id;
	} else if (id >= 187 && id <= 189) {
		static const unsigned limits[] = { 200000, 700000, 600000 }; /* min, max, default */
		f->type = 1;
		f->value.u = limits[id - 187] + d->n;
	} else if (id == 197 || id == 198) {
		f->type = w[NARROW] ? 1 : 3;
		f->value.l = w[PCIE_BYTES] + id;
	} else if (id == 82) {
		f->type = 1;
		f->value.u = (unsigned)w[MEMORY_TEMP];
	} else {
		return NOT_SUPPORTED;
	}
	return SUCCESS;
}

/* The call succeeds. Each value has its own return code and is undefined after a
 * failure. */
ret nvmlDeviceGetFieldValues(dev d, int n, struct field *values)
{
	ret r = enter(d, 57);
	for (int i = 0; r == SUCCESS && i < n; i++) {
		values[i].value.l = 0xdeadbeefdeadbeef;
		values[i].result = device_words(d->n)[UNSUPPORTED] >> 11 & 1 ? NOT_SUPPORTED : set_field(d, &values[i]);
		if (device_words(d->n)[FIELD_RESULT])
			values[i].result = (ret)device_words(d->n)[FIELD_RESULT];
	}
	return r;
}

struct sample { int n, gi; unsigned long long number; };
struct gpm_support { unsigned version, supported; };
struct gpm_metric { unsigned id; ret result; double value; char *info[3]; };
struct gpm_request { unsigned version, count; struct sample *one, *two; struct gpm_metric metric[333]; };

/* Bit 15 of UNSUPPORTED means a device before Hopper. The call itself succeeds. */
ret nvmlGpmQueryDeviceSupport(dev d, struct gpm_support *s)
{
	ret r = enter(d, 56);
	if (r == SUCCESS)
		s->supported = !(device_words(d->n)[UNSUPPORTED] >> 15 & 1);
	return r;
}

ret nvmlGpmSampleAlloc(struct sample **s)
{
	words[CALLS]++;
	words[SAMPLES]++;
	*s = calloc(1, sizeof **s);
	return SUCCESS;
}

ret nvmlGpmSampleFree(struct sample *s)
{
	words[CALLS]++;
	words[SAMPLES]--;
	free(s);
	return SUCCESS;
}

ret nvmlGpmSampleGet(dev d, struct sample *s)
{
	static unsigned long long taken;
	ret r = enter(d, 21);
	if (r == SUCCESS)
		*s = (struct sample){ d->n, 0, ++taken };
	return r;
}

ret nvmlGpmMigSampleGet(dev d, unsigned gi, struct sample *s)
{
	static unsigned long long taken;
	dev instance;
	ret r = gpu_instance(d, 21, gi, &instance);
	if (r == SUCCESS)
		*s = (struct sample){ d->n, (int)gi, ++taken };
	return r;
}

/* A percentage is the sum of GPM_UTIL, the metric ID and the GPU instance ID. A rate is
 * the metric ID in MiB/s. The older sample must be the first. */
ret nvmlGpmMetricsGet(struct gpm_request *q)
{
	words[CALLS]++;
	if (words[UNLOADED] || !words[READY])
		return UNINITIALIZED;
	if (q->version != 1 || !q->one->number || q->one->number >= q->two->number || q->one->n != q->two->n || q->one->gi != q->two->gi)
		return INVALID_ARGUMENT;
	for (unsigned i = 0; i < q->count; i++) {
		struct gpm_metric *m = &q->metric[i];
		m->result = SUCCESS;
		m->value = m->id < 20 ? device_words(q->one->n)[GPM_UTIL] + m->id + q->one->gi : m->id;
	}
	return SUCCESS;
}
#endif

/* Every device has two links. The first leads to a switch, or with SWITCHLESS to the
 * neighbor device n^1. The second is down. */
ret nvmlDeviceGetNvLinkState(dev d, unsigned link, int *active)
{
	if (link > 1)
		return INVALID_ARGUMENT;
	ret r = enter(d, 13);
	if (r == SUCCESS)
		*active = link == 0;
	return r;
}

ret nvmlDeviceGetNvLinkRemoteDeviceType(dev d, unsigned link, int *type)
{
	ret r = enter(d, 14);
	if (r == SUCCESS)
		*type = device_words(d->n)[SWITCHLESS] || link ? 0 : 2;
	return r;
}

ret nvmlDeviceGetNvLinkRemotePciInfo_v2(dev d, unsigned link, struct pci *pci)
{
	struct nvmlDevice_st *peer = &devices[d->n ^ 1];
	if (device_words(d->n)[UNSUPPORTED] >> 53 & 1)
		return NOT_SUPPORTED;
	return link ? INVALID_ARGUMENT : nvmlDeviceGetPciInfo_v3(peer, pci);
}

typedef struct { int open; } *set;

/* Event sets. WATCHED is 0, or 1 + the index of the set that a device is registered with. */
enum { MAX_SETS = 64 };
static __typeof__(*(set)0) event_sets[MAX_SETS];

ret nvmlEventSetCreate(set *s)
{
	words[CALLS]++;
	if (words[UNLOADED] || !words[READY])
		return UNINITIALIZED;
	for (int i = 0; i < MAX_SETS; i++) {
		if (!event_sets[i].open) {
			event_sets[i].open = 1;
			words[EVENT_SETS]++;
			*s = &event_sets[i];
			return SUCCESS;
		}
	}
	return UNKNOWN;
}

ret nvmlEventSetFree(set s)
{
	words[CALLS]++;
	if (!s || !s->open)
		return INVALID_ARGUMENT;
	s->open = 0;
	words[EVENT_SETS]--;
	for (int n = 0; n < MAX_DEVICES; n++)
		if (device_words(n)[WATCHED] == (uint64_t)(1 + (s - event_sets)))
			device_words(n)[WATCHED] = 0;
	return SUCCESS;
}

ret nvmlDeviceRegisterEvents(dev d, unsigned long long types, set s)
{
	ret r = enter(d, 12);
	if (r == SUCCESS && s && s->open && types == 8)
		device_words(d->n)[WATCHED] = 1 + (uint64_t)(s - event_sets);
	return r;
}

struct event { dev device; unsigned long long type, data; unsigned gi, ci; };

enum { DELIVERED = MAX_DEVICES };

/* Takes the next event of the set from the ring, and returns whether there is one. With only_lost,
 * events of other devices stay in the ring. Events of a device that no set watches are lost. */
static int next_event(uint64_t watched, int only_lost, struct event *e)
{
	for (uint64_t i = words[XID_READ]; i < words[XID_WRITTEN]; i++) {
		_Atomic uint64_t *slot = words + XID_RING + 2 * (i % RING);
		if (slot[0] == DELIVERED)
			continue;
		uint64_t by = device_words((int)slot[0])[WATCHED];
		if (by && (by != watched || (only_lost && device_words((int)slot[0])[STATE] != STATE_LOST)))
			continue;
		e->device = &devices[slot[0]];
		e->data = slot[1];
		slot[0] = DELIVERED;
		if (by)
			return 1;
	}
	return 0;
}

/* Returns the events of the devices of the set. Once the events of its lost devices are read, each call
 * returns IS_LOST, whatever other devices report. FLOOD is a number of further events of a device,
 * which come first. */
#ifdef OLD_DRIVER
ret nvmlEventSetWait(set s, struct event *e, unsigned ms)
#else
ret nvmlEventSetWait_v2(set s, struct event *e, unsigned ms)
#endif
{
	(void)ms;
	words[CALLS]++;
	if (words[UNLOADED] || !words[READY])
		return UNINITIALIZED;
	if (!s || !s->open)
		return INVALID_ARGUMENT;
	uint64_t watched = 1 + (uint64_t)(s - event_sets);
	int has_event = 0, is_lost = 0, failure = TIMEOUT;
	for (int n = 0; n < MAX_DEVICES; n++) {
		_Atomic uint64_t *w = device_words(n);
		if (w[WATCHED] != watched)
			continue;
		is_lost |= w[STATE] == STATE_LOST;
		if (w[FAILING] >> 49 & 1)
			failure = (ret)w[FAILURE];
		if (!has_event && w[FLOOD]) {
			w[FLOOD]--;
			e->device = &devices[n];
			e->data = 31;
			has_event = 1;
		}
	}
	if (!has_event && !next_event(watched, is_lost, e))
		return is_lost ? IS_LOST : failure;
	e->type = 8;
#ifndef OLD_DRIVER
	e->gi = e->ci = 0xffffffff;
#endif
	return SUCCESS;
}
