package ledger

import (
	"slices"
	"testing"
	"time"

	"plimsoll.dev/plimsoll/operator/internal/admission/shape"
)

// ofQueue is an entry of ClusterQueue cq on cluster1.
func ofQueue(uid string) Entry {
	e := entry(uid, "cluster1")
	e.Queue.Cluster = "cq"
	return e
}

// amongQueues selects ClusterQueues of the hub.
func amongQueues(names ...string) func(Queue) bool {
	return func(q Queue) bool { return slices.Contains(names, q.Cluster) }
}

// quotaUsed is the quota that workloads other than uid use, by samples of these times. A time of 0
// is unknown.
func quotaUsed(v View, uid string, devices, quota int) int64 {
	at := SampleTimes{Devices: after(devices)}
	if quota != 0 {
		at.Quota = after(quota)
	}
	return v.QuotaOf(amongQueues("cq"), "cluster1", at, uid, podSet(8, 1)).Devices
}

// Kueue on the worker reserves quota at the admission, also for pods that do not start. Its samples may
// be older than those of the devices, which show that the pods run.
func TestQuotaIsMeasuredByItsOwnSamples(t *testing.T) {
	admitted := func(l *Ledger) { l.MarkAdmitted("a", "cluster1", after(10), true) }
	ready := func(l *Ledger) {
		admitted(l)
		l.MarkPodsReady("a", after(12))
	}
	held := func(l *Ledger) {
		admitted(l)
		l.MarkHeld(Holders{"cluster1": {{Kind: "Job", Name: "a"}: 1}}, after(16))
	}
	for _, tc := range []struct {
		name           string
		change         func(*Ledger)
		devices, quota int
		want           int64
	}{
		{"not admitted", func(*Ledger) {}, 60, 60, 8},
		{"samples of Kueue within the settling time", admitted, 60, 15, 8},
		{"samples of Kueue after the settling time", admitted, 60, 16, 0},
		{"the same, with older samples of devices", admitted, 9, 16, 0},
		{"the pods are ready, and samples of Kueue older than the admission", ready, 60, 9, 8},
		{"the pods are ready, and samples of Kueue after the settling time", ready, 60, 16, 0},
		{"the pods hold their devices, and samples of Kueue older than the admission", held, 60, 9, 8},
		{"the time of Kueue's samples is unknown, for four settling times", ready, 30, 0, 8},
		{"the time of Kueue's samples is unknown, after four settling times", ready, 31, 0, 0},
		{"ended, a settling time ago", func(l *Ledger) { l.MarkEnded("a", after(10)) }, 15, 5, 8},
		{"ended, longer ago", func(l *Ledger) { l.MarkEnded("a", after(10)) }, 16, 5, 0},
		{"finished", func(l *Ledger) { ready(l); l.Release("a") }, 13, 9, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := New(5*time.Second, time.Hour)
			e := ofQueue("a")
			e.Owners = []Owner{{Kind: "Job", Name: "a"}}
			l.Debit(e)
			tc.change(l)
			if got := quotaUsed(l.View(), "other", tc.devices, tc.quota); got != tc.want {
				t.Errorf("quota of %d devices is used, want %d", got, tc.want)
			}
			if got := quotaUsed(l.View(), "a", tc.devices, tc.quota); got != 0 {
				t.Errorf("a workload's own entry uses quota of %d devices, want 0", got)
			}
			if got := quotaUsed(l.View().Without([]string{"a"}), "other", tc.devices, tc.quota); got != 0 {
				t.Errorf("quota of %d devices is used in a view without the workload, want 0", got)
			}
		})
	}
}

func TestQuotaOfQueues(t *testing.T) {
	for _, tc := range []struct {
		name   string
		queues []string
		p      shape.PodSet
		want   int64
	}{
		{"its queue", []string{"cq"}, podSet(8, 1), 8},
		{"one of several queues", []string{"a", "cq"}, podSet(8, 1), 8},
		{"another queue", []string{"a"}, podSet(8, 1), 0},
		{"no queue", nil, podSet(8, 1), 0},
		{"another resource", []string{"cq"}, shape.PodSet{Resource: "amd.com/gpu", DevicesPerPod: 8, Pods: 1}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := New(5*time.Second, time.Hour)
			l.Debit(ofQueue("a"))
			if got := l.View().QuotaOf(amongQueues(tc.queues...), "cluster1", SampleTimes{Devices: after(60), Quota: after(60)}, "other", tc.p).Devices; got != tc.want {
				t.Errorf("quota of %d devices is used, want %d", got, tc.want)
			}
		})
	}
}

// An entry whose devices samples show reserves none any more. It uses quota until the samples of Kueue
// show that as well, and those of gates that know no time of the quota.
func TestExpiryKeepsTheQuota(t *testing.T) {
	const known, unknown = 9, 0 // time of Kueue's samples in the decision, before the admission
	for _, tc := range []struct {
		name   string
		expire SampleTimes
		want   int64
	}{
		{"no sample of Kueue", SampleTimes{Devices: after(30)}, 8},
		{"no sample of Kueue for four settling times", SampleTimes{Devices: after(31)}, 0},
		{"samples of Kueue older than the admission", SampleTimes{Devices: after(31), Quota: after(9)}, 8},
		{"samples of Kueue show it, but a gate may not know their time", SampleTimes{Devices: after(30), Quota: after(16)}, 8},
		{"all samples show it", SampleTimes{Devices: after(31), Quota: after(16)}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := New(5*time.Second, time.Hour)
			l.Debit(ofQueue("a"))
			l.MarkAdmitted("a", "cluster1", after(10), true)
			l.MarkPodsReady("a", after(12))
			for i, wantDropped := range []int{1, 0} {
				if dropped := l.Expire(map[string]SampleTimes{"cluster1": tc.expire}, after(40)); dropped != wantDropped {
					t.Errorf("round %d: %d entries dropped, want %d", i, dropped, wantDropped)
				}
				if got := l.DevicesByCluster()["cluster1"] + l.View().Devices("cluster1", time.Time{}, "other", podSet(8, 1)); got != 0 {
					t.Errorf("round %d: %d devices are reserved, want 0", i, got)
				}
				if got := quotaUsed(l.View(), "other", 14, known); got != tc.want {
					t.Errorf("round %d: quota of %d devices is used, want %d", i, got, tc.want)
				}
				if got := quotaUsed(l.View(), "other", 14, unknown); got != tc.want {
					t.Errorf("round %d: quota of %d devices is used without a time, want %d", i, got, tc.want)
				}
			}
		})
	}
}

// The quota of an entry that samples of devices show ends with the workload, with its next attempt on the
// cluster, and with the TTL.
func TestShownEntryIsDropped(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Ledger)
		want   int64
	}{
		{"kept", func(*Ledger) {}, 8},
		{"kept when the workload loses its quota", func(l *Ledger) { l.MarkEnded("a", after(20)) }, 8},
		{"finished", func(l *Ledger) { l.Release("a") }, 0},
		{"sent there again", func(l *Ledger) { l.Debit(ofQueue("a")) }, 8}, // once, not twice
		{"TTL", func(l *Ledger) { l.Expire(nil, after(601)) }, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := New(5*time.Second, 10*time.Minute)
			l.Debit(ofQueue("a"))
			l.MarkAdmitted("a", "cluster1", after(10), true)
			l.MarkPodsReady("a", after(12))
			l.Expire(map[string]SampleTimes{"cluster1": {Devices: after(14)}}, after(15))
			before := l.View()
			if got := quotaUsed(before.Without([]string{"a"}), "other", 14, 9); got != 0 {
				t.Errorf("quota of %d devices is used in a view without the workload, want 0", got)
			}
			tc.change(l)
			if got := quotaUsed(l.View(), "other", 14, 9); got != tc.want {
				t.Errorf("quota of %d devices is used, want %d", got, tc.want)
			}
			if tc.want == 0 && l.Commit(before, "other", nil, nil, nil) {
				t.Error("a decision by the quota before was committed")
			}
		})
	}
}
