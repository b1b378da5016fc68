package installation

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestSetDispatcher(t *testing.T) {
	const head = "# of the team\nkind: Configuration\n"
	for _, tc := range []struct{ name, text, want string }{
		{"no section", head + "webhook:\n  port: 9443 # fixed\n", head + "webhook:\n  port: 9443 # fixed\nmultiKueue:\n  dispatcherName: new\n"},
		{"empty section", head + "multiKueue:\n", head + "multiKueue:\n  dispatcherName: new\n"},
		{"another dispatcher", head + "multiKueue:\n  gcInterval: 1m\n  dispatcherName: old\n", head + "multiKueue:\n  gcInterval: 1m\n  dispatcherName: new\n"},
		{"the same", head + "multiKueue: {dispatcherName: new}\n", head + "multiKueue: {dispatcherName: new}\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := setDispatcher(tc.text, "new")
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Error(d)
			}
		})
	}
	for _, text := range []string{"kind: Other\n", "- a\n", ""} {
		if _, err := setDispatcher(text, "new"); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

// doctor and uninstall read the dispatcher as Kueue does, however the YAML is written.
func TestDispatcherIn(t *testing.T) {
	const head = "kind: Configuration\n"
	for _, tc := range []struct {
		name string
		data map[string]string
		want string
	}{
		{"block style", map[string]string{"config.yaml": head + "multiKueue:\n  gcInterval: 1m\n  dispatcherName: \"ours\"\n"}, "ours"},
		{"flow style", map[string]string{"config.yaml": head + "multiKueue: {dispatcherName: ours}\n"}, "ours"},
		{"single quotes", map[string]string{"config.yaml": head + "multiKueue:\n  'dispatcherName': 'ours'\n"}, "ours"},
		{"JSON", map[string]string{"config.yaml": `{"kind": "Configuration", "multiKueue": {"dispatcherName": "ours"}}`}, "ours"},
		{"in a comment", map[string]string{"config.yaml": head + "multiKueue:\n  # dispatcherName: ours\n  gcInterval: 1m\n"}, ""},
		{"of another kind", map[string]string{"a.yaml": "kind: Other\nmultiKueue: {dispatcherName: other}\n", "b.yaml": head + "multiKueue: {dispatcherName: ours}\n"}, "ours"},
		{"in another section", map[string]string{"config.yaml": head + "other: {dispatcherName: other}\n"}, ""},
		{"no configuration", nil, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got, err := dispatcherIn(&corev1.ConfigMap{Data: tc.data}); err != nil || got != tc.want {
				t.Errorf("got %q and error %v, want %q", got, err, tc.want)
			}
		})
	}
	if _, err := dispatcherIn(&corev1.ConfigMap{Data: map[string]string{"config.yaml": "a: ["}}); err == nil || !strings.Contains(err.Error(), "config.yaml") {
		t.Errorf("invalid YAML: error %v", err)
	}
}
