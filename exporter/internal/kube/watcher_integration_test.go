//go:build integration

package kube

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/url"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// door to an API server that a test opens and shuts.
type door struct {
	to       string
	address  string
	listener net.Listener
	inside   chan net.Conn
}

func open(t *testing.T, to, address string) *door {
	t.Helper()
	d := &door{to: to}
	var err error
	if d.listener, err = net.Listen("tcp", address); err != nil {
		t.Fatal(err)
	}
	d.address, d.inside = d.listener.Addr().String(), make(chan net.Conn, 1000)
	go func() {
		for {
			in, err := d.listener.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			d.inside <- in
			d.inside <- out
			go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
			go func() { _, _ = io.Copy(in, out); _ = in.Close() }()
		}
	}()
	return d
}

func (d *door) shut() {
	_ = d.listener.Close()
	for len(d.inside) > 0 {
		_ = (<-d.inside).Close()
	}
}

func start(t *testing.T) (*rest.Config, client.Client) {
	t.Helper()
	crd := func(group, kind, plural string) *apiextensionsv1.CustomResourceDefinition {
		preserve := true
		return &apiextensionsv1.CustomResourceDefinition{
			TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
			ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{Group: group, Scope: apiextensionsv1.NamespaceScoped,
				Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, Plural: plural},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
					Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &preserve}}}}}}
	}
	env := &envtest.Environment{CRDs: []*apiextensionsv1.CustomResourceDefinition{crd("jobset.x-k8s.io", "JobSet", "jobsets"),
		crd("ray.io", "RayCluster", "rayclusters"), crd("ray.io", "RayJob", "rayjobs"), crd("kubeflow.org", "PyTorchJob", "pytorchjobs")}}
	config, err := env.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = env.Stop() })
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return config, c
}

// grant what config/exporter/pod-owners does, to the exporter's account.
func grant(t *testing.T, c client.Client) {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), "../../../config/exporter/pod-owners")
	if err != nil {
		t.Fatal(err)
	}
	for _, resource := range built.Resources() {
		if kind := resource.GetKind(); kind != "ClusterRole" && kind != "ClusterRoleBinding" {
			continue
		}
		document, err := resource.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &object.Object); err != nil {
			t.Fatal(err)
		}
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}

type cluster struct {
	t *testing.T
	client.Client
}

// make an object whose controller is another.
func (c cluster) make(apiVersion, kind, name string, controller *unstructured.Unstructured) *unstructured.Unstructured {
	c.t.Helper()
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace("default")
	o.SetName(name)
	template := map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}},
		"spec": map[string]any{"restartPolicy": "Never", "containers": []any{map[string]any{"name": "main", "image": "none"}}}}
	switch kind {
	case "Job":
		o.Object["spec"] = map[string]any{"template": template}
	case "Pod":
		o.Object["spec"] = template["spec"]
	case "ReplicaSet", "StatefulSet":
		template["spec"].(map[string]any)["restartPolicy"] = "Always"
		o.Object["spec"] = map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"a": "b"}}, "template": template}
	}
	c.own(o, controller)
	if err := c.Create(c.t.Context(), o); err != nil {
		c.t.Fatal(err)
	}
	return o
}

func (c cluster) own(o metav1.Object, controller *unstructured.Unstructured) {
	if controller != nil {
		o.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(controller, controller.GroupVersionKind())})
	}
}

func (c cluster) pod(name, node string, controller *unstructured.Unstructured) *corev1.Pod {
	c.t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"team": "ml"}},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "main", Image: "none"}}}}
	c.own(p, controller)
	if err := c.Create(c.t.Context(), p); err != nil {
		c.t.Fatal(err)
	}
	return p
}

// With the rights that config/exporter/pod-owners grants, on a real API server: metadata of the
// node's pods alone, owners up to the top, and what was known while it is away.
func TestPodsOfANode(t *testing.T) {
	config, admin := start(t)
	grant(t, admin)
	c := cluster{t, admin}
	jobset := c.make("jobset.x-k8s.io/v1", "JobSet", "train", nil)
	rayjob := c.make("ray.io/v1", "RayJob", "tune", nil)
	pytorch := c.make("kubeflow.org/v1", "PyTorchJob", "fit", nil)
	plain := c.make("batch/v1", "Job", "plain", nil)
	gone := c.make("batch/v1", "Job", "gone", nil)
	c.pod("of-jobset", "node-1", c.make("batch/v1", "Job", "train-0", jobset))
	c.pod("of-rayjob", "node-1", c.make("ray.io/v1", "RayCluster", "tune-x", rayjob))
	c.pod("of-pytorchjob", "node-1", pytorch)
	c.pod("of-job", "node-1", plain)
	c.pod("of-deployment", "node-1", c.make("apps/v1", "ReplicaSet", "serve-1", &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "serve", "uid": "d"}}}))
	c.pod("of-gone", "node-1", gone)
	leader := c.make("v1", "Pod", "infer-0", c.make("apps/v1", "StatefulSet", "infer", &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": map[string]any{"name": "infer", "uid": "l"}}}))
	c.pod("of-leader", "node-1", c.make("apps/v1", "StatefulSet", "infer-0", leader))
	alone := c.pod("alone", "node-1", nil)
	c.pod("elsewhere", "node-2", nil)
	if err := admin.Delete(t.Context(), gone, client.PropagationPolicy(metav1.DeletePropagationOrphan), client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}

	host, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	before := goleak.IgnoreCurrent()
	way := open(t, host.Host, "127.0.0.1:0")
	account := rest.CopyConfig(config)
	account.Host = "https://" + way.address
	account.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:plimsoll-exporter:plimsoll-exporter", Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	w, err := New(account, Options{Node: "node-1", Owners: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); w.Run(ctx) }()

	g := NewWithT(t)
	owner := func(name string) func() string {
		return func() string {
			m, _ := w.Pod("default", name)
			return m.OwnerKind + "/" + m.OwnerName
		}
	}
	for name, want := range map[string]string{"of-jobset": "JobSet/train", "of-rayjob": "RayJob/tune", "of-pytorchjob": "PyTorchJob/fit",
		"of-job": "Job/plain", "of-deployment": "Deployment/serve", "of-gone": "Job/gone", "of-leader": "LeaderWorkerSet/infer", "alone": "Pod/alone"} {
		g.Eventually(owner(name), time.Minute).Should(Equal(want), name)
	}
	m, ok := w.Pod("default", "alone")
	g.Expect(ok).To(BeTrue())
	g.Expect(m.UID).To(Equal(string(alone.UID)))
	g.Expect(m.Labels).To(Equal(map[string]string{"team": "ml"}))
	_, name, ok := w.Named(string(alone.UID))
	g.Expect(ok).To(BeTrue())
	g.Expect(name).To(Equal("alone"))
	_, ok = w.Pod("default", "elsewhere")
	g.Expect(ok).To(BeFalse(), "a pod of another node is known")
	g.Expect(w.Reachable()).To(BeTrue())

	way.shut()
	g.Eventually(w.Reachable, time.Minute).Should(BeFalse())
	g.Expect(owner("of-jobset")()).To(Equal("JobSet/train"), "what was known is forgotten while the API server is away")
	c.pod("late", "node-1", c.make("batch/v1", "Job", "train-1", jobset))
	g.Expect(admin.Delete(t.Context(), alone, client.GracePeriodSeconds(0))).To(Succeed())
	way = open(t, host.Host, way.address)
	g.Eventually(owner("late"), time.Minute).Should(Equal("JobSet/train"))
	g.Eventually(func() bool { _, ok := w.Pod("default", "alone"); return ok }, time.Minute).Should(BeFalse())
	g.Expect(w.Reachable()).To(BeTrue())

	cancel()
	<-ended
	way.shut()
	goleak.VerifyNone(t, before)
	g.Expect(w.owners.pods).To(HaveLen(8), "those of pods that have a controller")
}

// The account may read nothing else of the cluster.
func TestRightsAreNoMoreThanNeeded(t *testing.T) {
	config, admin := start(t)
	grant(t, admin)
	account := rest.CopyConfig(config)
	account.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:plimsoll-exporter:plimsoll-exporter"}
	c, err := client.New(account, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range []client.ObjectList{&corev1.SecretList{}, &corev1.ConfigMapList{}, &corev1.NodeList{}} {
		if err := c.List(t.Context(), list); client.IgnoreNotFound(err) == nil {
			t.Errorf("it may list %T", list)
		}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "b"}}}}
	if err := c.Create(t.Context(), pod); err == nil {
		t.Error("it may make pods")
	}
}
