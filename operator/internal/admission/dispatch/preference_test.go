package dispatch

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

// A workload avoids a cluster for a time, through its pause and the next nomination.
func TestAvoided(t *testing.T) {
	avoids := Record{}.Avoid("c1", after(600), "was left for team-a/big")
	for _, tc := range []struct {
		name    string
		record  Record
		seconds int
		want    []string
	}{
		{"at once", avoids, 0, []string{"c1"}},
		{"deactivated and active again", avoids.Yielded(t0, t0).Woken(), 20, []string{"c1"}},
		{"nominated elsewhere", avoids.Begin([]string{"c2"}, t0, "", t0), 500, []string{"c1"}},
		{"just before the end", avoids, 599, []string{"c1"}},
		{"at the end", avoids, 600, nil},
		{"for longer", avoids.Avoid("c1", after(900), "again"), 700, []string{"c1"}},
		{"while another cluster could hold it", Record{}.AvoidIfOther("c1", after(1800), "did not start"), 0, []string{"c1"}},
		{"in any case, and while another cluster could hold it", avoids.AvoidIfOther("c1", after(1800), "did not start"), 600, []string{"c1"}},
		{"two clusters", avoids.Avoid("c2", after(900), "crashed"), 500, []string{"c1", "c2"}},
		{"forged: for a day", Record{}.Avoid("c1", after(24*3600), "forged"), 0, nil},
		{"sent there later", avoids.Adopt([]string{"c1"}, t0, t0), 500, []string{"c1"}},
		{"none", Record{}, 0, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			decoded, err := Decode(map[string]string{v1alpha1.DispatchAnnotation: tc.record.Encode()})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range decoded.Avoided(after(tc.seconds)) {
				got = append(got, p.Cluster)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("avoided (-want +got):\n%s", diff)
			}
		})
	}
}

// A record does not grow with each cluster that a workload once avoided.
func TestBeginForgetsWhatIsOver(t *testing.T) {
	r := Record{}.Avoid("c1", after(60), "crashed").Begin([]string{"c2"}, t0, "room", after(61))
	if diff := cmp.Diff([]Preference{{Cluster: "c2"}}, r.Preferences); diff != "" {
		t.Errorf("preferences (-want +got):\n%s", diff)
	}
}
