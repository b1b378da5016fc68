package main

import (
	"strings"
	"testing"
)

func TestReadEvents(t *testing.T) {
	for name, c := range map[string]struct {
		stdout string
		want   testEvents
	}{
		"success": {`{"Action":"run","Package":"m/a","Test":"TestA"}
{"Action":"pass","Package":"m/a","Test":"TestA"}
{"Action":"pass","Package":"m/a"}`, testEvents{last: "m/a/TestA"}},
		"first of two failures": {`{"Action":"fail","Package":"m/a","Test":"TestA"}
{"Action":"fail","Package":"m/a"}
{"Action":"fail","Package":"m/b","Test":"TestB"}`, testEvents{failed: "m/a/TestA", last: "m/b/TestB"}},
		"exit outside of tests": {`{"Action":"fail","Package":"m/a"}`, testEvents{failed: "m/a"}},
		"interrupted": {`{"Action":"run","Package":"m/a","Test":"TestA"}
{"Action":"run","Package":"m/a","Te`, testEvents{last: "m/a/TestA"}},
		"not built": {`{"ImportPath":"m/a","Action":"build-fail"}
{"Action":"fail","Package":"m/a","FailedBuild":"m/a"}`, testEvents{failed: "m/a", notBuilt: true}},
	} {
		if got := readEvents(strings.NewReader(c.stdout)); got != c.want {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}
