package hub

import (
	"encoding/json"
	"testing"
)

func TestFieldSets(t *testing.T) {
	for _, tc := range []struct {
		name       string
		operation  func(a, b fields) fields
		a, b, want string
	}{
		{"union", union, `{"f:a":{}}`, `{"f:b":{}}`, `{"f:a":{},"f:b":{}}`},
		{"union below a path", union, `{"f:a":{"f:x":{}}}`, `{"f:a":{"f:y":{}}}`, `{"f:a":{"f:x":{},"f:y":{}}}`},
		{"union of a path and its child", union, `{"f:a":{}}`, `{"f:a":{"f:y":{}}}`, `{"f:a":{".":{},"f:y":{}}}`},
		{"subtract", subtract, `{"f:a":{},"f:b":{}}`, `{"f:b":{},"f:c":{}}`, `{"f:a":{}}`},
		{"subtract all", subtract, `{"f:a":{"f:x":{}}}`, `{"f:a":{"f:x":{}}}`, `null`},
		{"subtract a child", subtract, `{"f:a":{".":{},"f:x":{}}}`, `{"f:a":{"f:x":{}}}`, `{"f:a":{".":{}}}`},
		{"subtract the path itself", subtract, `{"f:a":{".":{},"f:x":{}}}`, `{"f:a":{}}`, `{"f:a":{"f:x":{}}}`},
		{"subtract a parent keeps the child", subtract, `{"f:a":{"f:x":{}}}`, `{"f:a":{}}`, `{"f:a":{"f:x":{}}}`},
		{"subtract a child keeps the parent", subtract, `{"f:a":{}}`, `{"f:a":{"f:x":{}}}`, `{"f:a":{}}`},
		{"subtract an item with its fields", subtract, `{"f:a":{"k:{}":{".":{},"f:x":{}}}}`, `{"f:a":{"k:{}":{".":{},"f:x":{}}}}`, `null`},
		{"pick", pick, `{"f:a":{"f:x":{},"f:y":{}},"f:b":{}}`, `{"f:a":{"f:x":{}},"f:c":{}}`, `{"f:a":{"f:x":{}}}`},
		{"pick nothing", pick, `{"f:a":{}}`, `{"f:b":{}}`, `null`},
		{"drop", drop, `{"f:a":{"f:x":{},"f:y":{}},"f:b":{}}`, `{"f:a":{"f:x":{}},"f:b":{}}`, `{"f:a":{"f:y":{}}}`},
		{"drop all", drop, `{"f:a":{"f:x":{}}}`, `{"f:a":{}}`, `null`},
	} {
		a, b := parseFields(t, tc.a), parseFields(t, tc.b)
		got := "null"
		if set := tc.operation(a, b); set != nil {
			got = set.encode()
		}
		if got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
		if a.encode() != tc.a || b.encode() != tc.b {
			t.Errorf("%s changed its arguments", tc.name)
		}
	}
}

func TestIntersects(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want bool
	}{
		{`{"f:a":{"f:x":{}}}`, `{"f:a":{"f:x":{},"f:y":{}}}`, true},
		{`{"f:a":{"f:x":{}}}`, `{"f:a":{"f:y":{}}}`, false},
		{`{"f:a":{}}`, `{"f:a":{"f:y":{}}}`, false},
		{`{"f:a":{}}`, `{"f:a":{".":{},"f:y":{}}}`, true},
	} {
		if got := intersects(parseFields(t, tc.a), parseFields(t, tc.b)); got != tc.want {
			t.Errorf("%s and %s: %v", tc.a, tc.b, got)
		}
	}
}

func TestEncodedKeys(t *testing.T) {
	for _, name := range []string{"plain", `with "quotes" and \`, "ümlaut", "a<b>&c", "tab\t"} {
		set := fields{itemPath("name", name): member}
		var decoded map[string]any
		if err := json.Unmarshal([]byte(set.encode()), &decoded); err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		for path := range decoded {
			var key map[string]string
			if err := json.Unmarshal([]byte(path[2:]), &key); err != nil || key["name"] != name {
				t.Errorf("%q became %s: %v", name, path, err)
			}
		}
	}
}

func parseFields(t *testing.T, text string) fields {
	t.Helper()
	var set fields
	if err := json.Unmarshal([]byte(text), &set); err != nil {
		t.Fatal(err)
	}
	return set
}
