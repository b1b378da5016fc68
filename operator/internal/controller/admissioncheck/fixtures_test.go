package admissioncheck

import (
	"encoding/json"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"plimsoll.dev/plimsoll/operator/api/v1alpha1"
)

func gateParameters(name string) *kueue.AdmissionCheckParametersReference {
	return &kueue.AdmissionCheckParametersReference{APIGroup: "plimsoll.dev", Kind: "PlacementGate", Name: name}
}

func newCheck(name string, parameters *kueue.AdmissionCheckParametersReference) *kueue.AdmissionCheck {
	return &kueue.AdmissionCheck{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       kueue.AdmissionCheckSpec{ControllerName: v1alpha1.ControllerName, Parameters: parameters},
	}
}

// newGate returns the gate "gpu" of generation 2 with the given condition Ready.
func newGate(observedGeneration int64, status metav1.ConditionStatus, reason, message string) *v1alpha1.PlacementGate {
	g := &v1alpha1.PlacementGate{ObjectMeta: metav1.ObjectMeta{Name: "gpu", Generation: 2}}
	g.Status.ObservedGeneration = observedGeneration
	g.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: status, Reason: reason, Message: message}}
	return g
}

func newReconciler(t *testing.T, calls interceptor.Funcs, objects ...client.Object) (*Reconciler, client.Client) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, kueue.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	hub := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&kueue.AdmissionCheck{}, &v1alpha1.PlacementGate{}).WithInterceptorFuncs(calls).Build()
	return &Reconciler{client: hub, recorder: events.NewFakeRecorder(10)}, hub
}

// logLine is the part of a log line that tests compare.
type logLine struct {
	Level   int    `json:"level"`
	Message string `json:"msg"`
	Error   string `json:"error"`
	Check   string `json:"check"`
	Gate    string `json:"gate"`
	Type    string `json:"type"`
	From    string `json:"from"`
	To      string `json:"to"`
	Reason  string `json:"reason"`
}

// newLogger returns a logger that appends its lines to the slice, including debug lines.
func newLogger(t *testing.T, lines *[]logLine) logr.Logger {
	return funcr.NewJSON(func(text string) {
		line := logLine{}
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Errorf("%v: %s", err, text)
		}
		*lines = append(*lines, line)
	}, funcr.Options{Verbosity: 1})
}
