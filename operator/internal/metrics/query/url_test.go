package query

import "testing"

func TestExpandURL(t *testing.T) {
	for _, tc := range []struct{ name, template, cluster, want string }{
		{"host name", "https://prom.{cluster}.example:9090/x", "c1", "https://prom.c1.example:9090/x"},
		{"path", "http://proxy/{cluster}/prom", "c1", "http://proxy/c1/prom"},
		{"path traversal", "http://proxy/{cluster}", "a/../b", ""},
		{"user in the cluster name", "http://{cluster}/", "evil@host", ""},
		{"port", "http://host:{cluster}/", "c1", ""},
		{"scheme", "{cluster}://host/", "c1", ""},
		{"no placeholder", "http://host/", "c1", ""},
		{"user and password", "http://user:pw@host/{cluster}", "c1", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := ExpandURL(tc.template, tc.cluster)
			if (err == nil) != (tc.want != "") || err == nil && got != tc.want {
				t.Errorf("ExpandURL(%q, %q) = %q, %v; want %q", tc.template, tc.cluster, got, err, tc.want)
			}
		})
	}
}
