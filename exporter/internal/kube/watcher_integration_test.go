//go:build integration

package kube

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strings"
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

// proxy forwards connections to an API server until a test closes it.
type proxy struct {
	to       string
	address  string
	listener net.Listener
	conns    chan net.Conn
}

func startProxy(t *testing.T, to, address string) *proxy {
	t.Helper()
	p := &proxy{to: to}
	var err error
	if p.listener, err = net.Listen("tcp", address); err != nil {
		t.Fatal(err)
	}
	p.address, p.conns = p.listener.Addr().String(), make(chan net.Conn, 1000)
	go func() {
		for {
			in, err := p.listener.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			p.conns <- in
			p.conns <- out
			go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
			go func() { _, _ = io.Copy(in, out); _ = in.Close() }()
		}
	}()
	return p
}

func (p *proxy) close() {
	_ = p.listener.Close()
	for len(p.conns) > 0 {
		_ = (<-p.conns).Close()
	}
}

// startAPIServer starts an API server with the CRDs of job controllers.
func startAPIServer(t *testing.T) (*rest.Config, client.Client) {
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

// grant applies the RBAC of a component in config/exporter.
func grant(t *testing.T, c client.Client, component string) {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), "../../../config/exporter/"+component)
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

// createObject creates an object, with a controller unless controller is nil.
func (c cluster) createObject(apiVersion, kind, name string, controller *unstructured.Unstructured) *unstructured.Unstructured {
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
	c.setController(o, controller)
	if err := c.Create(c.t.Context(), o); err != nil {
		c.t.Fatal(err)
	}
	return o
}

func (c cluster) setController(o metav1.Object, controller *unstructured.Unstructured) {
	if controller != nil {
		o.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(controller, controller.GroupVersionKind())})
	}
}

func (c cluster) createPod(name, node string, controller *unstructured.Unstructured) *corev1.Pod {
	c.t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"team": "ml"}},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "main", Image: "none"}}}}
	c.setController(p, controller)
	if err := c.Create(c.t.Context(), p); err != nil {
		c.t.Fatal(err)
	}
	return p
}

// The test runs with the RBAC of config/exporter/pod-owners on a real API server. The
// watcher knows only the node's pods and their topmost controllers, and keeps the metadata
// while the API server is unreachable.
func TestWatcherFollowsPodsOfNode(t *testing.T) {
	config, admin := startAPIServer(t)
	grant(t, admin, "pod-owners")
	c := cluster{t, admin}
	jobset := c.createObject("jobset.x-k8s.io/v1", "JobSet", "train", nil)
	rayjob := c.createObject("ray.io/v1", "RayJob", "tune", nil)
	pytorch := c.createObject("kubeflow.org/v1", "PyTorchJob", "fit", nil)
	plain := c.createObject("batch/v1", "Job", "plain", nil)
	deleted := c.createObject("batch/v1", "Job", "deleted", nil)
	c.createPod("of-jobset", "node-1", c.createObject("batch/v1", "Job", "train-0", jobset))
	c.createPod("of-rayjob", "node-1", c.createObject("ray.io/v1", "RayCluster", "tune-x", rayjob))
	c.createPod("of-pytorchjob", "node-1", pytorch)
	c.createPod("of-job", "node-1", plain)
	c.createPod("of-deployment", "node-1", c.createObject("apps/v1", "ReplicaSet", "serve-1", &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "serve", "uid": "d"}}}))
	c.createPod("of-deleted", "node-1", deleted)
	leader := c.createObject("v1", "Pod", "infer-0", c.createObject("apps/v1", "StatefulSet", "infer", &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": map[string]any{"name": "infer", "uid": "l"}}}))
	c.createPod("of-leader", "node-1", c.createObject("apps/v1", "StatefulSet", "infer-0", leader))
	alone := c.createPod("alone", "node-1", nil)
	c.createPod("elsewhere", "node-2", nil)
	if err := admin.Delete(t.Context(), deleted, client.PropagationPolicy(metav1.DeletePropagationOrphan), client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}

	host, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	before := goleak.IgnoreCurrent()
	apiServer := startProxy(t, host.Host, "127.0.0.1:0")
	account := rest.CopyConfig(config)
	account.Host = "https://" + apiServer.address
	account.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:plimsoll-exporter:plimsoll-exporter", Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	w, err := New(account, Options{Node: "node-1", Owners: true, Label: func(string) bool { return true }, Log: slog.New(slog.DiscardHandler)})
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
		"of-job": "Job/plain", "of-deployment": "Deployment/serve", "of-deleted": "Job/deleted", "of-leader": "LeaderWorkerSet/infer", "alone": "Pod/alone"} {
		g.Eventually(owner(name), time.Minute).Should(Equal(want), name)
	}
	m, ok := w.Pod("default", "alone")
	g.Expect(ok).To(BeTrue())
	g.Expect(m.UID).To(Equal(string(alone.UID)))
	g.Expect(m.Labels).To(Equal(map[string]string{"team": "ml"}))
	_, name, ok := w.PodByUID(string(alone.UID))
	g.Expect(ok).To(BeTrue())
	g.Expect(name).To(Equal("alone"))
	_, ok = w.Pod("default", "elsewhere")
	g.Expect(ok).To(BeFalse(), "a pod of another node is known")
	g.Expect(w.Reachable()).To(BeTrue())

	apiServer.close()
	g.Eventually(w.Reachable, time.Minute).Should(BeFalse())
	g.Expect(owner("of-jobset")()).To(Equal("JobSet/train"), "the owner was dropped while the API server is unreachable")
	c.createPod("late", "node-1", c.createObject("batch/v1", "Job", "train-1", jobset))
	g.Expect(admin.Delete(t.Context(), alone, client.GracePeriodSeconds(0))).To(Succeed())
	apiServer = startProxy(t, host.Host, apiServer.address)
	g.Eventually(owner("late"), time.Minute).Should(Equal("JobSet/train"))
	g.Eventually(func() bool { _, ok := w.Pod("default", "alone"); return ok }, time.Minute).Should(BeFalse())
	g.Expect(w.Reachable()).To(BeTrue())

	cancel()
	<-ended
	apiServer.close()
	goleak.VerifyNone(t, before)
	g.Expect(w.owners.pods).To(HaveLen(8), "lookups of pods with a controller")
}

// The API server shows the end of a pod to a watch that selects by phase.
func TestFractionEndsWithPod(t *testing.T) {
	config, admin := startAPIServer(t)
	grant(t, admin, "pod-owners")
	c := cluster{t, admin}
	label := map[string]string{"runai-gpu-group": "g"}
	annotation := map[string]string{"gpu-fraction": "0.5"}
	account := rest.CopyConfig(config)
	account.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:plimsoll-exporter:plimsoll-exporter"}
	w, err := New(account, Options{Node: "node-1", Fractions: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.Run(ctx) }()
	defer func() { cancel(); <-done }()
	g := NewWithT(t)
	for _, phase := range []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed} {
		name := strings.ToLower(string(phase))
		p := c.createPod(name, "node-1", nil)
		p.Labels, p.Annotations = label, annotation
		g.Expect(admin.Update(t.Context(), p)).To(Succeed())
		ratio := func() float64 { f, _ := w.Fraction("default", name); return f.Ratio }
		g.Eventually(ratio, time.Minute).Should(Equal(0.5))
		p.Status.Phase = corev1.PodRunning
		g.Expect(admin.Status().Update(t.Context(), p)).To(Succeed())
		g.Consistently(ratio, time.Second).Should(Equal(0.5))
		p.Status.Phase = phase
		g.Expect(admin.Status().Update(t.Context(), p)).To(Succeed())
		g.Eventually(ratio, time.Minute).Should(Equal(0.))
		_, known := w.Fraction("default", name)
		g.Expect(known).To(BeTrue())
	}
}

func TestPermissionsAreMinimal(t *testing.T) {
	config, admin := startAPIServer(t)
	grant(t, admin, "pod-owners")
	account := rest.CopyConfig(config)
	account.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:plimsoll-exporter:plimsoll-exporter"}
	c, err := client.New(account, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range []client.ObjectList{&corev1.SecretList{}, &corev1.ConfigMapList{}, &corev1.NodeList{}} {
		if err := c.List(t.Context(), list); client.IgnoreNotFound(err) == nil {
			t.Errorf("the account may list %T", list)
		}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "b"}}}}
	if err := c.Create(t.Context(), pod); err == nil {
		t.Error("the account may create pods")
	}
}
