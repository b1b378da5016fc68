/*
 * MIG, a part of fake.c: the mode of each device and the instances that it is cut
 * in, which the test changes while the library is in use.
 */
#ifndef MIG_CALLS
enum { PARTS = 7, PART_WORDS = 11 };

/* Words of a device's MIG: its mode, then its instances. */
enum { MODE, FIRST_PART };
enum { SLICES, COMPUTE_SLICES, MEMORY_MIB, GI, CI, PART_USED, PART_RESERVED, PART_TOTAL, NAMED_GB, PROFILE_ID, START };

static struct nvmlDevice_st instances[MAX_DEVICES][PARTS];

static _Atomic uint64_t *mig_of(int n) { return words + DEVICES + MAX_DEVICES * DEVICE_WORDS + n * MIG_WORDS; }
static _Atomic uint64_t *part_of(dev d) { return mig_of(d->n) + FIRST_PART + (d->part - 1) * PART_WORDS; }

/* Whether a handle is of a device, or of an instance that still is. */
static int there(dev d)
{
	if ((d >= devices && d < devices + MAX_DEVICES) || (d >= replacements && d < replacements + MAX_DEVICES))
		return 1;
	return d >= &instances[0][0] && d < &instances[0][0] + MAX_DEVICES * PARTS && mig_of(d->n)[MODE] && part_of(d)[SLICES];
}

/* A device in MIG mode tells no utilization; an instance tells what it is, and its memory. */
static int mig_refuses(dev d, int call)
{
	if (d->part)
		return call != 9 && call != 58 && call != 61 && call != 62 && (call < 40 || call > 44);
	return mig_of(d->n)[MODE] && call >= 6 && call <= 8;
}

static _Atomic uint64_t *memory_of(dev d, int word)
{
	if (!d->part)
		return of(d->n) + word;
	return part_of(d) + (word == TOTAL ? PART_TOTAL : word == USED ? PART_USED : PART_RESERVED);
}

/* As real ones do, it hangs on the ids alone: another profile may follow under it. */
__attribute__((unused)) static void mig_uuid(dev d, char *uuid, unsigned length)
{
	_Atomic uint64_t *p = part_of(d);
	snprintf(uuid, length, "MIG-%08x-0000-5000-8000-%04x%04x%04x", (unsigned)of(d->n)[SERIAL], d->n, (unsigned)p[GI], (unsigned)p[CI]);
}

/* Names the profile unless NAMED_GB is 0. */
static void mig_name(dev d, char *name, unsigned length)
{
	_Atomic uint64_t *p = part_of(d);
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
		*current = *pending = (unsigned)mig_of(d->n)[MODE];
	return r;
}

ret nvmlDeviceGetMaxMigDeviceCount(dev d, unsigned *count)
{
	ret r = enter(d, 46);
	if (r == SUCCESS)
		*count = PARTS;
	return r;
}

ret nvmlDeviceGetMigDeviceHandleByIndex(dev d, unsigned index, dev *instance)
{
	ret r = enter(d, 47);
	if (r != SUCCESS || index >= PARTS)
		return r == SUCCESS ? INVALID_ARGUMENT : r;
	struct nvmlDevice_st *i = &instances[d->n][index];
	*i = (struct nvmlDevice_st){ d->n, (int)index + 1 };
	if (!there(i))
		return 6; /* not found */
	*instance = i;
	return SUCCESS;
}

static ret id_of(dev d, int call, int word, unsigned *id)
{
	ret r = enter(d, call);
	if (r != SUCCESS || !d->part)
		return r == SUCCESS ? INVALID_ARGUMENT : r;
	*id = (unsigned)part_of(d)[word];
	return SUCCESS;
}

ret nvmlDeviceGetGpuInstanceId(dev d, unsigned *id) { return id_of(d, 40, GI, id); }
ret nvmlDeviceGetComputeInstanceId(dev d, unsigned *id) { return id_of(d, 41, CI, id); }

struct attributes { unsigned sms, copy, decoder, encoder, jpeg, ofa, slices, compute_slices; unsigned long long memory; };

ret nvmlDeviceGetAttributes_v2(dev d, struct attributes *a)
{
	ret r = enter(d, 42);
	if (r != SUCCESS || !d->part)
		return r == SUCCESS ? INVALID_ARGUMENT : r;
	_Atomic uint64_t *p = part_of(d);
	*a = (struct attributes){ .slices = (unsigned)p[SLICES], .compute_slices = (unsigned)p[COMPUTE_SLICES], .memory = p[MEMORY_MIB] };
	return SUCCESS;
}

/* A GPU instance is told by the handle of one of its parts. */
static ret gpu_instance(dev d, int call, unsigned id, dev *instance)
{
	ret r = enter(d, call);
	for (int i = 0; r == SUCCESS && i < PARTS; i++) {
		*instance = &instances[d->n][i];
		if ((*instance)->part && there(*instance) && part_of(*instance)[GI] == id)
			return SUCCESS;
	}
	return r == SUCCESS ? 6 : r;
}

ret nvmlDeviceGetGpuInstanceById(dev d, unsigned id, dev *instance) { return gpu_instance(d, 48, id, instance); }

struct gi_info { dev device; unsigned id, profile, start, size; };

ret nvmlGpuInstanceGetInfo(dev instance, struct gi_info *info)
{
	_Atomic uint64_t *p = part_of(instance);
	words[CALLS]++;
	*info = (struct gi_info){ &devices[instance->n], (unsigned)p[GI], (unsigned)p[PROFILE_ID], (unsigned)p[START], (unsigned)p[SLICES] };
	return SUCCESS;
}
#endif
