/*
 * MIG, included by fake.c: the MIG mode and the instances of each device. The test
 * changes both while the library is in use.
 */
#ifndef MIG_CALLS
enum { MAX_INSTANCES = 7, INSTANCE_WORDS = 11 };

/* Words of a device: its MIG mode, then its instances. */
enum { MODE, FIRST_INSTANCE };
enum { SLICES, COMPUTE_SLICES, MEMORY_MIB, GI, CI, INSTANCE_USED, INSTANCE_RESERVED, INSTANCE_TOTAL, NAMED_GB, PROFILE_ID, START };

static struct nvmlDevice_st instances[MAX_DEVICES][MAX_INSTANCES];

static _Atomic uint64_t *mig_words(int n) { return words + DEVICES + MAX_DEVICES * DEVICE_WORDS + n * MIG_WORDS; }
static _Atomic uint64_t *instance_words(dev d) { return mig_words(d->n) + FIRST_INSTANCE + (d->instance - 1) * INSTANCE_WORDS; }

/* Returns whether the handle belongs to a device or to an existing instance. */
static int is_present(dev d)
{
	if ((d >= devices && d < devices + MAX_DEVICES) || (d >= replacements && d < replacements + MAX_DEVICES))
		return 1;
	return d >= &instances[0][0] && d < &instances[0][0] + MAX_DEVICES * MAX_INSTANCES && mig_words(d->n)[MODE] && instance_words(d)[SLICES];
}

/* A device in MIG mode has no utilization. An instance supports only the calls for its
 * identity and its memory. */
static int mig_supports(dev d, int call)
{
	if (d->instance)
		return call == 9 || call == 58 || call == 61 || call == 62 || (call >= 40 && call <= 44);
	return !mig_words(d->n)[MODE] || call < 6 || call > 8;
}

static _Atomic uint64_t *memory_of(dev d, int word)
{
	if (!d->instance)
		return device_words(d->n) + word;
	return instance_words(d) + (word == TOTAL ? INSTANCE_TOTAL : word == USED ? INSTANCE_USED : INSTANCE_RESERVED);
}

/* Like a real UUID it depends only on the IDs: an instance with another profile can
 * reuse the UUID. */
__attribute__((unused)) static void mig_uuid(dev d, char *uuid, unsigned length)
{
	_Atomic uint64_t *p = instance_words(d);
	snprintf(uuid, length, "MIG-%08x-0000-5000-8000-%04x%04x%04x", (unsigned)device_words(d->n)[SERIAL], d->n, (unsigned)p[GI], (unsigned)p[CI]);
}

/* The name contains the profile unless NAMED_GB is 0. */
static void mig_name(dev d, char *name, unsigned length)
{
	_Atomic uint64_t *p = instance_words(d);
	if (p[NAMED_GB])
		snprintf(name, length, "NVIDIA H100 80GB HBM3 MIG %ug.%ugb", (unsigned)p[SLICES], (unsigned)p[NAMED_GB]);
	else
		snprintf(name, length, "NVIDIA H100 80GB HBM3");
}
#else
ret nvmlDeviceGetMigMode(dev d, unsigned *current, unsigned *pending)
{
	ret r = enter(d, 45);
	if (r == SUCCESS)
		*current = *pending = (unsigned)mig_words(d->n)[MODE];
	return r;
}

ret nvmlDeviceGetMaxMigDeviceCount(dev d, unsigned *count)
{
	ret r = enter(d, 46);
	if (r == SUCCESS)
		*count = MAX_INSTANCES;
	return r;
}

ret nvmlDeviceGetMigDeviceHandleByIndex(dev d, unsigned index, dev *instance)
{
	ret r = enter(d, 47);
	if (r != SUCCESS || index >= MAX_INSTANCES)
		return r == SUCCESS ? INVALID_ARGUMENT : r;
	struct nvmlDevice_st *i = &instances[d->n][index];
	*i = (struct nvmlDevice_st){ d->n, (int)index + 1 };
	if (!is_present(i))
		return 6; /* not found */
	*instance = i;
	return SUCCESS;
}

static ret id_of(dev d, int call, int word, unsigned *id)
{
	ret r = enter(d, call);
	if (r != SUCCESS || !d->instance)
		return r == SUCCESS ? INVALID_ARGUMENT : r;
	*id = (unsigned)instance_words(d)[word];
	return SUCCESS;
}

ret nvmlDeviceGetGpuInstanceId(dev d, unsigned *id) { return id_of(d, 40, GI, id); }
ret nvmlDeviceGetComputeInstanceId(dev d, unsigned *id) { return id_of(d, 41, CI, id); }

struct attributes { unsigned sms, copy, decoder, encoder, jpeg, ofa, slices, compute_slices; unsigned long long memory; };

ret nvmlDeviceGetAttributes_v2(dev d, struct attributes *a)
{
	ret r = enter(d, 42);
	if (r != SUCCESS || !d->instance)
		return r == SUCCESS ? INVALID_ARGUMENT : r;
	_Atomic uint64_t *p = instance_words(d);
	*a = (struct attributes){ .slices = (unsigned)p[SLICES], .compute_slices = (unsigned)p[COMPUTE_SLICES], .memory = p[MEMORY_MIB] };
	return SUCCESS;
}

/* A GPU instance is represented by the handle of one of its compute instances. */
static ret gpu_instance(dev d, int call, unsigned id, dev *instance)
{
	ret r = enter(d, call);
	for (int i = 0; r == SUCCESS && i < MAX_INSTANCES; i++) {
		*instance = &instances[d->n][i];
		if ((*instance)->instance && is_present(*instance) && instance_words(*instance)[GI] == id)
			return SUCCESS;
	}
	return r == SUCCESS ? 6 : r;
}

ret nvmlDeviceGetGpuInstanceById(dev d, unsigned id, dev *instance) { return gpu_instance(d, 48, id, instance); }

struct gi_info { dev device; unsigned id, profile, start, size; };

ret nvmlGpuInstanceGetInfo(dev instance, struct gi_info *info)
{
	_Atomic uint64_t *p = instance_words(instance);
	words[CALLS]++;
	*info = (struct gi_info){ &devices[instance->n], (unsigned)p[GI], (unsigned)p[PROFILE_ID], (unsigned)p[START], (unsigned)p[SLICES] };
	return SUCCESS;
}
#endif
