package world

import (
	"math/rand/v2"
)

// makeImages gives the jobs of one namespace large images in some worlds.
func makeImages(s *Spec) {
	g := generator{rand.New(rand.NewPCG(s.Seed, 0x696d6167))}
	if !g.chance(.15) {
		return
	}
	namespace, pull := oneOf(g, "", "team-b"), g.seconds(60, 600)
	for _, c := range s.Clusters {
		if c.PodsReadyTimeout > 0 { // else no pod is ever ready there
			pull = min(pull, c.PodsReadyTimeout/2)
		}
	}
	for i := range s.Jobs {
		if j := &s.Jobs[i]; j.Namespace == namespace {
			j.Pull = pull - g.seconds(0, 30)
		}
	}
}
