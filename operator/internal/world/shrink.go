package world

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Shrink removes faults, jobs and clusters from a world, and simplifies what stays, as long as it still
// fails. It returns the smallest world that it found. fails runs a world; attempts bounds the runs.
func Shrink(s Spec, attempts int, fails func(Spec) bool) Spec {
	try := func(smaller Spec) bool {
		if attempts <= 0 || !smaller.hasQueues() {
			return false
		}
		attempts--
		if !fails(smaller) {
			return false
		}
		s = smaller
		return true
	}
	for changed := true; changed && attempts > 0; {
		changed = false
		changed = shrinkList(&s, func(s *Spec) *[]Fault { return &s.Faults }, 0, try) || changed
		changed = shrinkList(&s, func(s *Spec) *[]Job { return &s.Jobs }, 1, try) || changed
		changed = shrinkList(&s, func(s *Spec) *[]Cluster { return &s.Clusters }, 1, try) || changed
		changed = shrinkList(&s, func(s *Spec) *[]Queue { return &s.Queues }, 1, try) || changed
	}
	for i := range s.Jobs {
		for _, simpler := range simplerJobs(s.Jobs[i]) {
			smaller := s
			smaller.Jobs = slices.Clone(s.Jobs)
			smaller.Jobs[i] = simpler
			try(smaller)
		}
	}
	return s
}

// hasQueues reports whether the world has the queues that it refers to.
func (s *Spec) hasQueues() bool {
	has := func(queue string) bool {
		return slices.ContainsFunc(s.Queues, func(q Queue) bool { return q.Name == cmp.Or(queue, "gpu") })
	}
	isMissing := func(j Job) bool { return !has(j.Queue) }
	return !slices.ContainsFunc(s.Jobs, isMissing) && (s.Settings.Trial == nil || has(s.Settings.Trial.QueueName)) || len(s.Queues) == 0
}

// shrinkList removes parts of a list, from halves to single elements.
func shrinkList[T any](s *Spec, list func(*Spec) *[]T, least int, try func(Spec) bool) bool {
	changed := false
	for size := (len(*list(s)) + 1) / 2; size > 0; size /= 2 {
		for at := 0; at < len(*list(s)); {
			n := min(size, len(*list(s))-at)
			if len(*list(s))-n < least {
				break
			}
			smaller := *s
			*list(&smaller) = slices.Delete(slices.Clone(*list(s)), at, at+n)
			if try(smaller) {
				changed = true
				continue // the next part moved to the same place
			}
			at += n
		}
	}
	return changed
}

// simplerJobs are versions of a job without one of its peculiarities.
func simplerJobs(j Job) []Job {
	var list []Job
	add := func(change func(*Job)) {
		simpler := j
		if change(&simpler); simpler != j {
			list = append(list, simpler)
		}
	}
	add(func(j *Job) { j.Pods, j.MinPods = 1, 0 })
	add(func(j *Job) { j.CPU, j.Memory, j.InitCPU, j.SidecarCPU = 0, 0, 0, 0 })
	add(func(j *Job) { j.SidecarDevices = 0 })
	add(func(j *Job) { j.Topology = "" })
	add(func(j *Job) { j.Priority = 0 })
	add(func(j *Job) { j.Elastic = false })
	add(func(j *Job) { j.Limit = false })
	add(func(j *Job) { j.Reclaimable, j.Idle = false, false })
	add(func(j *Job) { j.Tried = false })
	add(func(j *Job) { j.Pull, j.Grace, j.Lingers = 0, 0, 0 })
	add(func(j *Job) { j.Model, j.Tolerates = "", "" })
	add(func(j *Job) { j.Kind, j.Behavior = "", Succeeds })
	add(func(j *Job) { j.Namespace, j.Queue = "", "" })
	return list
}

// Describe is a world as the Go code that makes it, to be kept as a test.
func Describe(s Spec) string {
	text := fmt.Sprintf("%#v", s)
	for _, r := range [][2]string{{"world.", ""}, {", ", ",\n\t"}} {
		text = strings.ReplaceAll(text, r[0], r[1])
	}
	return text
}
