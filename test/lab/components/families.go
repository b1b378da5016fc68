package components

import (
	"path/filepath"
	"time"
)

// family is a set of components with a common go.mod, built with the same flags.
type family struct {
	name     string // folder below test/lab/components
	programs []program
	tags     string
	ldflags  string
	// cpu is the processor time of a build of all programs without caches.
	cpu time.Duration
}

// program is a program that a family builds.
type program struct {
	name  string
	pkg   string
	links []string // further names of the program
	// onDemand is set if Up starts fleets without the program.
	onDemand bool
}

const kubernetesVersion = "v1.36.3"

// families holds the programs of the lab. All families take their modules at the versions of
// the repository's go.mod, and are compiled with the flags of the repository's own programs,
// so that Go's build cache has each package once. Thanos does not compile with the version of
// Prometheus that the lab runs. OCM's other controllers need all of openshift/library-go, which
// the family shared replaces, and only one test runs them.
var families = []family{
	{
		name: "shared",
		programs: []program{
			{name: "kube", pkg: "./kube", links: []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"}},
			{name: "kueue", pkg: "sigs.k8s.io/kueue/cmd/kueue"},
			{name: "kwok", pkg: "sigs.k8s.io/kwok/cmd/kwok"},
			{name: "placement", pkg: "./placement"},
			{name: "kube-state-metrics", pkg: "k8s.io/kube-state-metrics/v2"},
			{name: "prometheus", pkg: "github.com/prometheus/prometheus/cmd/prometheus"},
			{name: "promtool", pkg: "github.com/prometheus/prometheus/cmd/promtool", onDemand: true},
		},
		tags: "remove_all_sd,enable_kubernetes_sd",
		ldflags: "-X k8s.io/component-base/version.gitVersion=" + kubernetesVersion +
			" -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36" +
			" -X sigs.k8s.io/kueue/pkg/visibility.certDir=visibility",
		cpu: 17 * time.Minute,
	},
	{
		name:     "thanos",
		programs: []program{{name: "thanos", pkg: "github.com/thanos-io/thanos/cmd/thanos"}},
		// Without this tag the sidecar's gRPC server panics.
		tags: "slicelabels",
		cpu:  4 * time.Minute,
	},
	{
		name:     "ocm",
		programs: []program{{name: "ocm", pkg: ".", onDemand: true}},
		cpu:      2 * time.Minute, // the other families have compiled most of its packages
	},
}

func (f family) dir(root string) string {
	return filepath.Join(root, "test", "lab", "components", f.name)
}

// names returns all names that the program is run by.
func (p program) names() []string { return append([]string{p.name}, p.links...) }
