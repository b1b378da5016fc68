//go:build !race

package collector

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/exporter/internal/device"
	"plimsoll.dev/plimsoll/exporter/internal/podmap"
)

// knownID is an entry of podmap/testdata/device_ids.yaml.
type knownID struct {
	ID, Resource, Driver, Device, Part, Project string
	Shared                                      bool
}

// nodeSource is a source of fixed devices. The first device has MIG instances.
type nodeSource struct {
	fakeSource
	devices   []device.Device
	instances []device.Device
}

func (s *nodeSource) Devices(context.Context) ([]device.Device, error) { return s.devices, nil }

func (s *nodeSource) Read(_ context.Context, d device.Device) (device.Reading, error) {
	r := device.Reading{Time: time.Now()}
	r.Set(device.FBUsed, 1000)
	if d.UUID == s.devices[0].UUID && s.instances != nil {
		r.MIG, r.Instances = true, s.instances
	}
	return r, nil
}

var migName = regexp.MustCompile(`^(.*)/(?:gi(\d+)|(\d+)/0|mig-(\d+-\d+))$`)

// sourceOf returns a source with the device or MIG instance of an id and a second one of
// the same kind, and the UUIDs of both.
func (k knownID) sourceOf() (s *nodeSource, target, spare string) {
	if k.isAMD() {
		return k.amdSource()
	}
	s = &nodeSource{devices: []device.Device{{UUID: uuid(1), Minor: "nvidia98", Model: "NVIDIA L4"}, {UUID: uuid(2), Minor: "nvidia99", Model: "NVIDIA L4"}}}
	first := &s.devices[0]
	name := map[bool]*string{true: &first.UUID, false: &first.Minor}
	isMIG := strings.HasPrefix(k.Device, "MIG-") || k.Part != ""
	switch {
	case k.Part != "":
		*name[strings.HasPrefix(k.Part, "GPU-")] = k.Part
	case k.Device != "" && !isMIG:
		*name[strings.HasPrefix(k.Device, "GPU-")] = k.Device
	}
	if !isMIG {
		return s, first.UUID, s.devices[1].UUID
	}
	for gi := range 2 {
		d := *first
		d.UUID, d.Instance = migUUID(1, 100+gi, 0), &device.Instance{Parent: first.UUID, Profile: "1g.6gb", GI: 100 + gi, Placement: fmt.Sprintf("99-%d", gi)}
		s.instances = append(s.instances, d)
	}
	of := &s.instances[0]
	if m := migName.FindStringSubmatch(k.Device); m == nil {
		of.UUID = k.Device
	} else {
		of.Instance.GI, _ = strconv.Atoi(m[2] + m[3]) // 0 if the name is a placement
		of.Instance.Placement = m[4]
	}
	s.devices = s.devices[:1]
	return s, of.UUID, s.instances[1].UUID
}

func (k knownID) isAMD() bool {
	return strings.HasPrefix(k.Resource, "amd.com/") || k.Driver == podmap.AMDDriver
}

// amdSource is sourceOf for an id of AMD. The spare is the kubelet's id of the second GPU,
// and the target that of the first if the id is unknown.
func (k knownID) amdSource() (s *nodeSource, target, spare string) {
	s = &nodeSource{devices: []device.Device{
		{Vendor: device.AMD, UUID: "GPU-a1", Minor: "renderD998", KubeletID: "0000:f0:00.0", Model: "AMD Instinct MI300X"},
		{Vendor: device.AMD, UUID: "GPU-a2", Minor: "renderD999", KubeletID: "0000:f1:00.0", Model: "AMD Instinct MI300X"},
	}}
	first := &s.devices[0]
	switch {
	case k.Device == "":
		return s, first.KubeletID, s.devices[1].KubeletID
	case k.Driver != "":
		first.Minor = k.Device
	default:
		first.KubeletID = k.Device
	}
	return s, first.UUID, s.devices[1].KubeletID
}

// nodeLoad collects the series of plimsoll_node_devices of many nodes, each in a cluster of
// its own.
type nodeLoad struct{ strings.Builder }

func (l *nodeLoad) add(cluster, text string) {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "plimsoll_node_devices{"); ok {
			fmt.Fprintf(l, "  node_resource_model_state:plimsoll_devices:min{cluster=%q,%s", cluster, rest)
		}
	}
	fmt.Fprintf(l, "  node:plimsoll_placeable:bool{cluster=%q,node=\"node-1\"} 1\n  node:plimsoll_sample_timestamp_seconds:trusted{cluster=%q,node=\"node-1\"} 0\n", cluster, cluster)
}

// evaluate returns the value of an instant query by cluster.
func evaluate(t *testing.T, load, query string) promql.Vector {
	t.Helper()
	storage := promqltest.LoadedStorage(t, "load 1m\n"+load)
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	q, err := engine.NewInstantQuery(t.Context(), storage, nil, query, time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	vector, err := q.Exec(t.Context()).Vector()
	if err != nil {
		t.Fatal(err)
	}
	return vector
}

// recordingRule returns the expression of a recording rule.
func recordingRule(t *testing.T, name string) string {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []struct{ Record, Expr string } `json:"rules"`
		} `json:"groups"`
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "rules", "recording-nodes.yaml"))
	if err == nil {
		err = yaml.Unmarshal(text, &file)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range file.Groups[0].Rules {
		if r.Record == name {
			return r.Expr
		}
	}
	t.Fatalf("no rule %s", name)
	return ""
}

// Each id that other projects write is followed from the kubelet to the device's owner, to
// the free devices and to the pods that fit according to the gate's default query. Of two
// devices, one is free: an id that belongs to no listed device lowers the free ones, too.
// The second device is not free if the resource name says that all of its devices are
// shared.
func TestIDsOfOtherProjectsLowerFreeDevices(t *testing.T) {
	var ids []knownID
	text, err := os.ReadFile(filepath.Join("..", "podmap", "testdata", "device_ids.yaml"))
	if err == nil {
		err = yaml.Unmarshal(text, &ids)
	}
	if err != nil || len(ids) < 40 {
		t.Fatalf("%d ids: %v", len(ids), err)
	}
	var load nodeLoad
	for i, k := range ids {
		t.Run(k.Project+"/"+k.ID, func(t *testing.T) { load.add(strconv.Itoa(i), k.checkNode(t)) })
	}
	var placeable strings.Builder
	for _, sample := range evaluate(t, load.String(), recordingRule(t, "node_resource_model:plimsoll_free_devices:placeable")) {
		series := labels.NewBuilder(sample.Metric).Set("__name__", "node_resource_model:plimsoll_free_devices:placeable").Labels()
		fmt.Fprintf(&placeable, "  %s %v\n", series, sample.F)
	}
	fits := map[string]float64{}
	for _, sample := range evaluate(t, placeable.String(), `sum by (cluster) (floor(node_resource_model:plimsoll_free_devices:placeable / 1))`) {
		fits[sample.Metric.Get("cluster")] = sample.F
	}
	for i, k := range ids {
		if got := fits[strconv.Itoa(i)]; got != k.free() {
			t.Errorf("%s %s: the gate finds room for %g pods, want %g", k.Project, k.ID, got, k.free())
		}
	}
}

// free returns the number of free devices while a pod holds the id.
func (k knownID) free() float64 { return boolValue(!strings.HasSuffix(k.Resource, ".shared")) }

// heldSeries is the end of a series with the holder of the device.
func (k knownID) heldSeries() string {
	if k.isAMD() {
		return `namespace="ml",pod="a",attribution="device"} 1.048576e+09`
	}
	return `namespace="ml",pod="a"} 1000`
}

// checkNode collects a node on which a pod holds the id, and returns the exposition.
func (k knownID) checkNode(t *testing.T) string {
	source, target, spare := k.sourceOf()
	f := setup(t)
	f.kubelet.noDevices = true
	hold := map[string][]string{"ml/a/main": {k.ID}}
	if k.Driver != "" {
		f.kubelet.claims, f.kubelet.driver = hold, k.Driver
	} else {
		f.kubelet.holdings, f.kubelet.resource, f.kubelet.ids = hold, k.Resource, []string{k.ID, spare}
		if k.Device == "" {
			f.kubelet.ids = []string{target, spare}
		}
	}
	pods, err := podmap.New(f.socket, []string{k.Resource})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pods.Close() })
	if k.Driver != "" {
		pods.ExpectClaims()
	}
	f.Collector = New(Config{Node: "node-1", Interval: time.Second, Log: slog.New(slog.DiscardHandler)}, pods, NamedSource{Source: source})
	families, text := f.collect(t)
	sums := map[string]float64{}
	for _, m := range families["plimsoll_node_devices"].GetMetric() {
		sums[m.Label[3].GetValue()] += m.GetGauge().GetValue()
	}
	unknown := boolValue(k.Device == "")
	if sums["free"] != k.free() || sums["unhealthy"] != 0 || sums["unknown"] != unknown {
		t.Errorf("the states are %v, want %g free, 0 unhealthy and %g unknown", sums, k.free(), unknown)
	}
	var owners []string
	for _, m := range families["plimsoll_device_owner_info"].GetMetric() {
		for _, l := range m.Label {
			if l.GetName() == "uuid" {
				owners = append(owners, l.GetValue())
			}
		}
	}
	held := strings.Count(text, `container="main",`)
	switch {
	case k.Device == "" && (len(owners) > 0 || held > 0):
		t.Errorf("an unknown id has the owners %v and %d series with a holder", owners, held)
	case k.Device != "" && (len(owners) != 1 || owners[0] != target || !strings.Contains(text, k.heldSeries())):
		t.Errorf("the owned devices are %v, want %s:\n%s", owners, target, text)
	}
	return text
}
