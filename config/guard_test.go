//go:build integration

package config_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"plimsoll.dev/plimsoll/test/crds"
	"plimsoll.dev/plimsoll/test/lab/audit"
)

const operatorUser = "system:serviceaccount:plimsoll-system:plimsoll-operator"

// guarded is an API server with the roles of the operator and config/guard.
type guarded struct {
	admin    client.Client
	operator client.Client // with the account of the operator
}

// kueueCRDs returns Kueue's CRDs without conversion, because no Kueue serves its webhooks
// here.
func kueueCRDs(t *testing.T) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	definitions, err := crds.Kueue()
	if err != nil {
		t.Fatal(err)
	}
	return definitions
}

func startGuarded(ctx context.Context, t *testing.T) guarded {
	t.Helper()
	g, _ := startGuard(ctx, t, kueueCRDs(t))
	g.createChecks(ctx, t)
	return g
}

// startGuard starts an API server with the CRDs and config/guard, without AdmissionChecks.
func startGuard(ctx context.Context, t *testing.T, kueueCRDs []*apiextensionsv1.CustomResourceDefinition) (guarded, *rest.Config) {
	t.Helper()
	scheme := runtime.NewScheme()
	utilruntime.Must(kueue.AddToScheme(scheme))
	utilruntime.Must(corev1.AddToScheme(scheme))
	config, untyped := startEnvironment(t, &envtest.Environment{CRDDirectoryPaths: append(ocmScoreCRDs(t), "crd"), CRDs: kueueCRDs, ErrorIfCRDPathMissing: true, CRDInstallOptions: envtest.CRDInstallOptions{MaxTime: time.Minute}})
	admin, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	as := rest.CopyConfig(config)
	as.Impersonate = rest.ImpersonationConfig{UserName: operatorUser, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	operator, err := client.New(as, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{withComponents(t, "rbac", "trials"), "guard"} {
		applyFolder(ctx, t, untyped, folder)
	}
	if err := admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}}); err != nil {
		t.Fatal(err)
	}
	return guarded{admin, operator}, config
}

// createChecks creates an AdmissionCheck of each kind.
func (g guarded) createChecks(ctx context.Context, t *testing.T) {
	t.Helper()
	for name, controller := range map[string]string{"plimsoll": "plimsoll.dev/placement", "multikueue": "kueue.x-k8s.io/multikueue", "budget": "example.com/budget", "trial": "plimsoll.dev/trial"} {
		check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.AdmissionCheckSpec{ControllerName: controller}}
		if err := g.admin.Create(ctx, check); err != nil {
			t.Fatal(err)
		}
	}
}

func ocmScoreCRDs(t *testing.T) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "open-cluster-management.io/api").Output()
	if err != nil {
		t.Fatal(err)
	}
	return []string{filepath.Join(strings.TrimSpace(string(out)), "cluster/v1alpha1")}
}

// allowedByGuard are cases that the audit forbids and the guard can't: an admission policy
// has no clock, so it doesn't know the age of an eviction.
var allowedByGuard = map[string]bool{"check during a recent eviction": true, "nomination during a recent eviction": true}

// refusedBefore are cases that the API server refuses before it evaluates the guard.
var refusedBefore = map[string]string{
	"update instead of patch":    "cannot update",
	"nomination after admission": "nominatedClusterNames",
}

// The guard allows the writes of the operator, and refuses those that the audit forbids.
func TestGuardOfWorkloads(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	g := startGuarded(ctx, t)
	g.waitUntilEffective(ctx, t)
	for i, tc := range audit.Cases() {
		t.Run(tc.Name, func(t *testing.T) {
			wl := g.create(ctx, t, i, tc.Before)
			err := g.write(ctx, wl, tc)
			allowed := tc.Reason == "" || allowedByGuard[tc.Name]
			if allowed != (err == nil) {
				t.Fatalf("allowed %v, got %v", allowed, err)
			}
			want := "plimsoll-guard"
			if earlier := refusedBefore[tc.Name]; earlier != "" {
				want = earlier
			}
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("refused by something else: %v", err)
			}
		})
	}
}

// The guard also applies to the older API version of Kueue, and a Workload can't be created
// by an apply.
func TestGuardOfOtherRequests(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	g := startGuarded(ctx, t)
	g.waitUntilEffective(ctx, t)
	wl := g.create(ctx, t, 0, audit.Cases()[0].Before)
	older := parseObject(t, `{apiVersion: kueue.x-k8s.io/v1beta1, kind: Workload, metadata: {namespace: team-a, name: `+wl.Name+`}}`)
	ready := client.RawPatch(types.JSONPatchType, []byte(`[{"op": "add", "path": "/status/admissionChecks/1/state", "value": "Ready"}]`))
	if err := g.operator.Status().Patch(ctx, older, ready, client.FieldOwner("plimsoll-gate")); err == nil || !strings.Contains(err.Error(), "the check multikueue belongs to kueue.x-k8s.io/multikueue") {
		t.Errorf("MultiKueue's check through v1beta1: %v", err)
	}
	created := parseObject(t, `{apiVersion: kueue.x-k8s.io/v1beta2, kind: Workload, metadata: {namespace: team-a, name: forged}, spec: {queueName: gpu}}`)
	if err := g.operator.Apply(ctx, client.ApplyConfigurationFromUnstructured(created), client.FieldOwner("plimsoll-gate")); !apierrors.IsForbidden(err) {
		t.Errorf("a Workload created by an apply: %v", err)
	}
}

// waitUntilEffective waits until the API server evaluates the policies with all their
// parameters.
func (g guarded) waitUntilEffective(ctx context.Context, t *testing.T) {
	t.Helper()
	wl := g.create(ctx, t, -1, audit.Cases()[0].Before)
	gomega.NewWithT(t).Eventually(func() string {
		forged := wl.DeepCopy()
		forged.Status.AdmissionChecks[1].State = kueue.CheckStateReady
		err := g.operator.Status().Patch(ctx, forged, client.MergeFrom(wl), client.FieldOwner("plimsoll-gate"), client.DryRunAll)
		if err == nil {
			return ""
		}
		return err.Error()
	}, time.Minute, 100*time.Millisecond).Should(gomega.ContainSubstring("the check multikueue belongs to kueue.x-k8s.io/multikueue"))
}

// create creates a Workload in the given state.
func (g guarded) create(ctx context.Context, t *testing.T, i int, state *kueue.Workload) *kueue.Workload {
	t.Helper()
	wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "job-", Namespace: "team-a", Labels: state.Labels, Annotations: state.Annotations, Finalizers: []string{"example.com/keep"},
	}, Spec: kueue.WorkloadSpec{Active: state.Spec.Active, PriorityClassRef: state.Spec.PriorityClassRef, Priority: state.Spec.Priority, PodSets: []kueue.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{
		Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "none"}}},
	}}}}}
	if len(state.Spec.PodSets) > 0 {
		wl.Spec.PodSets[0].Template.Labels = state.Spec.PodSets[0].Template.Labels
	}
	if err := g.admin.Create(ctx, wl); err != nil {
		t.Fatal(i, err)
	}
	wl.Status = complete(state.Status)
	if err := g.admin.Status().Update(ctx, wl); err != nil {
		t.Fatal(i, err)
	}
	if state.DeletionTimestamp != nil {
		if err := g.admin.Delete(ctx, wl); err != nil {
			t.Fatal(err)
		}
		if err := g.admin.Get(ctx, client.ObjectKeyFromObject(wl), wl); err != nil {
			t.Fatal(err)
		}
	}
	return wl
}

// complete sets the required fields that do not matter here.
func complete(status kueue.WorkloadStatus) kueue.WorkloadStatus {
	done, at := status.DeepCopy(), metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	for i := range done.Conditions {
		done.Conditions[i].Reason = "Test"
		done.Conditions[i].LastTransitionTime = at
	}
	for i := range done.AdmissionChecks {
		done.AdmissionChecks[i].LastTransitionTime = at
	}
	return *done
}

// write makes the write of a case with the operator's account.
func (g guarded) write(ctx context.Context, wl *kueue.Workload, tc audit.Case) error {
	after := wl.DeepCopy()
	after.Labels, after.Annotations, after.Spec.Active, after.Status = tc.After.Labels, tc.After.Annotations, tc.After.Spec.Active, complete(tc.After.Status)
	switch {
	case tc.Verb == "update":
		return g.operator.Status().Update(ctx, after, client.FieldOwner(tc.Manager))
	case tc.Subresource == "status":
		return g.operator.Status().Patch(ctx, after, client.MergeFrom(wl), client.FieldOwner(tc.Manager))
	}
	return g.operator.Patch(ctx, after, client.MergeFrom(wl), client.FieldOwner(tc.Manager))
}

// forgery is a write to an object other than a Workload.
type forgery struct {
	name   string
	before string // created by the administrator; empty: the operator creates after
	after  string // written by the operator; empty: it deletes before
	status bool
	values bool   // before has scores
	want   string // part of the message; empty if allowed
}

const (
	policyOwner = `{apiVersion: plimsoll.dev/v1alpha1, kind: ScoringPolicy, name: fleet, uid: 1c5a6a3c-0000-4000-8000-000000000000, controller: true}`
	scoreOwner  = `ownerReferences: [` + policyOwner + `]`
	// otherOwner lacks its closing brace.
	otherOwner       = `{apiVersion: v1, kind: ConfigMap, name: other, uid: 1c5a6a3c-0000-4000-8000-000000000001`
	score            = `{apiVersion: cluster.open-cluster-management.io/v1alpha1, kind: AddOnPlacementScore, metadata: {namespace: team-a, name: %s}}`
	multiKueueConfig = `apiVersion: kueue.x-k8s.io/v1beta2, kind: MultiKueueConfig, spec: {clusters: [a]}`
	cluster          = `apiVersion: kueue.x-k8s.io/v1beta2, kind: MultiKueueCluster`
	cohort           = `apiVersion: kueue.x-k8s.io/v1beta2, kind: Cohort`
	ours             = `labels: {plimsoll.dev/gate: gpu}`
	copyOf           = `labels: {plimsoll.dev/trial-of: uid, kueue.x-k8s.io/queue-name: trials}, ownerReferences: [{apiVersion: kueue.x-k8s.io/v1beta2, kind: Workload, name: job, uid: uid}]`
	template         = `template: {spec: {restartPolicy: Never, containers: [{name: main, image: none}]}}`
	copySpec         = `suspend: true, parallelism: 1, completions: 1, activeDeadlineSeconds: 300, ` + template
)

// job returns a Job with a name, more metadata and a spec.
func job(name, metadata, spec string) string {
	return `{apiVersion: batch/v1, kind: Job, metadata: {namespace: team-a, name: ` + name + metadata + `}, spec: {` + spec + `}}`
}

var forgeries = []forgery{
	{name: "own score", after: `{apiVersion: cluster.open-cluster-management.io/v1alpha1, kind: AddOnPlacementScore, metadata: {namespace: team-a, name: own, ` + scoreOwner + `}}`},
	{name: "score without a policy", after: strings.Replace(score, "%s", "foreign", 1), want: "that a ScoringPolicy owns"},
	{name: "deletion of a score without a policy", before: strings.Replace(score, "%s", "kept", 1), want: "that a ScoringPolicy owns"},
	{name: "values of a score without a policy", before: strings.Replace(score, "%s", "valued", 1), status: true, want: "that a ScoringPolicy owns",
		after: `{apiVersion: cluster.open-cluster-management.io/v1alpha1, kind: AddOnPlacementScore, metadata: {namespace: team-a, name: valued}, status: {scores: [{name: total, value: 100}]}}`},
	{name: "adoption of a score", before: strings.Replace(score, "%s", "adopted", 1),
		after: `{apiVersion: cluster.open-cluster-management.io/v1alpha1, kind: AddOnPlacementScore, metadata: {namespace: team-a, name: adopted, ` + scoreOwner + `}}`},
	{name: "adoption of a score with another owner", before: `{apiVersion: cluster.open-cluster-management.io/v1alpha1, kind: AddOnPlacementScore, metadata: {namespace: team-a, name: owned, ownerReferences: [` + otherOwner + `}]}}`,
		after: `{apiVersion: cluster.open-cluster-management.io/v1alpha1, kind: AddOnPlacementScore, metadata: {namespace: team-a, name: owned, ownerReferences: [` + otherOwner + `}, ` + policyOwner + `]}}`},
	{name: "adoption of a score in place of another owner", before: `{apiVersion: cluster.open-cluster-management.io/v1alpha1, kind: AddOnPlacementScore, metadata: {namespace: team-a, name: replaced, ownerReferences: [` + otherOwner + `}]}}`,
		after: `{apiVersion: cluster.open-cluster-management.io/v1alpha1, kind: AddOnPlacementScore, metadata: {namespace: team-a, name: replaced, ` + scoreOwner + `}}`, want: "that a ScoringPolicy owns"},
	{name: "adoption of a score with a controller", before: `{apiVersion: cluster.open-cluster-management.io/v1alpha1, kind: AddOnPlacementScore, metadata: {namespace: team-a, name: controlled, ownerReferences: [` + otherOwner + `, controller: true}]}}`,
		after: `{apiVersion: cluster.open-cluster-management.io/v1alpha1, kind: AddOnPlacementScore, metadata: {namespace: team-a, name: controlled, ` + scoreOwner + `}}`, want: "that a ScoringPolicy owns"},
	{name: "adoption without a controller", before: strings.Replace(score, "%s", "loose", 1), want: "that a ScoringPolicy owns",
		after: `{apiVersion: cluster.open-cluster-management.io/v1alpha1, kind: AddOnPlacementScore, metadata: {namespace: team-a, name: loose, ` + strings.Replace(scoreOwner, ", controller: true", "", 1) + `}}`},
	{name: "adoption with a label", before: strings.Replace(score, "%s", "labeled", 1), want: "that a ScoringPolicy owns",
		after: `{apiVersion: cluster.open-cluster-management.io/v1alpha1, kind: AddOnPlacementScore, metadata: {namespace: team-a, name: labeled, labels: {a: b}, ` + scoreOwner + `}}`},
	{name: "adoption of a score with values", before: strings.Replace(score, "%s", "full", 1), values: true, want: "that a ScoringPolicy owns",
		after: `{apiVersion: cluster.open-cluster-management.io/v1alpha1, kind: AddOnPlacementScore, metadata: {namespace: team-a, name: full, ` + scoreOwner + `}}`},
	{name: "empty status before the adoption", before: strings.Replace(score, "%s", "emptied", 1), values: true, status: true,
		after: `{apiVersion: cluster.open-cluster-management.io/v1alpha1, kind: AddOnPlacementScore, metadata: {namespace: team-a, name: emptied}, status: {scores: null, validUntil: null, conditions: null}}`},
	{name: "adoption of a score without a status", before: strings.Replace(score, "%s", "blank", 1), status: true,
		after: `{apiVersion: cluster.open-cluster-management.io/v1alpha1, kind: AddOnPlacementScore, metadata: {namespace: team-a, name: blank}, status: {}}`},
	{name: "empty status of a controlled score", values: true, status: true, want: "that a ScoringPolicy owns",
		before: `{apiVersion: cluster.open-cluster-management.io/v1alpha1, kind: AddOnPlacementScore, metadata: {namespace: team-a, name: theirs, ownerReferences: [` + otherOwner + `, controller: true}]}}`,
		after:  `{apiVersion: cluster.open-cluster-management.io/v1alpha1, kind: AddOnPlacementScore, metadata: {namespace: team-a, name: theirs}, status: {scores: null, validUntil: null, conditions: null}}`},
	{name: "scores without their validity", values: true, status: true, want: "that a ScoringPolicy owns", before: strings.Replace(score, "%s", "endless", 1),
		after: `{apiVersion: cluster.open-cluster-management.io/v1alpha1, kind: AddOnPlacementScore, metadata: {namespace: team-a, name: endless}, status: {validUntil: null}}`},
	{name: "own MultiKueueConfig", after: `{` + multiKueueConfig + `, metadata: {name: own, ` + ours + `}}`},
	{name: "MultiKueueConfig without the label", after: `{` + multiKueueConfig + `, metadata: {name: foreign}}`, want: "with the label plimsoll.dev/gate"},
	{name: "adoption of a MultiKueueConfig", before: `{` + multiKueueConfig + `, metadata: {name: adopted}}`, after: `{` + multiKueueConfig + `, metadata: {name: adopted, ` + ours + `}}`, want: "with the label plimsoll.dev/gate"},
	{name: "own MultiKueueCluster", after: `{` + cluster + `, metadata: {name: own, ` + ours + `}, spec: {clusterSource: {kubeConfig: {location: own-kubeconfig, locationType: Secret}}}}`},
	{name: "kubeconfig by path", after: `{` + cluster + `, metadata: {name: path, ` + ours + `}, spec: {clusterSource: {kubeConfig: {location: /etc/kubernetes/admin.conf, locationType: Path}}}}`, want: "must name a Secret"},
	{name: "another Secret for a foreign cluster", want: "with the label plimsoll.dev/gate",
		before: `{` + cluster + `, metadata: {name: foreign}, spec: {clusterSource: {kubeConfig: {location: a, locationType: Secret}}}}`,
		after:  `{` + cluster + `, metadata: {name: foreign}, spec: {clusterSource: {kubeConfig: {location: b, locationType: Secret}}}}`},
	{name: "owner of its own MultiKueueConfig", before: `{` + multiKueueConfig + `, metadata: {name: collected, ` + ours + `}}`, want: "may not change the metadata",
		after: `{` + multiKueueConfig + `, metadata: {name: collected, ` + ours + `, ownerReferences: [` + otherOwner + `}]}}`},
	{name: "MultiKueueConfig with an owner", after: `{` + multiKueueConfig + `, metadata: {name: born-owned, ` + ours + `, ownerReferences: [` + otherOwner + `}]}}`, want: "without owners and finalizers"},
	{name: "finalizer on its own MultiKueueCluster", before: `{` + cluster + `, metadata: {name: kept, ` + ours + `}, spec: {clusterSource: {kubeConfig: {location: a, locationType: Secret}}}}`, want: "may not change the metadata",
		after: `{` + cluster + `, metadata: {name: kept, ` + ours + `, finalizers: [example.com/keep]}, spec: {clusterSource: {kubeConfig: {location: a, locationType: Secret}}}}`},
	{name: "its own MultiKueueConfig given to another gate", before: `{` + multiKueueConfig + `, metadata: {name: given, ` + ours + `}}`, want: "may not change the metadata",
		after: `{` + multiKueueConfig + `, metadata: {name: given, labels: {plimsoll.dev/gate: tpu}}}`},
	{name: "members of its own MultiKueueConfig", before: `{` + multiKueueConfig + `, metadata: {name: changed, ` + ours + `, finalizers: [example.com/keep]}}`,
		after: `{apiVersion: kueue.x-k8s.io/v1beta2, kind: MultiKueueConfig, metadata: {name: changed, ` + ours + `, finalizers: [example.com/keep]}, spec: {clusters: [a, b]}}`},
	{name: "owner of its own Cohort", before: `{` + cohort + `, metadata: {name: collected, labels: {plimsoll.dev/capacity-policy: gpus}}}`, want: "may not change the metadata",
		after: `{` + cohort + `, metadata: {name: collected, labels: {plimsoll.dev/capacity-policy: gpus}, ownerReferences: [` + otherOwner + `}]}}`},
	{name: "Cohort with an owner", want: "without owners and finalizers",
		after: `{` + cohort + `, metadata: {name: born-owned, labels: {plimsoll.dev/capacity-policy: gpus}, ownerReferences: [` + otherOwner + `}]}}`},
	{name: "own Cohort", after: `{` + cohort + `, metadata: {name: own, labels: {plimsoll.dev/capacity-policy: gpus}}}`},
	{name: "Cohort without the label", after: `{` + cohort + `, metadata: {name: foreign}}`, want: "with the label plimsoll.dev/capacity-policy"},
	{name: "adoption of a Cohort", before: `{` + cohort + `, metadata: {name: adopted}}`, want: "with the label plimsoll.dev/capacity-policy",
		after: `{` + cohort + `, metadata: {name: adopted, labels: {plimsoll.dev/capacity-policy: gpus}}}`},
	{name: "Cohort of another policy", before: `{` + cohort + `, metadata: {name: other, labels: {plimsoll.dev/capacity-policy: tpus}}}`, want: "with the label plimsoll.dev/capacity-policy",
		after: `{` + cohort + `, metadata: {name: other, labels: {plimsoll.dev/capacity-policy: gpus}}}`},
	{name: "copy of a job", after: job("copy", ", "+copyOf, copySpec)},
	{name: "Job without the label", after: job("foreign", "", copySpec), want: "with the label plimsoll.dev/trial-of"},
	{name: "copy of another owner", after: job("owned", ", "+strings.Replace(copyOf, "uid: uid}", "uid: other}", 1), copySpec), want: "owned by that Workload"},
	{name: "copy that starts at once", after: job("started", ", "+copyOf, strings.Replace(copySpec, "true", "false", 1)), want: "suspended in a queue"},
	{name: "copy with two pods", after: job("pods", ", "+copyOf, strings.Replace(copySpec, "parallelism: 1, completions: 1", "parallelism: 2, completions: 2", 1)), want: "with one pod without"},
	{name: "copy without a deadline", after: job("endless", ", "+copyOf, strings.Replace(copySpec, "activeDeadlineSeconds: 300, ", "", 1)), want: "a deadline of at most an hour"},
	{name: "copy with the priority of the job", after: job("priority", ", "+copyOf, strings.Replace(copySpec, "spec: {restartPolicy", "spec: {priorityClassName: system-node-critical, restartPolicy", 1)), want: "without a PriorityClass"},
	{name: "deletion of a copy", before: job("ended", ", "+copyOf, copySpec)},
	{name: "deletion of a Job", before: job("kept", "", copySpec), want: "with the label plimsoll.dev/trial-of"},
	{name: "quotas of its own Cohort", before: `{` + cohort + `, metadata: {name: quotas, labels: {plimsoll.dev/capacity-policy: gpus}}, spec: {parentName: company}}`,
		after: `{` + cohort + `, metadata: {name: quotas, labels: {plimsoll.dev/capacity-policy: gpus}}, spec: {resourceGroups: [{coveredResources: [nvidia.com/gpu], flavors: [{name: h100, resources: [{name: nvidia.com/gpu, nominalQuota: 8}]}]}]}}`},
	{name: "own Cohort below the Cohort of others", after: `{` + cohort + `, metadata: {name: child, labels: {plimsoll.dev/capacity-policy: gpus}}, spec: {parentName: company}}`, want: "may only write resourceGroups"},
	{name: "own Cohort moved below the Cohort of others", before: `{` + cohort + `, metadata: {name: moved, labels: {plimsoll.dev/capacity-policy: gpus}}}`, want: "may only write resourceGroups",
		after: `{` + cohort + `, metadata: {name: moved, labels: {plimsoll.dev/capacity-policy: gpus}}, spec: {parentName: company}}`},
	{name: "status of another's check", status: true, want: "belongs to example.com/budget",
		before: `{apiVersion: kueue.x-k8s.io/v1beta2, kind: AdmissionCheck, metadata: {name: other}, spec: {controllerName: example.com/budget}}`,
		after:  `{apiVersion: kueue.x-k8s.io/v1beta2, kind: AdmissionCheck, metadata: {name: other}, spec: {controllerName: example.com/budget}, status: {conditions: [{type: Active, status: "True", reason: x, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}]}}`},
	{name: "status of its own check", status: true,
		before: `{apiVersion: kueue.x-k8s.io/v1beta2, kind: AdmissionCheck, metadata: {name: own}, spec: {controllerName: plimsoll.dev/placement}}`,
		after:  `{apiVersion: kueue.x-k8s.io/v1beta2, kind: AdmissionCheck, metadata: {name: own}, spec: {controllerName: plimsoll.dev/placement}, status: {conditions: [{type: Active, status: "True", reason: x, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}]}}`},
}

// The guard refuses forged writes to other objects.
func TestGuardOfOtherObjects(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	g := startGuarded(ctx, t)
	g.waitUntilEffective(ctx, t)
	for _, f := range forgeries {
		t.Run(f.name, func(t *testing.T) {
			before, after := parseObject(t, f.before), parseObject(t, f.after)
			if before != nil {
				if err := g.admin.Create(ctx, before); err != nil {
					t.Fatal(err)
				}
			}
			if f.values {
				before.Object["status"] = map[string]any{"scores": []any{map[string]any{"name": "total", "value": int64(1)}}, "validUntil": "2026-01-01T00:00:00Z"}
				if err := g.admin.Status().Update(ctx, before); err != nil {
					t.Fatal(err)
				}
			}
			err := g.forge(ctx, f, before, after)
			if (err == nil) != (f.want == "") || err != nil && !strings.Contains(err.Error(), f.want) {
				t.Errorf("want %q, got %v", f.want, err)
			}
		})
	}
}

// forge makes the write of a forgery with the operator's account.
func (g guarded) forge(ctx context.Context, f forgery, before, after *unstructured.Unstructured) error {
	switch {
	case after == nil:
		return g.operator.Delete(ctx, before)
	case before == nil:
		return g.operator.Create(ctx, after)
	case f.status:
		return g.operator.Status().Patch(ctx, after, client.Merge)
	}
	return g.operator.Patch(ctx, after, client.Merge)
}

// parseObject returns the object of a YAML text, and nil for an empty text.
func parseObject(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	if text == "" {
		return nil
	}
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

// A worker's queue, applied to the hub by mistake, does not replace the hub's.
func TestSamplesOfAWorkerDoNotReplaceTheHubs(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	_, hub := startEnvironment(t, &envtest.Environment{CRDDirectoryPaths: append(ocmCRDs(t), "crd"), CRDs: kueueCRDs(t), ErrorIfCRDPathMissing: true, CRDInstallOptions: envtest.CRDInstallOptions{MaxTime: time.Minute}})
	built := buildUntyped(t, "samples/hub")
	for _, u := range built {
		if err := hub.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("kubectl")); err != nil {
			t.Fatalf("%s %s: %v", u.GetKind(), u.GetName(), err)
		}
	}
	var queue *unstructured.Unstructured
	for _, u := range buildUntyped(t, "samples/worker") {
		if u.GetKind() == "ClusterQueue" {
			queue = u
		}
	}
	gomega.NewWithT(t).Eventually(func() string {
		if err := hub.Apply(ctx, client.ApplyConfigurationFromUnstructured(queue.DeepCopy()), client.FieldOwner("kubectl"), client.DryRunAll); err != nil {
			return err.Error()
		}
		return ""
	}, time.Minute, 100*time.Millisecond).Should(gomega.ContainSubstring("apply samples/hub to the hub and samples/worker to workers"))
	if err := hub.Get(ctx, client.ObjectKeyFromObject(queue), queue); err != nil {
		t.Fatal(err)
	}
	checks, _, err := unstructured.NestedSlice(queue.Object, "spec", "admissionChecksStrategy", "admissionChecks")
	if err != nil || len(checks) != 2 {
		t.Errorf("checks %v, %v", checks, err)
	}
}
