package world

import (
	"cmp"
	"testing"
)

// A smaller world has the queues of its jobs.
func TestShrinkKeepsQueues(t *testing.T) {
	spec := Spec{Queues: []Queue{{Name: "a"}, {Name: "b"}, {Name: "c"}}, Clusters: []Cluster{{}}, Jobs: []Job{{Name: "j", Queue: "b"}}}
	small := Shrink(spec, 100, func(s Spec) bool {
		for _, j := range s.Jobs {
			found := false
			for _, q := range s.Queues {
				found = found || q.Name == cmp.Or(j.Queue, "gpu")
			}
			if !found {
				t.Errorf("a world has job %s and not its queue", j.Name)
			}
		}
		return true
	})
	if len(small.Queues) != 1 || len(small.Jobs) != 1 {
		t.Errorf("got %d queues and %d jobs, want 1 of each", len(small.Queues), len(small.Jobs))
	}
}
