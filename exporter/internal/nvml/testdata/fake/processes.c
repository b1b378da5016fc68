/*
 * Processes of each device, included by fake.c. nvmlDeviceGetProcessUtilization returns
 * the samples after the requested timestamp and stores the timestamp in LAST_SEEN.
 */
enum { PROCESSES = 4, PID = 0, MEMORY, SM, STAMP, MPS, PROCESS_FIELDS, LAST_SEEN = PROCESSES * PROCESS_FIELDS };

static _Atomic uint64_t *process_words(int n) { return words + DEVICES + MAX_DEVICES * (DEVICE_WORDS + MIG_WORDS) + n * PROCESS_WORDS; }

struct process { unsigned pid; unsigned long long memory; unsigned gi, ci; };

static ret list(dev d, int call, uint64_t mps, unsigned *count, struct process *infos)
{
	ret r = enter(d, call);
	if (r != SUCCESS)
		return r;
	unsigned n = 0;
	for (int i = 0; i < PROCESSES; i++) {
		_Atomic uint64_t *p = process_words(d->n) + i * PROCESS_FIELDS;
		if (!p[PID] || p[MPS] != mps)
			continue;
		if (n < *count)
			infos[n] = (struct process){ (unsigned)p[PID], p[MEMORY], ~0u, ~0u };
		n++;
	}
	r = n > *count ? INSUFFICIENT_SIZE : SUCCESS;
	*count = n;
	return r;
}

ret nvmlDeviceGetComputeRunningProcesses_v3(dev d, unsigned *count, struct process *infos) { return list(d, 49, 0, count, infos); }
ret nvmlDeviceGetMPSComputeRunningProcesses_v3(dev d, unsigned *count, struct process *infos) { return list(d, 50, 1, count, infos); }

struct busy { unsigned pid; unsigned long long stamp; unsigned sm, memory, enc, dec; };

ret nvmlDeviceGetProcessUtilization(dev d, struct busy *samples, unsigned *count, unsigned long long seen)
{
	ret r = enter(d, 51);
	if (r != SUCCESS)
		return r;
	process_words(d->n)[LAST_SEEN] = seen;
	unsigned n = 0;
	for (int i = 0; i < PROCESSES; i++) {
		_Atomic uint64_t *p = process_words(d->n) + i * PROCESS_FIELDS;
		if (!p[PID] || p[STAMP] <= seen)
			continue;
		if (n < *count)
			samples[n] = (struct busy){ .pid = (unsigned)p[PID], .stamp = p[STAMP], .sm = (unsigned)p[SM] };
		n++;
	}
	if (!n)
		return 6; /* not found */
	r = n > *count ? INSUFFICIENT_SIZE : SUCCESS;
	*count = n;
	return r;
}
