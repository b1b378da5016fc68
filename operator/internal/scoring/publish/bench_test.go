//go:build integration

package publish

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clusterv1alpha1 "open-cluster-management.io/api/cluster/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

const benchClusters = 500

// newHub starts an API server with a namespace per cluster, and returns a client that
// reads from a cache like the operator's.
func newHub(b *testing.B) (context.Context, client.Client) {
	b.Helper()
	ocm, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "open-cluster-management.io/api").Output()
	if err != nil {
		b.Fatal(err)
	}
	env := &envtest.Environment{CRDDirectoryPaths: []string{filepath.Join(strings.TrimSpace(string(ocm)), "cluster/v1alpha1")}}
	cfg, err := env.Start()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = env.Stop() })
	cfg.QPS = -1
	ctx, cancel := context.WithCancel(context.Background())
	b.Cleanup(cancel)
	c := newCachedClient(b, ctx, cfg)
	each(b, func(i int) error {
		return c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: clusterName(i)}})
	})
	return ctx, c
}

func newCachedClient(b *testing.B, ctx context.Context, cfg *rest.Config) client.Client {
	b.Helper()
	s := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(s); err != nil {
		b.Fatal(err)
	}
	if err := clusterv1alpha1.Install(s); err != nil {
		b.Fatal(err)
	}
	reader, err := cache.New(cfg, cache.Options{Scheme: s})
	if err != nil {
		b.Fatal(err)
	}
	if err := AddIndexes(ctx, reader); err != nil {
		b.Fatal(err)
	}
	go func() { _ = reader.Start(ctx) }()
	c, err := client.New(cfg, client.Options{Scheme: s, Cache: &client.CacheOptions{Reader: reader}})
	if err != nil {
		b.Fatal(err)
	}
	return c
}

func clusterName(i int) string { return fmt.Sprintf("cluster-%04d", i) }

func each(b *testing.B, do func(i int) error) {
	b.Helper()
	var group errgroup.Group
	group.SetLimit(16)
	for i := range benchClusters {
		group.Go(func() error { return do(i) })
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
}

func wanted(value int) []Desired {
	all := make([]Desired, benchClusters)
	for i := range all {
		d := want(int32(value % 100))
		d.Cluster, d.ValidUntil = clusterName(i), time.Now().Add(time.Hour).Truncate(time.Second)
		all[i] = *d
	}
	return all
}

// BenchmarkPublish measures rounds in which every score changes, compares them with a
// plain client that patches the same objects with the same concurrency, and measures
// rounds without a change.
func BenchmarkPublish(b *testing.B) {
	ctx, c := newHub(b)
	p := &Publisher{Client: c}
	owner := Owner{APIVersion: "v1", Kind: "Namespace", Name: "default", UID: "x"}
	publish := func(value int) *Report {
		r := p.Publish(ctx, Request{Owner: owner, Name: "bench", Want: wanted(value), Valid: time.Hour, Now: time.Now()})
		if r.Err != nil || len(r.Taken)+len(r.NoNamespace) > 0 {
			b.Fatalf("%+v", r)
		}
		return r
	}
	settle := func() {
		for publish(0).Written > 0 {
		}
	}
	settle()
	b.Run("changed", func(b *testing.B) {
		value := 0
		for b.Loop() {
			value++
			publish(value)
		}
		b.ReportMetric(benchClusters*float64(b.N)/b.Elapsed().Seconds(), "writes/s")
	})
	b.Run("plain-client", func(b *testing.B) {
		value := 0
		for b.Loop() {
			value++
			each(b, func(i int) error {
				patch := fmt.Sprintf(`{"status":{"scores":[{"name":"a","value":%d}]}}`, value%100)
				obj := &clusterv1alpha1.AddOnPlacementScore{ObjectMeta: metav1.ObjectMeta{Namespace: clusterName(i), Name: "bench"}}
				return c.Status().Patch(ctx, obj, client.RawPatch("application/merge-patch+json", []byte(patch)))
			})
		}
		b.ReportMetric(benchClusters*float64(b.N)/b.Elapsed().Seconds(), "writes/s")
	})
	settle()
	b.Run("unchanged", func(b *testing.B) {
		for b.Loop() {
			if r := publish(0); r.Written > 0 {
				b.Fatalf("%d writes although no score changed", r.Written)
			}
		}
	})
}
